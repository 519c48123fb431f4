"""The contract of ``searchlens.engines.base``, tested on every installed engine against transformers.

A small model with random weights: entropies are high, and the pad token is by far the most likely one after ``PROMPT``.
Filters are compared with the plain ones of ``searchlens_lab.equivalence.explicit``. No test depends on how an engine
turns a seed into tokens.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from searchlens import catalogue
from searchlens.engines.base import Completion, Engine, Floor, Given, Request, RequestError, Sampling, complete
from searchlens.errors import InputError
from searchlens.search.driver import run, start
from searchlens.search.policy import from_spec
from searchlens.search.task import Task
from searchlens_lab.equivalence import explicit as oracle

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

VOCAB, BOS, EOS, PAD = 70, 1, 2, 3
STEPS = (10, 11, 12)
LENGTH = 128
ROWS = 16
PROMPT = (BOS, 30)
TEMPERATURE = Sampling(1.0)
FILTERS = {
    "temperature": Sampling(0.7),
    "top-k": Sampling(1.0, top_k=8),
    "top-p": Sampling(0.9, top_p=0.8),
    "min-p": Sampling(1.3, min_p=0.1),
    "typical": Sampling(1.1, typical_p=0.7),
    "all filters": Sampling(1.2, top_p=0.95, top_k=12, min_p=0.01, typical_p=0.9),
    "penalties": Sampling(0.8, top_p=0.9, repetition_penalty=1.3, frequency_penalty=0.5, presence_penalty=0.4),
}


def save(folder: Path) -> Path:
    """A checkpoint that every engine can load: head size 32."""
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=LENGTH,
        initializer_range=0.25,
        tie_word_embeddings=False,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
    )
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        hidden = model.model(torch.tensor([PROMPT])).last_hidden_state[0, -1]
        model.lm_head.weight[PAD] = 3 * hidden / hidden.norm()
    model.save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def save_tokenizer(folder: Path) -> None:
    """A tokenizer whose tokens are words."""
    from tokenizers import Tokenizer, models

    words = {"<bos>": BOS, "<eos>": EOS, "<pad>": PAD} | {f"w{i}": i for i in range(VOCAB) if i not in (BOS, EOS, PAD)}
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0")),
        bos_token="<bos>",
        eos_token="<eos>",
        pad_token="<pad>",
        unk_token="w0",  # or transformers adds one
    ).save_pretrained(folder)


def embedded(folder: Path, **more: Any) -> Engine:
    from searchlens.engines.transformers import TransformersEngine

    return TransformersEngine(folder, max_rows=ROWS, threads=1, **more)


def resident(folder: Path) -> Engine:
    """The embedded engine with rows on the device, as on CUDA."""
    from searchlens_lab.resident.engine import ResidentEngine

    return ResidentEngine(folder, max_rows=ROWS, threads=1)


def vllm(folder: Path, **more: Any) -> Engine:
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vllm is not installed")
    from searchlens.engines.vllm import VllmEngine

    settings: dict[str, Any] = {"dtype": "float32", "max_rows": ROWS, "gpu_memory_utilization": 0.3, "threads": 1}
    return VllmEngine(folder, device="cuda" if torch.cuda.is_available() else "cpu", **settings, **more)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("contract"))


def reference(folder: Path) -> Any:
    """transformers itself."""
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return reference(folder)


@pytest.fixture(scope="module", params=[embedded, resident, vllm], ids=lambda make: make.__name__)
def engine(request: pytest.FixtureRequest, folder: Path) -> Iterator[Engine]:
    make: Callable[[Path], Engine] = request.param
    started = make(folder)
    yield started
    started.close()


def finish(engine: Engine, requests: Sequence[Request]) -> list[Completion]:
    """All completions, in the order of the requests."""
    done = dict(complete(engine, requests))
    return [done[i] for i in range(len(requests))]


def next_finished(engine: Engine) -> list[tuple[int, Completion | RequestError]]:
    """Let an engine go on until requests finish: how far one ``step`` goes is the engine's choice."""
    for _ in range(10 * LENGTH):
        if finished := list(engine.step()):
            return finished
    raise AssertionError("no request finishes")


def logits_of(model: Any, context: Sequence[int], tokens: Sequence[int]) -> np.ndarray:
    """Logits of transformers before each of `tokens`, over the tokens that can be drawn."""
    with torch.no_grad():
        logits = model(torch.tensor([[*context, *tokens]])).logits[0, len(context) - 1 : -1].double().numpy()
    logits[:, PAD] = -np.inf
    return logits[:, :VOCAB]


