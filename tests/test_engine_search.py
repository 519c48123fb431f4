"""What a search asks of the embedded engine: continuations, measures, likely tokens, priorities, and what is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from searchlens.equivalence import filters as oracle

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from searchlens.engines import transformers as engine_module  # noqa: E402
from searchlens.engines.base import Completion, Request, Sampling, complete  # noqa: E402
from searchlens.engines.transformers import TransformersEngine  # noqa: E402
from searchlens.seeds import generator, uniform  # noqa: E402
from test_engine import BOS, EOS, FAMILIES, PAD, TEMPERATURE, VOCAB, logits_of, prompts, reference, save  # noqa: E402


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("search")
    return {name: save(root / name, FAMILIES[name]) for name in ("qwen2", "qwen3")}


@pytest.fixture(scope="module")
def model(folders: dict[str, Path]) -> Any:
    return reference(folders["qwen2"])


@pytest.fixture(scope="module")
def engine(folders: dict[str, Path]) -> TransformersEngine:
    return TransformersEngine(folders["qwen2"], max_rows=64, threads=1)


@pytest.fixture(scope="module")
def narrow(folders: dict[str, Path]) -> TransformersEngine:
    """Many refills; rows of very different length share the batch."""
    return TransformersEngine(folders["qwen2"], max_rows=6, threads=1)


def finish(engine: TransformersEngine, requests: Sequence[Request]) -> list[Completion]:
    """All completions, without forgetting what came before."""
    for i, request in enumerate(requests):
        engine.add(i, request)
    done: dict[int, Completion] = {}
    while len(done) < len(requests):
        done.update(engine.step())
    return [done[i] for i in range(len(requests))]


def same(one: Completion, other: Completion) -> bool:
    """Whether two completions agree to the last bit."""
    names = ("tokens", "logprobs", "sampling_logprobs", "entropies", "certainties", "top_tokens", "top_logprobs")
    return (one.finish, one.reused) == (other.finish, other.reused) and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in names
    )


def continuations(sampling: Sequence[Sampling], count: int = 40) -> list[Request]:
    """Prefixes of no to thirty tokens behind a few prompts, in no order; not what the model would say."""
    rng = np.random.default_rng(1)
    asked = prompts(5)
    return [
        Request(
            asked[int(rng.integers(5))],
            sampling[i % len(sampling)],
            seed=i,
            max_tokens=int(rng.integers(1, 15)),
            stop_ids=(EOS,),
            prefix=tuple(rng.integers(4, VOCAB, int(rng.integers(0, 31))).tolist()),
        )
        for i in range(count)
    ]


def chain(engine: TransformersEngine, chains: int, restarts: int, sampling: Sampling = TEMPERATURE) -> list[Completion]:
    """Chains that restart from a cut of what they have, each as soon as it can."""
    asked = prompts(4, 2)
    state: dict[int, tuple[int, ...]] = dict.fromkeys(range(chains), ())
    turn = dict.fromkeys(state, 0)
    done: list[list[Completion]] = [[] for _ in state]

    def ask(i: int) -> None:
        seed = 100 * i + turn[i]
        engine.add(i, Request(asked[i % 4], sampling, seed, 40 - len(state[i]), (EOS,), prefix=state[i]))

    for i in state:
        ask(i)
    while min(map(len, done)) < restarts:
        for i, completion in engine.step():
            done[i].append(completion)
            whole = (*state[i], *completion.tokens.tolist())
            turn[i] += 1
            if turn[i] < restarts:
                state[i] = whole[: int(generator("cut", i, turn[i]).integers(min(len(whole), 39)))]
                ask(i)
    return [completion for one in done for completion in one]


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_continuation_equals_transformers(family: str, folders: dict[str, Path]) -> None:
    """Log-probabilities behind prefixes of all lengths are those of the whole text."""
    own, engine = reference(folders[family]), TransformersEngine(folders[family], max_rows=8, threads=1)
    requests = continuations([TEMPERATURE])
    for request, done in zip(requests, finish(engine, requests), strict=True):
        tokens = done.tokens.tolist()
        logits = logits_of(own, (*request.prompt, *request.prefix), tokens)
        wanted = logits[np.arange(len(tokens)), tokens] - np.log(np.exp(logits).sum(1))
        np.testing.assert_allclose(done.logprobs, wanted, atol=1e-4)


def test_every_draw_of_a_continuation_can_be_replayed(narrow: TransformersEngine, model: Any) -> None:
    """The uniform of (seed, place in the continuation), and penalties that count the prefix as generated."""
    samplings = [
        TEMPERATURE,
        Sampling(0.8, top_p=0.9),
        Sampling(1.0, repetition_penalty=1.3, frequency_penalty=0.4, presence_penalty=0.3),
    ]
    requests = continuations(samplings)
    for request, done in zip(requests, finish(narrow, requests), strict=True):
        tokens = done.tokens.tolist()
        draws = uniform(np.full(len(tokens), request.seed, np.uint64), np.arange(len(tokens)))
        for i, logits in enumerate(logits_of(model, (*request.prompt, *request.prefix), tokens)):
            q = oracle.distribution(logits, request.sampling, request.prompt, (*request.prefix, *tokens[:i]))
            edges = np.concatenate(([0.0], np.cumsum(q)))
            assert edges[tokens[i]] - 1e-5 <= draws[i] <= edges[tokens[i] + 1] + 1e-5
            assert done.sampling_logprobs[i] == pytest.approx(np.log(q[tokens[i]]), abs=2e-4)


@pytest.mark.parametrize("kept", [True, False])
def test_continuation_equals_the_uninterrupted_run(narrow: TransformersEngine, kept: bool) -> None:
    """Greedy, from every cut: what the whole run said from there on, whether its keys and values were kept or not."""
    narrow.clear()
    wholes = [Request(prompt, Sampling(0.0), 1, 20, ()) for prompt in prompts(4)]
    warm = replace(wholes[0], prefix=(5, 6))
    done = finish(narrow, [warm, *wholes])[1:]
    if not kept:
        narrow.clear()
    cuts = [(i, cut) for i in range(4) for cut in range(20)]
    parts = finish(
        narrow,
        [replace(wholes[i], prefix=tuple(done[i].tokens[:cut].tolist()), max_tokens=20 - cut) for i, cut in cuts],
    )
    for (i, cut), part in zip(cuts, parts, strict=True):
        assert part.tokens.tolist() == done[i].tokens[cut:].tolist()
        np.testing.assert_allclose(part.logprobs, done[i].logprobs[cut:], atol=1e-4)
        if kept and cut:
            assert part.reused == len(wholes[i].prompt) + cut - 1


def test_reused_counts_what_was_not_computed(engine: TransformersEngine) -> None:
    engine.clear()
    prompt, other = (BOS, 10, 11, 12), (BOS, 13)
    first = Request(prompt, TEMPERATURE, 1, 6, ())
    done = finish(engine, [first, replace(first, seed=2), Request(other, TEMPERATURE, 3, 6, ())])
    assert [one.reused for one in done] == [0, 4, 0]
    prefix = tuple(done[0].tokens.tolist())
    finish(engine, [Request(other, TEMPERATURE, 4, 6, ())])
    (cold,) = finish(engine, [replace(first, prefix=prefix)])
    assert cold.reused == 4  # rows that left before anything was continued are not kept
    whole = (*prefix, *cold.tokens.tolist())
    warm = finish(engine, [replace(first, prefix=whole), replace(first, prefix=(*whole[:7], 60, 61, 62))])
    assert [one.reused for one in warm] == [4 + 11, 4 + 7]
    engine.clear()
    assert finish(engine, [first])[0].reused == 0


def test_fewer_rows_keep_less(folders: dict[str, Path]) -> None:
    """Half the rows after memory ran out must also need less of it between requests."""
    for rows, reused in ((1, 0), (2, 10)):
        small = TransformersEngine(folders["qwen2"], max_rows=rows, max_model_len=16, threads=1)
        asked = [Request((BOS, *range(first, first + 9)), TEMPERATURE, 1, 2, ()) for first in (10, 20, 10)]
        assert [finish(small, [request])[0].reused for request in asked] == [0, 0, reused]


def test_chains_do_not_depend_on_batch_or_memory(
    engine: TransformersEngine, narrow: TransformersEngine, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wide and a narrow batch, nothing kept, so little kept that most is dropped again: the same tokens."""
    penalised = Sampling(0.9, repetition_penalty=1.2)
    wanted = chain(engine, 16, 4, penalised)
    for capacity in (0, 100):
        per_token = 2 * 2 * 2 * 8 * 4  # layers, keys and values, heads, size, bytes
        monkeypatch.setattr(engine_module, "_CPU_CACHE", capacity * per_token)
        small = TransformersEngine(folders["qwen2"], max_rows=10, threads=1)
        for one, other in zip(wanted, chain(small, 16, 4, penalised), strict=True):
            assert one.tokens.tolist() == other.tokens.tolist()
    for one, other in zip(wanted, chain(narrow, 16, 4, penalised), strict=True):
        assert one.tokens.tolist() == other.tokens.tolist()


