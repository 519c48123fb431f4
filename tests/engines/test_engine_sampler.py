"""The chain of filters against a plain one in NumPy, row by row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from searchlens_lab.equivalence import explicit as oracle

torch = pytest.importorskip("torch")

from searchlens.engines import sampler  # noqa: E402
from searchlens.engines.base import Sampling  # noqa: E402

VOCAB = 100
CHAINS = {
    "plain": Sampling(1.0),
    "hot": Sampling(1.7),
    "greedy": Sampling(0.0),
    "greedy ignores filters": Sampling(0.0, top_k=3, min_p=0.5),
    "top-p": Sampling(1.0, top_p=0.8),
    "narrow top-p": Sampling(1.0, top_p=0.01),
    "top-p after temperature": Sampling(0.6, top_p=0.9),
    "top-k": Sampling(1.0, top_k=7),
    "top-k one": Sampling(1.3, top_k=1),
    "top-k beyond all": Sampling(1.0, top_k=10 * VOCAB),
    "min-p": Sampling(0.9, min_p=0.1),
    "typical": Sampling(1.0, typical_p=0.5),
    "typical before top-k": Sampling(1.0, typical_p=0.7, top_k=4),
    "top-k before top-p": Sampling(1.0, top_k=10, top_p=0.7),
    "min-p before top-p": Sampling(1.5, min_p=0.05, top_p=0.6),
    "all filters": Sampling(0.8, top_p=0.9, top_k=20, min_p=0.01, typical_p=0.9),
    "repetition": Sampling(1.0, repetition_penalty=1.3),
    "reward for repetition": Sampling(1.0, repetition_penalty=0.7),
    "frequency": Sampling(1.0, frequency_penalty=0.8),
    "presence": Sampling(1.0, presence_penalty=-1.5),
    "greedy with penalties": Sampling(0.0, repetition_penalty=1.5, frequency_penalty=0.5),
    "everything": Sampling(0.8, 0.9, 20, 0.01, 0.9, 1.2, 0.3, 0.4),
}
PROMPT = (1, 5, 5, 9)
GENERATED = (2, 2, 2, 9, 40)


def logits_of(rows: int, scale: float = 2.0) -> np.ndarray:
    """Some rows flat, some peaked, as a model gives them."""
    rng = np.random.default_rng(0)
    return (rng.normal(size=(rows, VOCAB)) * scale * np.linspace(0.2, 3, rows)[:, None]).astype(np.float32)


def draw(logits: np.ndarray, samplings: Sequence[Sampling], uniforms: np.ndarray) -> sampler.Draw:
    """All rows in one batch, with the same history."""
    rows, width = len(samplings), sampler.padded_vocab(VOCAB)
    padded = torch.full((rows, width), -torch.inf)
    padded[:, :VOCAB] = torch.from_numpy(logits)
    batch = sampler.prepare(
        sampler.parameters(samplings),
        [PROMPT] * rows,
        np.tile(np.array([*GENERATED, 50, 60], np.int32), (rows, 1)),
        np.full(rows, len(GENERATED)),
        width,
        torch.device("cpu"),
    )
    return sampler.draw(padded, batch, torch.from_numpy(uniforms))


def expected(logits: np.ndarray, sampling: Sampling) -> np.ndarray:
    return oracle.distribution(logits.astype(np.float64), sampling, PROMPT, GENERATED)


@pytest.mark.parametrize("name", CHAINS)
def test_chain(name: str) -> None:
    """Token, raw and sampling log-probability; every filter alone and together."""
    rows = 60
    logits, uniforms = logits_of(rows), np.random.default_rng(1).random(rows)
    drawn = draw(logits, [CHAINS[name]] * rows, uniforms)
    for row in range(rows):
        q = expected(logits[row], CHAINS[name])
        token = int(drawn.tokens[row])
        assert token == oracle.inverse_cdf(q, uniforms[row])
        raw = logits[row].astype(np.float64)
        assert float(drawn.logprobs[row]) == pytest.approx(raw[token] - np.log(np.exp(raw).sum()), abs=2e-6)
        assert float(drawn.sampling_logprobs[row]) == pytest.approx(np.log(q[token]), abs=2e-6)


@pytest.mark.parametrize("u", [0.0, 1 - 2.0**-53])
def test_ends_of_the_unit_interval(u: float) -> None:
    """The first and the last token with a probability, never one without, never past the end."""
    logits = logits_of(8)
    drawn = draw(logits, [Sampling(1.0, top_k=5)] * 8, np.full(8, u))
    for row in range(8):
        support = np.flatnonzero(expected(logits[row], Sampling(1.0, top_k=5)))
        assert int(drawn.tokens[row]) == support[0 if u == 0 else -1]


def test_ties_are_kept_together() -> None:
    """The outcome must not depend on how a sort orders equal values; greedy takes the lowest id."""
    logits = np.full((3, VOCAB), -5, np.float32)
    logits[:, [10, 20, 30]] = 3.0
    uniforms = np.array([0.1, 0.5, 0.9])
    for sampling in (Sampling(1.0, top_k=1), Sampling(1.0, top_p=0.2), Sampling(1.0, typical_p=0.2)):
        assert draw(logits, [sampling] * 3, uniforms).tokens.tolist() == [10, 20, 30]
    assert draw(logits, [Sampling(0.0)] * 3, uniforms).tokens.tolist() == [10, 10, 10]


def test_tiny_temperature_is_finite() -> None:
    drawn = draw(logits_of(4), [Sampling(1e-4)] * 4, np.full(4, 0.5))
    assert drawn.tokens.tolist() == logits_of(4).argmax(1).tolist()
    assert torch.isfinite(drawn.sampling_logprobs).all()


def peaked_and_flat() -> np.ndarray:
    """Logits of six rows, from uniform to nearly certain, with two tokens that can never be drawn."""
    logits = np.random.default_rng(5).normal(size=(6, VOCAB)) * np.array([0, 0.1, 1, 3, 10, 30])[:, None]
    logits[:, [7, 90]] = -np.inf
    return logits.astype(np.float32)


def drawn_with(logits: np.ndarray, measures: np.ndarray, top: np.ndarray) -> sampler.Draw:
    rows, width = len(logits), sampler.padded_vocab(VOCAB)
    padded = torch.full((rows, width), -torch.inf)
    padded[:, :VOCAB] = torch.from_numpy(logits)
    table = sampler.parameters([Sampling(0.7, top_p=0.9)] * rows)
    nothing = np.zeros((rows, 0), np.int32), np.zeros(rows, np.int64)
    batch = sampler.prepare(table, [PROMPT] * rows, *nothing, width, torch.device("cpu"), measures, top)
    return sampler.draw(padded, batch, torch.full((rows,), 0.5, dtype=torch.float64))


def test_measures_are_those_of_the_raw_distribution() -> None:
    """Entropy and self-certainty in float64, over what can be drawn; for the rows that want them, in their order."""
    logits = peaked_and_flat()
    wanted = np.array([True, True, False, True, True, True])
    drawn = drawn_with(logits, wanted, np.zeros(6, np.int64))
    assert drawn.top_tokens is None
    finite = np.delete(logits[wanted].astype(np.float64), [7, 90], 1)
    log_p = finite - np.log(np.exp(finite - finite.max(1)[:, None]).sum(1))[:, None] - finite.max(1)[:, None]
    entropy = -(np.exp(log_p) * log_p).sum(1)
    certainty = -(np.log(VOCAB - 2) + log_p).mean(1)
    np.testing.assert_allclose(drawn.measures[0], entropy, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(drawn.measures[1], certainty, rtol=1e-5, atol=1e-6)


def test_most_likely_tokens() -> None:
    """Sorted by probability, ties by token id whatever the sign; log-probabilities raw; the widest wish decides."""
    logits = peaked_and_flat()
    logits[3, [50, 20, 30]] = 99.0
    logits[4] = np.where(np.isfinite(logits[4]), -np.abs(logits[4]), -np.inf)
    logits[4, [60, 40]] = -0.0
    logits[4, [41]] = 0.0
    drawn = drawn_with(logits, np.zeros(6, np.bool_), np.array([3, 0, 5, 4, 98, 1]))
    rows = [0, 2, 3, 4, 5]
    assert drawn.measures is None
    for place, row in enumerate(rows):
        order = sorted(range(VOCAB), key=lambda token: (-logits[row, token], token))[:98]
        assert drawn.top_tokens[:, place].tolist() == order
        finite = logits[row].astype(np.float64)
        wanted = finite[order] - np.log(np.exp(finite).sum())
        np.testing.assert_allclose(drawn.top_logprobs[:, place], wanted, rtol=1e-5, atol=1e-5)
    assert drawn.top_tokens[:3, 2].tolist() == [20, 30, 50]
    assert drawn.top_tokens[:3, 3].tolist() == [40, 41, 60]