def various(samplings: Sequence[Sampling], count: int) -> list[Request]:
    """Prompts, prefixes and limits of all lengths in random order, so that rows are added, removed and moved."""
    rng = np.random.default_rng(0)
    return [
        Request(
            prompt=(BOS, *rng.integers(4, VOCAB, int(rng.integers(0, 40))).tolist()),
            sampling=samplings[i % len(samplings)],
            seed=i,
            max_tokens=int(rng.integers(1, 30)),
            stop_ids=(EOS, 10),
            prefix=tuple(rng.integers(4, VOCAB, int(rng.integers(0, 40)) * (i % 2)).tolist()),
            measures=i % 3 == 0,
            top=(0, 0, 5, 2)[i % 4],
        )
        for i in range(count)
    ]


def test_every_number_equals_a_forward_pass(engine: Engine, model: Any) -> None:
    """log p, log q after every filter and penalty, measures and likely tokens, whichever requests share the batch."""
    requests = various([TEMPERATURE, Sampling(0.0), *FILTERS.values()], 150)
    at_the_edge = 0
    for request, done in zip(requests, finish(engine, requests), strict=True):
        tokens, context = done.tokens.tolist(), (*request.prompt, *request.prefix)
        logits = logits_of(model, context, tokens)
        log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        at = np.arange(len(tokens))
        np.testing.assert_allclose(done.logprobs, log_p[at, tokens], atol=1e-4)
        q = np.array(
            [
                oracle.distribution(row, request.sampling, request.prompt, (*request.prefix, *tokens[:i]))
                for i, row in enumerate(logits)
            ]
        )
        off = np.abs(done.sampling_logprobs - np.log(q[at, tokens])) > 2e-4
        if engine.device == "cuda" and request.sampling.top_p < 1:
            at_the_edge += int(off.sum())
        else:
            assert not off.any()
        if request.measures:
            real = np.delete(log_p, PAD, 1)
            np.testing.assert_allclose(done.entropies, -(np.exp(real) * real).sum(1), atol=1e-4)
            np.testing.assert_allclose(done.certainties, -np.log(VOCAB - 1) - real.mean(1), atol=1e-4)
        else:
            assert (done.entropies, done.certainties) == (None, None)
        if request.top:
            likely = np.argsort(-log_p, 1)[:, : request.top]
            assert done.top_tokens.tolist() == likely.tolist()
            np.testing.assert_allclose(done.top_logprobs, np.take_along_axis(log_p, likely, 1), atol=1e-4)
        else:
            assert (done.top_tokens, done.top_logprobs) == (None, None)
    assert at_the_edge <= 4, "vLLM's search for the edge of top-p, which ends after 18 rounds, may miss it by a token"


def test_types_and_lengths(engine: Engine) -> None:
    (done,) = finish(engine, [Request(PROMPT, TEMPERATURE, 1, 7, (), measures=True, top=3)])
    assert (done.tokens.dtype, done.tokens.shape) == (np.int32, (7,))
    for values in (done.logprobs, done.sampling_logprobs, done.entropies, done.certainties):
        assert (values.dtype, values.shape) == (np.float32, (7,))
    assert (done.top_tokens.dtype, done.top_logprobs.dtype) == (np.int32, np.float32)
    assert done.top_tokens.shape == done.top_logprobs.shape == (7, 3)


@pytest.mark.parametrize("name", FILTERS)
def test_first_token_follows_q(engine: Engine, model: Any, name: str) -> None:
    """Support and frequencies of the first token over many seeds; penalties see a prefix as generated."""
    sampling, prefix = FILTERS[name], (30, 41, 41, 7)
    q = oracle.distribution(logits_of(model, (*PROMPT, *prefix), (0,))[0], sampling, PROMPT, prefix)
    done = finish(engine, [Request(PROMPT, sampling, seed, 1, (), prefix=prefix) for seed in range(800)])
    counts = np.bincount([int(completion.tokens[0]) for completion in done], minlength=VOCAB)
    assert not counts[q == 0].any()
    common = q * len(done) >= 5
    assert common.sum() > 2, "the test would see nothing"
    observed = [*counts[common], counts[~common].sum()]
    expected = [*(q[common] * len(done)), q[~common].sum() * len(done)]
    if expected[-1] < 1:
        observed, expected = observed[:-1], [count * sum(observed[:-1]) / sum(expected[:-1]) for count in expected[:-1]]
    assert stats.chisquare(observed, expected).pvalue > 1e-3


