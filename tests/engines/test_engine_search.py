"""The embedded engine under a search: continuations, measures, likely tokens, priorities and the prefix cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from searchlens_lab.equivalence import explicit as oracle

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from searchlens.engines.base import Completion, Request, Sampling  # noqa: E402
from searchlens.engines.transformers import TransformersEngine  # noqa: E402
from searchlens.seeds import generator, uniform  # noqa: E402
from test_engine import checkpoints, engine, narrow, prompts  # noqa: E402
from test_engine_contract import BOS, EOS, PAD, TEMPERATURE, VOCAB, logits_of, reference  # noqa: E402

__all__ = ["checkpoints", "engine", "narrow"]  # fixtures


@pytest.fixture(scope="module")
def model(checkpoints: dict[str, Path]) -> Any:
    return reference(checkpoints["qwen2"])


def finish(engine: TransformersEngine, requests: Sequence[Request]) -> list[Completion]:
    """All completions, without clearing the prefix cache."""
    for i, request in enumerate(requests):
        engine.add(i, request)
    done: dict[int, Completion] = {}
    while len(done) < len(requests):
        done.update(engine.step())
    return [done[i] for i in range(len(requests))]


def same(first: Completion, second: Completion) -> bool:
    """Whether two completions agree to the last bit."""
    names = ("tokens", "logprobs", "sampling_logprobs", "entropies", "certainties", "top_tokens", "top_logprobs")
    return (first.finish, first.reused) == (second.finish, second.reused) and all(
        np.array_equal(getattr(first, name), getattr(second, name)) for name in names
    )


def continuations(sampling: Sequence[Sampling], count: int = 40) -> list[Request]:
    """Prefixes of 0 to 30 random tokens after a few prompts, in random order."""
    rng = np.random.default_rng(1)
    prompt_list = prompts(5)
    return [
        Request(
            prompt_list[int(rng.integers(5))],
            sampling[i % len(sampling)],
            seed=i,
            max_tokens=int(rng.integers(1, 15)),
            stop_ids=(EOS,),
            prefix=tuple(rng.integers(4, VOCAB, int(rng.integers(0, 31))).tolist()),
        )
        for i in range(count)
    ]


def chain(engine: TransformersEngine, chains: int, restarts: int, sampling: Sampling = TEMPERATURE) -> list[Completion]:
    """Chains that restart from a random cut of their text, each as soon as its last continuation is there."""
    prompt_list = prompts(4, 2)
    state: dict[int, tuple[int, ...]] = dict.fromkeys(range(chains), ())
    turn = dict.fromkeys(state, 0)
    done: list[list[Completion]] = [[] for _ in state]

    def ask(i: int) -> None:
        seed = 100 * i + turn[i]
        engine.add(i, Request(prompt_list[i % 4], sampling, seed, 40 - len(state[i]), (EOS,), prefix=state[i]))

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
    return [completion for completions in done for completion in completions]


def test_every_draw_of_a_continuation_can_be_replayed(narrow: TransformersEngine, model: Any) -> None:
    """transformers' logits, a plain filter chain and the uniform of (seed, position in the continuation) give it again.

    Different parameters in one batch, penalties that count the prefix, refills and merged row groups.
    """
    samplings = [
        TEMPERATURE,
        Sampling(0.8, top_p=0.9),
        Sampling(1.2, top_k=8, min_p=0.02),
        Sampling(1.0, typical_p=0.8),
        Sampling(1.0, repetition_penalty=1.3, frequency_penalty=0.4, presence_penalty=0.3),
    ]
    requests = continuations(samplings, 60)
    for request, done in zip(requests, finish(narrow, requests), strict=True):
        tokens = done.tokens.tolist()
        draws = uniform(np.full(len(tokens), request.seed, np.uint64), np.arange(len(tokens)))
        for i, logits in enumerate(logits_of(model, (*request.prompt, *request.prefix), tokens)):
            q = oracle.distribution(logits, request.sampling, request.prompt, (*request.prefix, *tokens[:i]))
            edges = np.concatenate(([0.0], np.cumsum(q)))
            assert edges[tokens[i]] - 1e-5 <= draws[i] <= edges[tokens[i] + 1] + 1e-5
            assert done.sampling_logprobs[i] == pytest.approx(np.log(q[tokens[i]]), abs=2e-4)


def test_continuation_equals_the_uninterrupted_run(narrow: TransformersEngine) -> None:
    """Greedy, from every cut: the rest of the whole run, whose keys and values are cached."""
    narrow.clear()
    wholes = [Request(prompt, Sampling(0.0), 1, 20, ()) for prompt in prompts(4)]
    warm = wholes[0]._replace(prefix=(5, 6))
    done = finish(narrow, [warm, *wholes])[1:]
    cuts = [(i, cut) for i in range(4) for cut in range(20)]
    parts = finish(
        narrow,
        [wholes[i]._replace(prefix=tuple(done[i].tokens[:cut].tolist()), max_tokens=20 - cut) for i, cut in cuts],
    )
    for (i, cut), part in zip(cuts, parts, strict=True):
        assert part.tokens.tolist() == done[i].tokens[cut:].tolist()
        np.testing.assert_allclose(part.logprobs, done[i].logprobs[cut:], atol=1e-4)
        if cut:
            assert part.reused == len(wholes[i].prompt) + cut - 1


def test_reused_counts_what_was_not_computed(engine: TransformersEngine) -> None:
    engine.clear()
    prompt, other = (BOS, 10, 11, 12), (BOS, 13)
    first = Request(prompt, TEMPERATURE, 1, 6, ())
    done = finish(engine, [first, first._replace(seed=2), Request(other, TEMPERATURE, 3, 6, ())])
    assert [completion.reused for completion in done] == [0, 4, 0]
    prefix = tuple(done[0].tokens.tolist())
    finish(engine, [Request(other, TEMPERATURE, 4, 6, ())])
    (cold,) = finish(engine, [first._replace(prefix=prefix)])
    assert cold.reused == 4  # rows that finished before any request had a prefix are not cached
    whole = (*prefix, *cold.tokens.tolist())
    warm = finish(engine, [first._replace(prefix=whole), first._replace(prefix=(*whole[:7], 60, 61, 62))])
    assert [completion.reused for completion in warm] == [4 + 11, 4 + 7]
    engine.clear()
    assert finish(engine, [first])[0].reused == 0


def test_fewer_rows_have_a_smaller_cache(checkpoints: dict[str, Path]) -> None:
    """An engine that is restarted with half the rows, because memory ran out, also needs less for its cache."""
    for rows, reused in ((1, 0), (2, 10)):
        small = TransformersEngine(checkpoints["qwen2"], max_rows=rows, max_model_len=16, threads=1)
        requests = [Request((BOS, *range(first, first + 9)), TEMPERATURE, 1, 2, ()) for first in (10, 20, 10)]
        assert [finish(small, [request])[0].reused for request in requests] == [0, 0, reused]


def test_chains_do_not_depend_on_batch_or_memory(
    engine: TransformersEngine, narrow: TransformersEngine, checkpoints: dict[str, Path]
) -> None:
    """The same tokens in a wide and a narrow batch, and with caches that evict most sequences again."""
    penalised = Sampling(0.9, repetition_penalty=1.2)
    wanted = chain(engine, 16, 4, penalised)
    few = [TransformersEngine(checkpoints["qwen2"], max_rows=rows, max_model_len=60, threads=1) for rows in (1, 2)]
    for other in (narrow, *few):
        for first, second in zip(wanted, chain(other, 16, 4, penalised), strict=True):
            assert first.tokens.tolist() == second.tokens.tolist()


def test_after_clear_nothing_depends_on_earlier_requests(narrow: TransformersEngine) -> None:
    """To the last bit, and with the same tokens reused."""
    narrow.clear()
    wanted = chain(narrow, 12, 4)
    finish(narrow, continuations([TEMPERATURE], 7))
    narrow.clear()
    assert all(same(first, second) for first, second in zip(wanted, chain(narrow, 12, 4), strict=True))


def test_measures_change_no_sample(engine: TransformersEngine) -> None:
    plain = continuations([Sampling(0.7, top_p=0.9)])
    requests = [request._replace(measures=True, top=VOCAB - 1) for request in plain]
    for first, second in zip(finish(engine, plain), finish(engine, requests), strict=True):
        assert first.tokens.tolist() == second.tokens.tolist()
        assert sorted(second.top_tokens[0].tolist()) == [token for token in range(VOCAB) if token != PAD]


def test_shared_prompt_is_computed_once(checkpoints: dict[str, Path]) -> None:
    """Also if different priorities separate the requests of one prompt."""
    prompt_list = prompts(5)
    requests = [Request(prompt_list[i % 5], TEMPERATURE, i, 3, (), priority=i % 3) for i in range(40)]
    engine = TransformersEngine(checkpoints["qwen2"], max_rows=4, threads=1)
    assert [completion.reused for completion in finish(engine, requests)].count(0) == 5
