"""The embedded engine against transformers, and the parts of the contract that only it can keep."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from searchlens.engines import _llama as llama  # noqa: E402
from searchlens.engines import _prompts as prompts_module  # noqa: E402
from searchlens.engines import transformers as engine_module  # noqa: E402
from searchlens.engines import vllm as vllm_module  # noqa: E402
from searchlens.engines._llama import Shape, _Linear  # noqa: E402
from searchlens.engines.base import Completion, Request, Sampling  # noqa: E402
from searchlens.engines.transformers import TransformersEngine  # noqa: E402
from searchlens.errors import InputError  # noqa: E402
from searchlens_lab.resident import engine as resident_module  # noqa: E402
from test_engine_contract import BOS, EOS, PAD, TEMPERATURE, VOCAB, finish, logits_of, reference, save_tokenizer  # noqa: E402
from test_engine_contract import save as save_model  # noqa: E402

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


def save(folder: Path, config: Any) -> Path:
    """A checkpoint with random weights, none of them at its initial zero or one."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:
                weight.add_(torch.randn_like(weight) * 0.3)
    model.save_pretrained(folder)
    save_tokenizer(folder)
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


@pytest.mark.parametrize("family", FAMILIES)
def test_forward_equals_transformers(family: str, checkpoints: dict[str, Path]) -> None:
    """Prefill, decode, shared prompts, rotary embedding, grouped heads, biases: all show in the log-probabilities."""
    requests = pool(max_tokens=30, count=5)
    engine, model = TransformersEngine(checkpoints[family], max_rows=8, threads=1), reference(checkpoints[family])
    for request, done in zip(requests, finish(engine, requests), strict=True):
        logits = logits_of(model, request.prompt, done.tokens.tolist())
        wanted = logits[np.arange(len(done.tokens)), done.tokens] - np.log(np.exp(logits).sum(1))
        np.testing.assert_allclose(done.logprobs, wanted, atol=1e-4)
        np.testing.assert_allclose(done.logprobs, done.sampling_logprobs, atol=2e-6)  # temperature 1, no filters


def test_rerun_is_identical_to_the_last_bit(narrow: TransformersEngine) -> None:
    requests = pool([TEMPERATURE, Sampling(0.8, top_k=5)])
    for first, second in zip(finish(narrow, requests), finish(narrow, requests), strict=True):
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
    wanted = finish(engine, requests)
    monkeypatch.setattr(narrow, "_max_masked", masked)
    monkeypatch.setattr(narrow, "max_rows", 12)
    monkeypatch.setattr(engine_module, "_REFILL", 12)
    monkeypatch.setattr(engine_module, "_WAVE", 12)
    for first, second in zip(wanted, finish(narrow, requests), strict=True):
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
    finish(keeping, requests(Sampling(0.7)))
    assert calls == [len(questions)]
    kept = finish(keeping, requests(TEMPERATURE))
    assert calls == [len(questions)]
    fresh = finish(TransformersEngine(checkpoints["qwen2"], max_rows=64, threads=1), requests(TEMPERATURE))
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


@pytest.mark.parametrize("rows", [32, 768])
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