def test_seed_decides_alone_and_in_a_batch(engine: Engine) -> None:
    """The same tokens alone, in any order and with any other requests."""
    requests = various([TEMPERATURE, FILTERS["top-p"], FILTERS["typical"], FILTERS["penalties"]], 60)
    together = [completion.tokens.tolist() for completion in finish(engine, requests)]
    order = np.random.default_rng(1).permutation(len(requests))
    shuffled = [completion.tokens.tolist() for completion in finish(engine, [requests[i] for i in order])]
    assert shuffled == [together[i] for i in order]
    for i in range(0, len(requests), 9):
        assert finish(engine, [requests[i]])[0].tokens.tolist() == together[i]


def test_different_seeds_give_different_samples(engine: Engine) -> None:
    """Over a thousand neighbouring and 63-bit seeds, at an entropy that leaves no chance to coincide."""
    seeds = [*range(500), *(2**63 - 1 - i for i in range(500))]
    done = finish(engine, [Request(PROMPT, TEMPERATURE, seed, 20, ()) for seed in seeds])
    assert len({tuple(completion.tokens.tolist()) for completion in done}) == 1000


def test_greedy_is_the_arg_max(engine: Engine, model: Any) -> None:
    """After penalties, too; filters have no effect, and log q is 0."""
    samplings = [Sampling(0.0), Sampling(0.0, top_p=0.1, typical_p=0.1), replace(FILTERS["penalties"], temperature=0.0)]
    requests = [request._replace(top=0) for request in various(samplings, 40)]
    for request, done in zip(requests, finish(engine, requests), strict=True):
        tokens = done.tokens.tolist()
        for i, logits in enumerate(logits_of(model, (*request.prompt, *request.prefix), tokens)):
            scores = oracle.penalised(logits, request.sampling, request.prompt, (*request.prefix, *tokens[:i]))
            assert scores[tokens[i]] >= scores.max() - 1e-4
        assert not done.sampling_logprobs.any()


def test_pad_is_never_drawn(engine: Engine, model: Any) -> None:
    """Not even if it is by far the most likely token, by no policy; and it is not among the likely tokens."""
    with torch.no_grad():
        probabilities = model(torch.tensor([PROMPT])).logits[0, -1].softmax(-1)
    assert probabilities[PAD] > 0.9
    samplings = (Sampling(0.0), TEMPERATURE, *FILTERS.values())
    done = finish(
        engine, [Request(PROMPT, sampling, seed, 4, (), top=VOCAB - 1) for sampling in samplings for seed in range(9)]
    )
    assert all(PAD not in completion.tokens for completion in done)
    assert all(completion.top_tokens is not None and PAD not in completion.top_tokens for completion in done)


def test_stop_and_length(engine: Engine) -> None:
    """A stop token ends a sample and is its last; nothing else does before the limit, EOS included."""
    done = finish(engine, [Request(PROMPT, TEMPERATURE, seed, 12, STEPS) for seed in range(200)])
    assert {completion.finish for completion in done} == {"stop", "length"}
    for completion in done:
        stops = np.isin(completion.tokens, STEPS)
        assert not stops[:-1].any()
        assert stops[-1] == (completion.finish == "stop")
        assert completion.finish == "stop" or len(completion.tokens) == 12
    assert any(EOS in completion.tokens[:-1] for completion in done)


def test_all_of_the_room_can_be_used(engine: Engine) -> None:
    """Prompt, prefix and completion fill the model's length to the last token."""
    request = Request((BOS, *[20] * 59), TEMPERATURE, 3, 8, (), prefix=(30,) * 60)
    assert engine.max_model_len == LENGTH
    (done,) = finish(engine, [request])
    assert (len(done.tokens), done.finish) == (8, "length")