def test_after_clear_nothing_depends_on_what_was_before(narrow: TransformersEngine) -> None:
    """To the last bit, what was reused included."""
    narrow.clear()
    wanted = chain(narrow, 12, 4)
    finish(narrow, continuations([TEMPERATURE], 7))
    narrow.clear()
    assert all(same(one, other) for one, other in zip(wanted, chain(narrow, 12, 4), strict=True))


def test_clearing_is_refused_while_there_is_work(engine: TransformersEngine) -> None:
    engine.add(0, Request((BOS,), TEMPERATURE, 0, 3, ()))
    with pytest.raises(RuntimeError, match="not idle"):
        engine.clear()
    engine.step()
    engine.clear()


def test_measures_and_likely_tokens(narrow: TransformersEngine, model: Any) -> None:
    """Of the raw distribution, whatever the sampling; None for those who did not ask, in the same batch."""
    requests = [
        replace(one, measures=i % 2 == 0, top=(0, 3, 7)[i % 3])
        for i, one in enumerate(continuations([Sampling(0.6, top_k=5), Sampling(1.0, repetition_penalty=1.5)]))
    ]
    for request, done in zip(requests, finish(narrow, requests), strict=True):
        logits = logits_of(model, (*request.prompt, *request.prefix), done.tokens.tolist())
        log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        likely = np.argsort(-log_p, 1)[:, : request.top]
        if request.measures:
            real = np.delete(log_p, PAD, 1)
            np.testing.assert_allclose(done.entropies, -(np.exp(real) * real).sum(1), atol=1e-4)
            np.testing.assert_allclose(done.certainties, -np.log(VOCAB - 1) - real.mean(1), atol=1e-4)
        else:
            assert (done.entropies, done.certainties) == (None, None)
        if request.top:
            assert done.top_tokens is not None
            assert done.top_tokens.dtype == np.int32
            assert done.top_tokens.tolist() == likely.tolist()
            np.testing.assert_allclose(done.top_logprobs, np.take_along_axis(log_p, likely, 1), atol=1e-4)
        else:
            assert (done.top_tokens, done.top_logprobs) == (None, None)


