"""The embedded engine against transformers, and the parts of the contract that only it can keep."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from searchlens_lab.equivalence import filters as oracle

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from safetensors import torch as safetensors  # noqa: E402

from searchlens.engines import _llama as llama  # noqa: E402
from searchlens.engines import _prompts as prompts_module  # noqa: E402
from searchlens.engines import transformers as engine_module  # noqa: E402
from searchlens.engines import vllm as vllm_module  # noqa: E402
from searchlens.engines._llama import _Linear  # noqa: E402
from searchlens.engines.base import Completion, Request, Sampling, complete  # noqa: E402
from searchlens.engines.transformers import TransformersEngine  # noqa: E402
from searchlens.errors import InputError  # noqa: E402
from searchlens.seeds import uniform  # noqa: E402
from searchlens_lab.resident import engine as resident_module  # noqa: E402

VOCAB, BOS, EOS, PAD = 70, 1, 2, 3
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.4,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "pad_token_id": PAD,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 1000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
FAMILIES = {
    "qwen2": transformers.Qwen2Config(**SIZES, tie_word_embeddings=True),
    "llama": transformers.LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True, rope_parameters=LLAMA3_ROPE),
    "mistral": transformers.MistralConfig(**SIZES, head_dim=12, sliding_window=None),
    "qwen3": transformers.Qwen3Config(**SIZES, head_dim=16),
    "one kv head": transformers.LlamaConfig(**{**SIZES, "num_key_value_heads": 1}, tie_word_embeddings=True),
    "no grouping": transformers.LlamaConfig(**{**SIZES, "num_key_value_heads": 4}),
}
TEMPERATURE = Sampling(1.0)


def save(folder: Path, config: Any) -> Path:
    """A checkpoint with random weights, none of them at its initial zero or one."""
    from tokenizers import Tokenizer, models

    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:
                weight.add_(torch.randn_like(weight) * 0.3)
    model.save_pretrained(folder)
    words = {"<bos>": BOS, "<eos>": EOS, "<pad>": PAD} | {f"w{i}": i for i in range(VOCAB) if i not in (BOS, EOS, PAD)}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0")),
        bos_token="<bos>",
        eos_token="<eos>",
        pad_token="<pad>",
    )
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("checkpoints")
    return {name: save(root / name.replace(" ", "-"), config) for name, config in FAMILIES.items()}


@pytest.fixture(scope="session")
def engine(checkpoints: dict[str, Path]) -> TransformersEngine:
    return TransformersEngine(checkpoints["qwen2"], max_rows=64, threads=1)


@pytest.fixture(scope="session")
def narrow(checkpoints: dict[str, Path]) -> TransformersEngine:
    """With so few rows that requests are admitted many times, and rows of very different length share the batch."""
    return TransformersEngine(checkpoints["qwen2"], max_rows=6, threads=1)


def reference(folder: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def run(engine: TransformersEngine, requests: Sequence[Request]) -> list[Completion]:
    done = dict(complete(engine, requests))
    return [done[i] for i in range(len(requests))]


def prompts(count: int, seed: int = 0) -> list[tuple[int, ...]]:
    """Of one to twenty tokens, BOS first."""
    rng = np.random.default_rng(seed)
    return [(BOS, *map(int, rng.integers(4, VOCAB, length))) for length in rng.integers(0, 20, count)]


def pool(
    samplings: Sequence[Sampling] = (TEMPERATURE,), samples: int = 3, max_tokens: int = 12, count: int = 8
) -> list[Request]:
    """`samples` requests per prompt and sampling, prompt by prompt."""
    return [
        Request(prompt, sampling, 1000 * p + 10 * s + n, max_tokens, (EOS, 10, 11))
        for p, prompt in enumerate(prompts(count))
        for s, sampling in enumerate(samplings)
        for n in range(samples)
    ]


def equal(first: Completion, second: Completion) -> bool:
    """Whether two completions are the same to the last bit."""
    return first.finish == second.finish and all(
        np.array_equal(getattr(first, name), getattr(second, name))
        for name in ("tokens", "logprobs", "sampling_logprobs")
    )


def logits_of(model: Any, prompt: Sequence[int], tokens: Sequence[int]) -> np.ndarray:
    """Logits of transformers before each of `tokens`, without pad."""
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1].double().numpy()
    logits[:, PAD] = -np.inf
    return logits


@pytest.mark.parametrize("family", FAMILIES)
def test_forward_equals_transformers(family: str, checkpoints: dict[str, Path]) -> None:
    """Prefill, decode, shared prompts, rotary embedding, grouped heads, biases: all show in the log-probabilities."""
    requests = pool(max_tokens=30, count=5)
    engine, model = TransformersEngine(checkpoints[family], max_rows=8, threads=1), reference(checkpoints[family])
    for request, done in zip(requests, run(engine, requests), strict=True):
        logits = logits_of(model, request.prompt, done.tokens.tolist())
        wanted = logits[np.arange(len(done.tokens)), done.tokens] - np.log(np.exp(logits).sum(1))
        np.testing.assert_allclose(done.logprobs, wanted, atol=1e-4)
        np.testing.assert_allclose(done.logprobs, done.sampling_logprobs, atol=2e-6)  # temperature 1, no filters


def test_greedy_equals_generate(engine: TransformersEngine, checkpoints: dict[str, Path]) -> None:
    model = reference(checkpoints["qwen2"])
    requests = [Request(prompt, Sampling(0.0), 1, 20, (EOS,)) for prompt in prompts(6)]
    for request, done in zip(requests, run(engine, requests), strict=True):
        with torch.no_grad():
            wanted = model.generate(
                torch.tensor([request.prompt]), do_sample=False, max_new_tokens=20, suppress_tokens=[PAD]
            )
        assert done.tokens.tolist() == wanted[0, len(request.prompt) :].tolist()
        assert not done.sampling_logprobs.any()


def test_every_draw_can_be_replayed(narrow: TransformersEngine, checkpoints: dict[str, Path]) -> None:
    """transformers' logits, a plain filter chain and the uniform of (seed, position) give the same tokens.

    Prompts of all lengths, different parameters in one batch, penalties that remember, refills and merged row groups.
    """
    samplings = [
        Sampling(1.0),
        Sampling(0.0),
        Sampling(0.7, top_p=0.9),
        Sampling(1.2, top_k=8, min_p=0.02),
        Sampling(1.0, typical_p=0.8, repetition_penalty=1.2, frequency_penalty=0.3, presence_penalty=0.2),
    ]
    model = reference(checkpoints["qwen2"])
    requests = pool(samplings, samples=2, max_tokens=40, count=6)
    for request, done in zip(requests, run(narrow, requests), strict=True):
        tokens = done.tokens.tolist()
        draws = uniform(np.full(len(tokens), request.seed, np.uint64), np.arange(len(tokens)))
        for i, logits in enumerate(logits_of(model, request.prompt, tokens)):
            q = oracle.distribution(logits, request.sampling, request.prompt, tokens[:i])
            edges = np.concatenate(([0.0], np.cumsum(q)))
            assert q[tokens[i]] > 0
            assert edges[tokens[i]] - 1e-5 <= draws[i] <= edges[tokens[i] + 1] + 1e-5 or request.sampling == Sampling(
                0.0
            )
            assert done.sampling_logprobs[i] == pytest.approx(np.log(q[tokens[i]]), abs=2e-4)


def test_sample_does_not_depend_on_its_neighbours(engine: TransformersEngine, narrow: TransformersEngine) -> None:
    """Alone, in any order, in a large or a small batch: the same tokens."""
    requests = pool([TEMPERATURE, Sampling(0.8, top_p=0.9)])
    together = run(engine, requests)
    order = np.random.default_rng(0).permutation(len(requests))
    shuffled = run(engine, [requests[i] for i in order])
    refilled = run(narrow, requests)
    for place, i in enumerate(order):
        assert shuffled[place].tokens.tolist() == together[i].tokens.tolist()
    for first, second in zip(together, refilled, strict=True):
        assert first.tokens.tolist() == second.tokens.tolist()
    for i in range(0, len(requests), 7):
        assert run(engine, [requests[i]])[0].tokens.tolist() == together[i].tokens.tolist()


def test_rerun_is_identical_to_the_last_bit(narrow: TransformersEngine) -> None:
    requests = pool([TEMPERATURE, Sampling(0.8, top_k=5)])
    for first, second in zip(run(narrow, requests), run(narrow, requests), strict=True):
        assert equal(first, second)


@pytest.mark.parametrize("masked", [-1, 40, 10**9])
def test_merging_of_row_groups_changes_nothing(
    engine: TransformersEngine, narrow: TransformersEngine, monkeypatch: pytest.MonkeyPatch, masked: int
) -> None:
    """Never, sometimes or always merged; rows of very different length come and go, one prompt each."""
    rng = np.random.default_rng(3)
    requests = [
        Request(prompt, TEMPERATURE, seed, int(limit), ())
        for seed, (prompt, limit) in enumerate(zip(prompts(80, 1), rng.choice([1, 3, 9, 60], 80), strict=True))
    ]
    wanted = run(engine, requests)
    monkeypatch.setattr(narrow, "_max_masked", masked)
    monkeypatch.setattr(narrow, "max_rows", 12)
    monkeypatch.setattr(engine_module, "_REFILL", 12)
    monkeypatch.setattr(engine_module, "_WAVE", 12)
    for first, second in zip(wanted, run(narrow, requests), strict=True):
        assert first.tokens.tolist() == second.tokens.tolist()


def test_prompts_of_a_cleared_engine_are_computed_once_and_keep_their_bits(
    checkpoints: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job samples the same questions under many policies: what was kept must be what would be computed again."""
    questions, calls = sorted(set(prompts(9))), list[int]()
    plain = prompts_module.prefill
    monkeypatch.setattr(prompts_module, "prefill", lambda model, some: calls.append(len(some)) or plain(model, some))

    def requests(sampling: Sampling) -> list[Request]:
        return [Request(prompt, sampling, seed, 8, (EOS,)) for prompt in questions for seed in range(2)]

    keeping = TransformersEngine(checkpoints["qwen2"], max_rows=64, threads=1)
    run(keeping, requests(Sampling(0.7)))
    assert calls == [len(questions)]
    kept = run(keeping, requests(TEMPERATURE))
    assert calls == [len(questions)]
    fresh = run(TransformersEngine(checkpoints["qwen2"], max_rows=64, threads=1), requests(TEMPERATURE))
    assert calls == [len(questions)] * 2
    for one, other in zip(kept, fresh, strict=True):
        assert one.tokens.tolist() == other.tokens.tolist()
        assert one.logprobs.tobytes() == other.logprobs.tobytes()
        assert one.reused == other.reused  # costs do not depend on what an engine computed earlier