@pytest.mark.parametrize("has_length", [True, False])
def test_a_floor_ends_a_continuation_where_its_weight_reaches_it(engine: Engine, has_length: bool) -> None:
    """At the first token that does, unless the text ends there by itself; the tokens are those drawn without it.

    vLLM's worker knows it when the next token is drawn, and with asynchronous scheduling one more is on its way.
    """
    late = 2 if type(engine).__name__ == "VllmEngine" else 0
    plain = various([Sampling(0.5), Sampling(0.9, top_p=0.8)], 60)
    starts = [len(request.prefix) if has_length else None for request in plain]
    floors = [Floor(3.0, -4.0 - i % 7, start) for i, start in enumerate(starts)]
    floors[1] = Floor(3.0, -np.inf, starts[1])
    bounded = [request._replace(floor=floor) for request, floor in zip(plain, floors, strict=True)]
    ends = dict.fromkeys(("stop", "length", "rejected"), 0)
    wholes, earlies = finish(engine, plain), finish(engine, bounded)
    if getattr(engine, "_resident", None):  # rows that stay on the device are drawn to their end
        assert [early.tokens.tolist() for early in earlies] == [whole.tokens.tolist() for whole in wholes]
        return
    for request, whole, early, floor in zip(plain, wholes, earlies, floors, strict=True):
        n = len(early.tokens)
        assert early.tokens.tolist() == whole.tokens[:n].tolist()
        np.testing.assert_allclose(early.logprobs, whole.logprobs[:n], atol=1e-4)
        level = np.cumsum(3.0 * whole.logprobs.astype(np.float64) - whole.sampling_logprobs)
        if floor.start is not None:
            level -= np.log(floor.start + np.arange(1, len(level) + 1))
        low = np.flatnonzero(level <= floor.bound)
        goes_on = late and request.top  # vLLM could not return the most likely tokens of what it drops
        end = len(level) if goes_on or not low.size else low[0] + 1
        assert end <= n <= min(end + late, len(level))
        assert early.finish == "rejected" if n < len(level) else early.finish == whole.finish or late
        for name in ("entropies", "top_tokens"):
            assert (getattr(early, name) is None) == (getattr(whole, name) is None)
        ends[early.finish] += 1
    assert min(ends.values()) > 1


def test_requests_added_while_running(engine: Engine) -> None:
    """Late requests get the same tokens as early ones; step returns nothing when no request is left."""
    requests = various([TEMPERATURE, FILTERS["penalties"]], 50)
    wanted = [completion.tokens.tolist() for completion in finish(engine, requests)]
    done: dict[int, Any] = {}
    for i, request in enumerate(requests):
        engine.add(i, request)
        if i % 5 == 4:
            done.update(engine.step())
    while len(done) < len(requests):
        done.update(engine.step())
    assert list(engine.step()) == []
    assert [done[i].tokens.tolist() for i in range(len(requests))] == wanted


def test_lower_priority_numbers_go_first(engine: Engine) -> None:
    """Late but urgent requests overtake all that are still waiting."""
    late = [Request((BOS, 4 + i), TEMPERATURE, i, 5, (), priority=2) for i in range(40)]
    urgent = [Request((BOS, 50, 4 + i), TEMPERATURE, i, 5, (), priority=1) for i in range(ROWS)]
    engine.clear()
    order = [number for number, _ in complete(engine, [*late, *urgent])]
    assert set(order[:ROWS]) == set(range(40, 40 + ROWS))


def test_steps_count_draws(engine: Engine) -> None:
    before = engine.steps
    finish(engine, [Request((BOS, 4), TEMPERATURE, seed, 10, ()) for seed in range(ROWS)])
    assert 9 <= engine.steps - before <= 12


def test_cached_prompts_are_not_computed_again(engine: Engine) -> None:
    """Until the engine is cleared, which is refused while it has requests."""
    request = Request((BOS, *range(4, 70)), TEMPERATURE, 0, 2, ())
    (first,) = finish(engine, [request])
    engine.add(0, request)
    with pytest.raises(RuntimeError, match="not idle"):
        engine.clear()
    ((_, again),) = next_finished(engine)
    assert first.reused == 0
    assert 32 <= again.reused <= len(request.prompt)
    assert finish(engine, [request])[0].reused == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt": ()}, "Request 17: the prompt is empty"),
        ({"max_tokens": 0}, "max_tokens is 0, it must be at least 1"),
        ({"max_tokens": 127}, "2 prompt tokens and max_tokens 127 need 129 tokens, the limit is 128"),
        ({"prefix": (5,) * 100, "max_tokens": 27}, "100 prefix tokens and max_tokens 27 need 129 tokens"),
        ({"prompt": (BOS, VOCAB)}, f"the prompt has token id {VOCAB}, but ids go from 0 to {VOCAB - 1}"),
        ({"prompt": (BOS, -1)}, "the prompt has token id -1"),
        ({"prefix": (5, VOCAB)}, f"the prefix has token id {VOCAB}"),
        ({"top": VOCAB}, f"top is {VOCAB}; allowed is 0 to {VOCAB - 1}"),
        ({"top": -1}, "top is -1"),
    ],
)
def test_bad_request(engine: Engine, change: dict[str, Any], message: str) -> None:
    """Refused by ``add`` with the same message on every engine, and the engine stays usable."""
    with pytest.raises(InputError, match=message):
        engine.add(17, Request(PROMPT, TEMPERATURE, 0, 5, ())._replace(**change))
    assert list(engine.step()) == []
    engine.clear()  # refused while a request waits