def test_measures_change_no_sample(engine: TransformersEngine) -> None:
    plain = continuations([Sampling(0.7, top_p=0.9)])
    asked = [replace(one, measures=True, top=VOCAB - 1) for one in plain]
    for one, other in zip(finish(engine, plain), finish(engine, asked), strict=True):
        assert one.tokens.tolist() == other.tokens.tolist()
        assert other.top_tokens is not None
        assert sorted(other.top_tokens[0].tolist()) == [token for token in range(VOCAB) if token != PAD]


def order_of(folder: Path, requests: Sequence[Request]) -> list[int]:
    """Which request is served first, second, ... by an engine that serves one at a time."""
    return [number for number, _ in complete(TransformersEngine(folder, max_rows=1, threads=1), requests)]


def test_lower_priority_numbers_go_first(folders: dict[str, Path]) -> None:
    """Equal ones in the order of arrival, but those of one prompt together, at the place of the first."""
    asked = [(BOS, 5), (BOS, 6), (BOS, 5), (BOS, 7), (BOS, 6), (BOS, 5)]
    base = Request((BOS,), TEMPERATURE, 0, 2, ())
    assert order_of(folders["qwen2"], [replace(base, prompt=one) for one in asked]) == [0, 2, 5, 1, 4, 3]
    urgent = [replace(base, prompt=one, priority=p) for one, p in zip(asked, (5, 5, -1, 5, 0, 5), strict=True)]
    assert order_of(folders["qwen2"], urgent) == [2, 4, 0, 5, 1, 3]


def test_shared_prompt_is_computed_once_wherever_it_stands(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Different priorities pull requests of one prompt apart; one prefill serves them all."""
    seen: list[tuple[int, ...]] = []
    prefill = engine_module.prefill

    def counting(model: Any, asked: Sequence[tuple[int, ...]]) -> Any:
        seen.extend(asked)
        return prefill(model, asked)

    monkeypatch.setattr(engine_module, "prefill", counting)
    asked = prompts(5)
    requests = [Request(asked[i % 5], TEMPERATURE, i, 3, (), priority=i % 3) for i in range(40)]
    engine = TransformersEngine(folders["qwen2"], max_rows=4, threads=1)
    assert len(finish(engine, requests)) == 40
    assert sorted(seen) == sorted(asked)