def test_what_is_kept_of_prompts_is_bounded(checkpoints: dict[str, Path]) -> None:
    """A job of many questions must not keep what it computed of all their prompts."""
    model = TransformersEngine(checkpoints["qwen2"], max_rows=8, threads=1)._model
    kept = prompts_module.Prefills(model, 10)
    with torch.inference_mode():
        small, other = kept([(1, 4, 5)]), kept([(1, 6, 7, 8)])
        assert kept([(1, 4, 5)])[0] is small[0]
        assert kept([(1, 6, 7, 8)])[0] is other[0]
        kept([(1, 9, 9, 9)])  # 11 tokens: everything else is forgotten
        assert kept([(1, 4, 5)])[0] is not small[0]
        large = kept([tuple(range(4, 15))])
        assert kept([tuple(range(4, 15))])[0] is not large[0]


@pytest.mark.parametrize("rows", [32, 96, 512, 768])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("intel", [False, True])
@pytest.mark.parametrize("terms", [96, 384, 640])
def test_libraries_and_packed_weights_give_the_same_bits(
    rows: int, bias: bool, intel: bool, terms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stored samples were drawn with weights as they are: another last digit of a logit could change a text."""
    monkeypatch.setattr(llama, "_is_intel", lambda: intel)
    torch.manual_seed(0)
    weight, x = torch.randn(48, terms), torch.randn(rows, terms)
    arguments = weight, torch.randn(48) if bias else None
    by_onednn = torch.ops.mkldnn._linear_pointwise(x, *arguments, "none", [], "")
    for shared in (False, True):
        assert torch.equal(_Linear(*arguments, shared=shared)(x), by_onednn)


def test_mkl_multiplies_where_it_has_the_bits_of_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more terms than a block of MKL's kernels has, its sums are others."""
    monkeypatch.setattr(llama, "_is_intel", lambda: True)
    monkeypatch.setattr(llama, "_same_bits", lambda *_: True)
    assert llama._takes_mkl(torch.zeros(8, 384), None)
    assert not llama._takes_mkl(torch.zeros(8, 385), None)
    assert not llama._takes_mkl(torch.zeros(8, 384, dtype=torch.bfloat16), None)
    monkeypatch.setattr(llama, "_same_bits", lambda *_: False)
    assert not llama._takes_mkl(torch.zeros(8, 384), None)


@pytest.mark.parametrize(("takes_mkl", "expected"), [(True, [15, 1, 0, 0]), (False, [31, 17, 0, 7])])
def test_rows_are_padded_as_the_library_needs(takes_mkl: bool, expected: list[int]) -> None:
    """MKL has the same bits for any number of rows from 16 on; oneDNN compiles a kernel for every number."""
    model = llama.Llama.__new__(llama.Llama)
    model.device, model._takes_mkl = torch.device("cpu"), takes_mkl
    assert [model.padding(rows) for rows in (1, 15, 64, 505)] == expected


def test_requests_added_while_running(engine: TransformersEngine) -> None:
    """A controller submits more requests once it has results; late requests get the same tokens as early ones."""
    requests = pool()
    wanted = run(engine, requests)
    done: dict[int, Completion] = {}
    for i, request in enumerate(requests):
        engine.add(i, request)
        if i % 5 == 4:
            done.update(engine.step())
    while len(done) < len(requests):
        done.update(engine.step())
    assert engine.step() == []
    for i, completion in done.items():
        assert completion.tokens.tolist() == wanted[i].tokens.tolist()


def test_stop_and_length(engine: TransformersEngine) -> None:
    """A stop token ends a sample and is returned; no other token ends it before its limit."""
    done = run(engine, pool(samples=10))
    assert {completion.finish for completion in done} == {"stop", "length"}
    for completion in done:
        stops = np.isin(completion.tokens, (EOS, 10, 11))
        assert not stops[:-1].any()
        assert stops[-1] == (completion.finish == "stop")
        assert completion.finish == "stop" or len(completion.tokens) == 12
        assert (completion.tokens.dtype, completion.logprobs.dtype) == (np.int32, np.float32)
    (single,) = run(engine, [Request((BOS,), TEMPERATURE, 0, 1, ())])
    assert (len(single.tokens), single.finish) == (1, "length")


def test_limits_and_stops_of_neighbours_do_not_mix(engine: TransformersEngine) -> None:
    requests = [Request((BOS, 20), TEMPERATURE, 5, limit, ()) for limit in (1, 4, 30)]
    done = run(engine, [*requests, Request((BOS, 20), TEMPERATURE, 5, 30, tuple(range(VOCAB)))])
    longest = done[2].tokens.tolist()
    assert [completion.tokens.tolist() for completion in done] == [longest[:1], longest[:4], longest, longest[:1]]
    assert [completion.finish for completion in done] == ["length", "length", "length", "stop"]


def test_different_seeds_give_different_samples(engine: TransformersEngine) -> None:
    done = run(engine, [Request((BOS, 30), TEMPERATURE, seed, 20, ()) for seed in range(64)])
    assert len({tuple(completion.tokens.tolist()) for completion in done}) == 64


def test_pad_is_never_sampled(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    """Not even if it is by far the most likely token, nor by greedy; probabilities are those without it."""
    model = reference(checkpoints["no grouping"])
    with torch.no_grad():
        model.lm_head.weight[PAD] = 0
        hidden = model.model(torch.tensor([[BOS]])).last_hidden_state[0, -1]
        model.lm_head.weight[PAD] = 20 * hidden / hidden.norm()
    model.save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(checkpoints["no grouping"]).save_pretrained(tmp_path)
    with torch.no_grad():
        assert int(model(torch.tensor([[BOS]])).logits[0, -1].argmax()) == PAD
    engine = TransformersEngine(tmp_path, threads=1)
    requests = [Request((BOS,), Sampling(temperature), seed, 3, ()) for temperature in (0.0, 1.0) for seed in range(40)]
    done = run(engine, requests)
    assert all(PAD not in completion.tokens for completion in done)
    wanted = logits_of(model, (BOS,), (0,))[0]
    for completion in done:
        token = completion.tokens[0]
        assert completion.logprobs[0] == pytest.approx(wanted[token] - np.log(np.exp(wanted).sum()), abs=1e-4)


def test_pad_that_ends_a_text_is_allowed(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    """Many checkpoints pad with their end-of-text token, which has to stay reachable."""
    reference(checkpoints["qwen2"]).save_pretrained(tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoints["qwen2"])
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.save_pretrained(tmp_path)
    assert TransformersEngine(tmp_path).masked == ()


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "message"),
    [
        ((), 5, "prompt is empty"),
        ((BOS, 5), 0, "max_tokens is 0"),
        ((BOS, 5), 127, "need 129 tokens, the limit is 128"),
        ((BOS, VOCAB), 5, f"token id {VOCAB}, but ids go from 0 to {VOCAB - 1}"),
        ((BOS, -1), 5, "token id -1"),
    ],
)
def test_bad_request(engine: TransformersEngine, prompt: tuple[int, ...], max_tokens: int, message: str) -> None:
    """Refused by ``add``, with its id, and the engine stays usable."""
    with pytest.raises(InputError, match=message):
        engine.add(17, Request(prompt, TEMPERATURE, 0, max_tokens, ()))
    assert engine.step() == []


@pytest.mark.parametrize(
    ("prefix", "max_tokens", "top", "message"),
    [
        ((5,) * 100, 27, 0, "2 prompt tokens, 100 prefix tokens and max_tokens 27 need 129 tokens, the limit is 128"),
        ((5, VOCAB), 5, 0, f"the prefix has token id {VOCAB}"),
        ((-3,), 5, 0, "the prefix has token id -3"),
        ((), 5, VOCAB, f"top is {VOCAB}; allowed is 0 to {VOCAB - 1}"),
        ((), 5, -1, "top is -1"),
    ],
)
def test_bad_continuation(
    engine: TransformersEngine, prefix: tuple[int, ...], max_tokens: int, top: int, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        engine.add(17, Request((BOS, 5), TEMPERATURE, 0, max_tokens, (), prefix=prefix, top=top))
    assert engine.step() == []


def test_room_is_checked_for_each_request_of_a_prompt(engine: TransformersEngine) -> None:
    engine.add(0, Request((BOS, 5), TEMPERATURE, 0, 1, ()))
    with pytest.raises(InputError, match="the limit is 128"):
        engine.add(1, Request((BOS, 5), TEMPERATURE, 0, 127, ()))
    assert [request_id for request_id, _ in engine.step()] == [0]


def test_longest_possible_sample(engine: TransformersEngine) -> None:
    """Every position of the model is used, and the KV cache keeps its content as it grows."""
    (done,) = run(engine, [Request((BOS,), TEMPERATURE, 3, 127, ())])
    assert len(done.tokens) == 127


def test_bfloat16(checkpoints: dict[str, Path]) -> None:
    """Half the memory; log-probabilities near those of float32 for the same tokens."""
    done = run(TransformersEngine(checkpoints["llama"], dtype="bfloat16", max_rows=8), pool(max_tokens=8))
    model = reference(checkpoints["llama"])
    gaps = []
    for request, completion in zip(pool(max_tokens=8), done, strict=True):
        logits = logits_of(model, request.prompt, completion.tokens.tolist())
        wanted = logits[np.arange(len(completion.tokens)), completion.tokens] - np.log(np.exp(logits).sum(1))
        gaps += list(np.abs(completion.logprobs - wanted))
    assert np.median(gaps) < 0.2


def test_long_prefill_is_cut_into_parts(engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound on tokens per forward pass changes nothing else."""
    wanted = run(engine, pool())
    monkeypatch.setattr(engine, "_prefill_tokens", 10)
    for first, second in zip(run(engine, pool()), wanted, strict=True):
        assert first.tokens.tolist() == second.tokens.tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device": "tpu"}, "'tpu' is not known"),
        ({"dtype": "float16"}, "'float16' is not known"),
        ({"max_rows": 0}, "max_rows is 0"),
        ({"max_model_len": 129}, "allowed is 1 to 128"),
    ],
)
def test_bad_argument(checkpoints: dict[str, Path], arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TransformersEngine(checkpoints["qwen2"], **arguments)


def test_missing_cuda_is_an_error(checkpoints: dict[str, Path]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    with pytest.raises(InputError, match="no CUDA device"):
        TransformersEngine(checkpoints["qwen2"], device="cuda")


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*nothing/config\.json"):
        TransformersEngine(tmp_path / "nothing")


def test_missing_weights(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    """transformers would fill them with random numbers and only warn."""
    from safetensors.torch import load_file, save_file

    reference(checkpoints["llama"]).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"have no .*up_proj"):
        TransformersEngine(tmp_path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (transformers.GPT2Config(n_layer=1, n_embd=8, n_head=1, vocab_size=VOCAB), "only llama, mistral, qwen2, qwen3"),
        (
            transformers.LlamaConfig(**SIZES, hidden_act="gelu"),
            "hidden_act must be 'silu' for the embedded engine, found 'gelu'",
        ),
        (
            transformers.LlamaConfig(
                **SIZES, rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
            ),
            "rope type 'dynamic'",
        ),
    ],
)
def test_unsupported_architecture(config: Any, message: str, tmp_path: Path) -> None:
    """A model that the forward pass would compute wrongly is refused."""
    config.save_pretrained(tmp_path)
    safetensors.save_file({"weight": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=message):
        TransformersEngine(tmp_path)


def test_sliding_window_limits_the_length(tmp_path: Path) -> None:
    """Within the window full attention is the same thing; beyond it the engine would be wrong."""
    folder = save(tmp_path, transformers.MistralConfig(**SIZES, sliding_window=40))
    assert TransformersEngine(folder).max_model_len == 40


def test_the_page_about_engines_has_the_files_and_numbers_of_the_code() -> None:
    page = (Path(__file__).parents[2] / "docs/engine.md").read_text()
    files = set(re.findall(r"`(\w+\.py)`", page))
    assert len(files) > 9
    folders = (Path(engine_module.__file__).parent, Path(resident_module.__file__).parent)
    assert all(any((folder / name).is_file() for folder in folders) for name in files)
    for phrase in (
        f"1/{engine_module._COMPACT} of the rows have finished",
        {2: "half of the rows are free"}[engine_module._REFILL],
        {4: "a quarter as many requests wait as rows run"}[engine_module._WAVE],
        f"{vllm_module._AHEAD} requests per row",
    ):
        assert phrase in page