@pytest.mark.parametrize("controller", catalogue.declared("controller"))
def test_weights_that_are_not_numbers_are_named(controller: str, folder: Path, tmp_path: Path) -> None:
    """One weight of NaN ends the run with the first token of any search; no text of token 0 comes out of it."""
    engine = embedded(broken(folder, tmp_path / "broken"))
    task = Task((BOS, 20), seed=1, max_tokens=24, stop_ids=(EOS,), step_ids=STEPS, decode=str, answer=tuple)
    with pytest.raises(InputError, match="look for NaN in the model's logits"):
        list(run([(0, start(task, from_spec("a search", {"controller": controller})))], engine))
    engine.close()


def test_vllm_does_not_start_with_weights_that_are_not_numbers(folder: Path, tmp_path: Path) -> None:
    """The tokens that it draws when it starts find them, before any search."""
    with pytest.raises(RuntimeError, match="look for NaN in the model's logits"):
        vllm(broken(folder, tmp_path / "broken"))


def broken(folder: Path, target: Path) -> Path:
    """A copy of a checkpoint with one weight of NaN."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[0, 0] = torch.nan
    shutil.copytree(folder, target)
    model.save_pretrained(target)
    return target


def given_texts(count: int) -> list[Given]:
    """Texts of all lengths in random order: one token, one that fills the model's length, few and many prompts."""
    rng = np.random.default_rng(2)
    prompts = [(BOS, *rng.integers(4, VOCAB, int(rng.integers(0, 60))).tolist()) for _ in range(count // 3)]
    texts = [
        Given(
            prompts[int(rng.integers(len(prompts)))], tuple(rng.integers(4, VOCAB, int(rng.integers(1, 60))).tolist())
        )
        for _ in range(count)
    ]
    return [*texts, Given(PROMPT, (EOS,)), Given((BOS, 20), (40,) * (LENGTH - 2)), Given((BOS, *[9] * 126), (40,))]


def log_p_of(model: Any, text: Given) -> np.ndarray:
    """log p of every token by one forward pass of transformers."""
    logits = logits_of(model, text.prompt, text.tokens)
    return np.asarray(logits[np.arange(len(text.tokens)), text.tokens] - np.log(np.exp(logits).sum(1)))


def test_given_texts_are_scored_as_by_a_forward_pass(engine: Engine, model: Any) -> None:
    """log p of the raw distribution, float32: within 1e-4 of transformers, first and last token included."""
    texts = given_texts(60)
    for text, scored in zip(texts, engine.score(texts), strict=True):
        assert (scored.logprobs.dtype, scored.logprobs.shape) == (np.float32, (len(text.tokens),))
        np.testing.assert_allclose(scored.logprobs, log_p_of(model, text), atol=1e-4)
        np.testing.assert_array_equal(scored.logprobs, scored.sampling_logprobs)
    assert engine.score([]) == []


def test_ranks_of_given_tokens(engine: Engine, model: Any) -> None:
    """1 is the most likely token."""
    texts = given_texts(10)
    for text, scored in zip(texts, engine.score(texts), strict=True):
        logits = logits_of(model, text.prompt, text.tokens)
        ranks = (logits > logits[np.arange(len(logits)), list(text.tokens)][:, None]).sum(1) + 1
        assert scored.ranks.tolist() == ranks.tolist()


@pytest.mark.parametrize("name", [name for name in FILTERS if name != "penalties"])
def test_texts_are_scored_under_a_policy(engine: Engine, model: Any, name: str) -> None:
    """Log q of each token, -inf where a filter drops it."""
    texts, sampling = given_texts(20), FILTERS[name]
    for text, scored in zip(texts, engine.score(texts, sampling), strict=True):
        logits = logits_of(model, text.prompt, text.tokens)
        q = [oracle.distribution(row, sampling)[token] for row, token in zip(logits, text.tokens, strict=True)]
        with np.errstate(divide="ignore"):
            np.testing.assert_allclose(scored.sampling_logprobs, np.log(q), atol=2e-4)
        np.testing.assert_allclose(scored.logprobs, log_p_of(model, text), atol=1e-4)


@pytest.mark.parametrize("sampling", [Sampling(0.0), FILTERS["penalties"]])
def test_policies_whose_log_q_needs_more_than_p(engine: Engine, sampling: Sampling) -> None:
    with pytest.raises(InputError, match="greedy policy, or one with penalties"):
        engine.score([Given(PROMPT, (5,))], sampling)


def check_bfloat16(engine: Engine, folder: Path) -> None:
    """Scores of a bfloat16 engine, against a float32 forward pass with weights of the same values.

    They are as far from it as the bfloat16 forward pass of transformers is (for this model 0.05 in the root mean
    square, 0.4 at most), and not off to one side.
    """
    half = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    exact = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).float().eval()
    texts = given_texts(60)
    wanted = np.concatenate([log_p_of(exact, text) for text in texts])
    theirs = np.concatenate([log_p_of(half, text) for text in texts]) - wanted
    ours = np.concatenate([scored.logprobs for scored in engine.score(texts)]) - wanted
    assert np.sqrt((ours**2).mean()) < 1.5 * np.sqrt((theirs**2).mean())
    assert np.abs(ours).max() < 0.6
    assert abs(ours.mean()) < 0.005


def test_embedded_scores_in_bfloat16(folder: Path) -> None:
    from searchlens.engines.transformers import TransformersEngine

    engine = TransformersEngine(folder, dtype="bfloat16", threads=1)
    check_bfloat16(engine, folder)
    engine.close()


def test_a_score_does_not_depend_on_the_other_texts(engine: Engine) -> None:
    """Alone, in another order, and with a prompt that is cached: the same up to the last digits."""
    texts = given_texts(40)
    engine.clear()
    together = engine.score(texts)
    order = np.random.default_rng(1).permutation(len(texts)).tolist()
    for i, scored in zip(order, engine.score([texts[i] for i in order]), strict=True):
        np.testing.assert_allclose(scored.logprobs, together[i].logprobs, atol=2e-5)
    for i in range(0, len(texts), 9):
        engine.clear()
        np.testing.assert_allclose(engine.score([texts[i]])[0].logprobs, together[i].logprobs, atol=2e-5)


def test_pad_has_no_probability_in_a_given_text(engine: Engine, model: Any) -> None:
    """As for drawn tokens: it is left out of the distribution, also where it is the last token."""
    for tokens in ((PAD,), (30, PAD, 31), (30, 31, PAD)):
        text = Given(PROMPT, tokens)
        (scored,) = engine.score([text])
        assert np.isneginf(scored.logprobs).tolist() == [token == PAD for token in tokens]
        np.testing.assert_allclose(scored.logprobs, log_p_of(model, text), atol=1e-4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (Given((), (5,)), "Text 1: the prompt is empty"),
        (Given(PROMPT, ()), "Text 1: it has no tokens after its prompt"),
        (Given(PROMPT, (5,) * 127), "2 prompt tokens and 127 given tokens need 129 tokens, the limit is 128"),
        (Given(PROMPT, (5, VOCAB)), f"Text 1: the text has token id {VOCAB}, but ids go from 0 to {VOCAB - 1}"),
        (Given((BOS, -1), (5,)), "Text 1: the prompt has token id -1"),
    ],
)
def test_text_that_cannot_be_scored(engine: Engine, text: Given, message: str) -> None:
    """Refused with the same message on every engine before anything is computed, and the engine stays usable."""
    with pytest.raises(InputError, match=message):
        engine.score([Given(PROMPT, (5,)), text])
    assert len(engine.score([Given(PROMPT, (5, 6))])[0].ranks) == 2


def test_texts_are_scored_only_while_the_engine_is_idle(engine: Engine) -> None:
    engine.add(0, Request(PROMPT, TEMPERATURE, 0, 2, ()))
    with pytest.raises(RuntimeError, match="not idle: texts can be scored"):
        engine.score([Given(PROMPT, (5,))])
    assert len(next_finished(engine)) == 1