def test_pad_that_ends_a_text_is_allowed(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    """Many checkpoints pad with their end-of-text token, which has to stay reachable."""
    reference(checkpoints["qwen2"]).save_pretrained(tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoints["qwen2"])
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.save_pretrained(tmp_path)
    assert TransformersEngine(tmp_path).masked == ()


def test_long_prefill_is_cut_into_parts(engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound on tokens per forward pass changes nothing else."""
    wanted = finish(engine, pool())
    monkeypatch.setattr(engine, "_prefill_tokens", 10)
    for first, second in zip(finish(engine, pool()), wanted, strict=True):
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


def test_the_layout_of_keys_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts are added, their rows leave, and what stays is shorter than any layout but the plain one may be."""
    shape = Shape(layers=2, hidden=8, heads=4, kv_heads=2, head_dim=32, vocab=10, max_len=100)
    if not prompts_module._same_bits(shape.head_dim, shape.repeat, torch.get_num_threads()):
        pytest.skip("this CPU multiplies otherwise")
    products: list[list[torch.Tensor]] = []
    for is_same in (False, True):
        monkeypatch.setattr(prompts_module, "_same_bits", lambda *_, same=is_same: same)
        torch.manual_seed(0)
        prompts, own = prompts_module.Prompts(shape, torch.device("cpu"), torch.float32), list[torch.Tensor]()
        for lengths in ([3], [20, 11], [37, 2]):
            names = [(i, *range(length - 1)) for i, length in enumerate(lengths)]
            names = [name for name in names if name not in prompts]
            new = torch.randn(sum(map(len, names)), shape.layers, 2, shape.kv_heads, shape.head_dim)
            prompts.add(names, new, torch.zeros(len(names), shape.hidden))
            prompts.append_rows(np.repeat(prompts.numbers(names), 3))
            own += _products(prompts, shape)
            assert (prompts._cache.keys.stride(-1) > 1) == (is_same and prompts.longest >= prompts_module._FEWEST)
        prompts.keep_rows(np.arange(3))
        assert prompts.longest == 3 and prompts._cache.keys.stride(-1) == 1
        products.append([*own, *_products(prompts, shape)])
    assert all(torch.equal(one, other) for one, other in zip(*products, strict=True))


def _products(prompts: prompts_module.Prompts, shape: Shape) -> list[torch.Tensor]:
    """Scores and weighted values of all rows, by the same random queries each time."""
    rows = len(prompts._prompt_of_row) * shape.kv_heads
    queries = torch.randn(rows, shape.repeat, shape.head_dim, generator=torch.Generator().manual_seed(rows))
    scores = prompts.scores(1, queries)
    return [scores, prompts.weighted_values(1, scores.softmax(-1))]


# ---- Checkpoints are read to the bit as transformers reads them, and mostly without it


ZOO = Path(__file__).parents[2] / "resources/zoo"
FOLDERS = sorted(path.parent for path in ZOO.rglob("model.safetensors"))


def check_same(folder: Path, dtype: Any) -> None:
    """Every number that is read equals what transformers reads, to the bit."""
    ours = llama.load(folder, dtype)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    assert ours.shape.max_len == theirs.config.max_position_embeddings
    assert ours.eps == theirs.config.rms_norm_eps
    assert ours.attention_scaling == theirs.model.rotary_emb.attention_scaling
    assert torch.equal(ours.inverse_frequencies, theirs.model.rotary_emb.inv_freq)
    wanted = theirs.state_dict()
    assert ours.tensors.keys() == wanted.keys()
    for name, tensor in ours.tensors.items():
        assert tensor.dtype == wanted[name].dtype == dtype
        assert torch.equal(tensor, wanted[name]), name
    head, embedding = (ours.tensors[name] for name in ("lm_head.weight", "model.embed_tokens.weight"))
    tied = wanted["lm_head.weight"].data_ptr() == wanted["model.embed_tokens.weight"].data_ptr()
    assert (head.data_ptr() == embedding.data_ptr()) == tied


@pytest.mark.parametrize("name", [str(path.relative_to(ZOO)) for path in FOLDERS])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_zoo_is_read_as_transformers_reads_it(name: str, dtype: str) -> None:
    """Protects every text and log-probability of the micro zoo, and the start of its jobs."""
    check_same(ZOO / name, getattr(torch, dtype))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint with weights of its own for the head, as transformers writes it."""
    return save_model(tmp_path / "model")


def test_a_folder_that_transformers_wrote_is_read_as_it_reads_it(folder: Path) -> None:
    """Protects models whose head is not the embedding."""
    check_same(folder, torch.float32)


def test_a_job_on_the_zoo_does_without_transformers() -> None:
    """Protects the start of jobs, in a process of its own."""
    code = (
        "import sys\n"
        "import searchlens.sampling\n"
        "from searchlens.engines.base import Request, Sampling, complete\n"
        "from searchlens.engines.transformers import TransformersEngine\n"
        f"engine = TransformersEngine({str(ZOO / 'micro-1m-base')!r}, device='cpu', max_rows=4, threads=1)\n"
        "((_, done),) = complete(engine, [Request((5, 6), Sampling(), 1, 4, ())])\n"
        "assert len(done.tokens) == 4\n"
        "print([name for name in sys.modules if name.partition('.')[0] == 'transformers'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
