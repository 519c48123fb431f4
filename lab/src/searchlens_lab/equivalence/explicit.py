"""An engine on a language model small enough to enumerate: the next token depends only on the last two.

The sampler of the real engine draws the tokens, so searches meet real local policies. The probabilities of whole texts
come from the plain distributions below, so the results of a search can be compared with exact ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from searchlens.engines import sampler
from searchlens.engines.base import PLAIN, Completion, Floor, Given, Request, Sampling, Scored
from searchlens.errors import InputError
from searchlens.search.autoregressive import Autoregressive
from searchlens.search.driver import Failure, run, start
from searchlens.search.policy import Policy
from searchlens.search.power import PowerSampling
from searchlens.search.smc import Lookahead, SequentialMonteCarlo
from searchlens.search.task import Task
from searchlens.seeds import child, generator, uniform
from searchlens_lab.equivalence.plan import EquivalenceOptions
from searchlens_lab.equivalence.subject import texts_of
from searchlens_lab.equivalence.tables import ComparisonRow, Law, TableName, chi_square, total_variation

EOS = 0
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class ToyModel:
    """Logits of the next token, float32 array of shape (vocab, vocab, vocab), indexed [last but one, last, next]."""

    logits: npt.NDArray[np.float32]

    @classmethod
    def random(cls, seed: int, vocab_size: int = 4, scale: float = 1.0, eos: float = 0.0) -> ToyModel:
        """Normal logits times ``scale``, with ``eos`` added to the logit of EOS."""
        logits = scale * generator("toy model", seed).standard_normal((vocab_size,) * 3)
        logits[..., EOS] += eos
        return cls(logits.astype(np.float32))

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return len(self.logits)

    @cached_property
    def logprobs(self) -> npt.NDArray[np.float64]:
        """Natural log-probabilities, in the shape of the logits."""
        logits = self.logits.astype(np.float64)
        return np.asarray(logits - np.log(np.exp(logits).sum(-1, keepdims=True)))

    def next(self, context: Sequence[int]) -> npt.NDArray[np.float32]:
        """Logits after a context; a context of one token counts as following EOS."""
        before, last = (EOS, *context)[-2:]
        return np.asarray(self.logits[before, last])


def enumerate_texts(
    model: ToyModel,
    prompt: tuple[int, ...],
    max_tokens: int,
    stop_ids: tuple[int, ...] = (EOS,),
    sampling: Sampling = PLAIN,
    stopped: Callable[[tuple[int, ...]], bool] = lambda _: False,
) -> dict[tuple[int, ...], float]:
    """Every text that ``sampling`` can draw after the prompt, with its probability, in lexicographic order.

    A text ends with its first stop token, with the first token after which it is ``stopped`` by a stop text, or after
    ``max_tokens`` tokens. Plain sampling gives p, other sampling gives
    its q. The probabilities sum to 1.
    """
    texts: dict[tuple[int, ...], float] = {}

    def grow(text: tuple[int, ...], probability: float) -> None:
        if len(text) == max_tokens or (text and (text[-1] in stop_ids or stopped(text))):
            texts[text] = probability
            return
        logits = model.next((*prompt, *text)).astype(np.float64)
        q = distribution(logits, sampling, prompt, text)
        for token in np.flatnonzero(q):
            grow((*text, int(token)), probability * float(q[token]))

    grow((), 1.0)
    return texts


class ToyEngine:
    """Runs up to ``max_rows`` queued requests together to their ends; shorter ones are returned first.

    ``requests``: all requests that were ever added, for tests to look at. ``generated``: number of tokens drawn for
    them. ``steps``: as in ``Engine``.
    """

    repeatable = True
    groups: tuple[int, ...] = (1,)

    def __init__(self, model: ToyModel, max_rows: int = 100_000, max_model_len: int = 1000) -> None:
        torch.set_num_threads(1)  # several threads are several times slower on tensors this small
        self.model, self.max_rows, self.max_model_len = model, max_rows, max_model_len
        self.vocab_size = model.vocab_size
        self.requests: list[Request] = []
        self.generated = 0
        self.steps = 0
        self._queue: list[tuple[int, Request]] = []
        width = sampler.padded_vocab(model.vocab_size)
        self._logits = torch.full((*model.logits.shape[:2], width), -torch.inf)
        self._logits[..., : model.vocab_size] = torch.from_numpy(model.logits)

    def clear(self) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """There is nothing to free."""

    def add(self, request_id: int, request: Request) -> None:
        """Queue a request; InputError if it does not fit into ``max_model_len``."""
        needed = len(request.prompt) + len(request.prefix) + request.max_tokens
        if not request.prompt or request.max_tokens < 1 or needed > self.max_model_len:
            raise InputError(f"request {request_id}: {needed} tokens, the limit is {self.max_model_len}")
        self.requests.append(request)
        self._queue.append((request_id, request))

    def step(self) -> list[tuple[int, Completion]]:
        """Run the next ``max_rows`` requests to their ends."""
        batch, self._queue = self._queue[: self.max_rows], self._queue[self.max_rows :]
        if not batch:
            return []
        completions = self._run([request for _, request in batch])
        self.generated += sum(len(completion.tokens) for completion in completions)
        finished = [(request_id, completion) for (request_id, _), completion in zip(batch, completions, strict=True)]
        return sorted(finished, key=lambda entry: len(entry[1].tokens))

    def score(self, texts: Sequence[Given], sampling: Sampling = PLAIN) -> list[Scored]:
        """Log p, log q and rank of every token of given texts; log p and ranks are exact."""
        scores = []
        for text in texts:
            known = torch.tensor((EOS, *text.prompt, *text.tokens))[-len(text.tokens) - 2 :]
            logits = self._logits[known[:-2], known[1:-1]]
            log_p, log_q, rank = sampler.given(logits, known[2:], sampling).numpy()
            scores.append(Scored(log_p.astype(np.float32), log_q.astype(np.float32), rank.astype(np.int32)))
        return scores

    def _run(self, requests: Sequence[Request]) -> list[Completion]:
        """Decode together until the last row has ended; tokens after the end of a row are dropped."""
        limits = np.array([request.max_tokens for request in requests])
        contexts = np.array([(EOS, *request.prompt, *request.prefix)[-2:] for request in requests])
        seeds = np.array([request.seed for request in requests], np.uint64)
        ends = np.zeros((len(requests), self.vocab_size), bool)
        prefixes = np.zeros((len(requests), max(len(request.prefix) for request in requests)), np.int32)
        for row, request in enumerate(requests):
            ends[row, list(request.stop_ids)] = True
            prefixes[row, : len(request.prefix)] = request.prefix
        kinds = {sampling: i for i, sampling in enumerate(dict.fromkeys(request.sampling for request in requests))}
        batch = sampler.prepare(
            sampler.parameters(list(kinds))[[kinds[request.sampling] for request in requests]],
            [request.prompt for request in requests],
            prefixes,
            np.array([len(request.prefix) for request in requests]),
            self._logits.shape[-1],
            _CPU,
        )
        lengths = np.zeros(len(requests), np.int64)
        history: list[npt.NDArray[np.int64]] = []
        drawn: list[tuple[npt.NDArray[Any], ...]] = []
        while not lengths.all():
            place = len(drawn)
            uniforms = uniform(seeds, np.full(len(requests), place))
            draw = sampler.draw(self._logits[contexts[:, 0], contexts[:, 1]], batch, torch.from_numpy(uniforms))
            tokens = draw.tokens.numpy()
            history.append(contexts)
            drawn.append((tokens, draw.logprobs.numpy(), draw.sampling_logprobs.numpy()))
            ended = ends[np.arange(len(requests)), tokens] | (limits == place + 1)
            lengths[ended & (lengths == 0)] = place + 1
            contexts = np.stack((contexts[:, 1], tokens), 1)
        self.steps += len(drawn)
        tokens, logprobs, sampling_logprobs = (np.stack(column, 1) for column in zip(*drawn, strict=True))
        before = np.stack(history, 1)
        rejected = np.zeros(len(requests), bool)
        for row, (request, n) in enumerate(zip(requests, lengths, strict=True)):
            if request.floor is not None:
                lengths[row] = _kept(request.floor, logprobs[row, :n], sampling_logprobs[row, :n])
                rejected[row] = lengths[row] < n
        return [
            Completion(
                tokens=tokens[row, :n].astype(np.int32),
                logprobs=logprobs[row, :n],
                sampling_logprobs=sampling_logprobs[row, :n],
                finish="rejected" if rejected[row] else "stop" if ends[row, tokens[row, n - 1]] else "length",
                **self._wanted(request, before[row, :n]),
            )
            for row, (request, n) in enumerate(zip(requests, lengths, strict=True))
        ]

    def _wanted(self, request: Request, contexts: npt.NDArray[np.int64]) -> dict[str, Any]:
        """Measures and most likely tokens, if the request wants them, from the model's exact log-probabilities."""
        if not (request.measures or request.top):
            return {}
        log_p = self.model.logprobs[contexts[:, 0], contexts[:, 1]]
        wanted: dict[str, Any] = {}
        if request.measures:
            wanted["entropies"] = -(np.exp(log_p) * log_p).sum(-1).astype(np.float32)
            wanted["certainties"] = -(np.log(self.vocab_size) + log_p.mean(-1)).astype(np.float32)
        if request.top:
            order = np.argsort(-log_p, -1, kind="stable")[:, : request.top]
            wanted["top_tokens"] = order.astype(np.int32)
            wanted["top_logprobs"] = np.take_along_axis(log_p, order, -1).astype(np.float32)
        return wanted


def _kept(floor: Floor, logprobs: npt.NDArray[np.float32], sampling_logprobs: npt.NDArray[np.float32]) -> int:
    """Number of tokens up to the first that brings a continuation down to a floor; all of them if none does."""
    count = np.arange(1, len(logprobs) + 1)
    weight = np.cumsum(floor.alpha * logprobs.astype(np.float64) - sampling_logprobs)
    if floor.start is not None:
        weight -= np.log(floor.start + count)
    low = np.flatnonzero(weight <= floor.bound)
    return int(low[0]) + 1 if low.size else len(logprobs)


# ---- A second implementation of the local policies: one distribution at a time, as plain as the engine's contract


Vector = npt.NDArray[np.float64]


def penalised(logits: Vector, sampling: Sampling, prompt: Sequence[int], generated: Sequence[int]) -> Vector:
    """Logits after the penalties, shape (vocab,); ``prompt`` and ``generated`` are token ids."""
    result = logits.copy()
    for token in {*prompt, *generated}:
        factor = sampling.repetition_penalty
        result[token] = result[token] / factor if result[token] > 0 else result[token] * factor
    for token in set(generated):
        result[token] -= sampling.frequency_penalty * list(generated).count(token) + sampling.presence_penalty
    return result


def distribution(
    logits: Vector, sampling: Sampling, prompt: Sequence[int] = (), generated: Sequence[int] = ()
) -> Vector:
    """The distribution q from which a token is drawn, with the filters in the order of ``searchlens.engines.base``.

    ``prompt``, ``generated``: token ids that count for penalties. The result sums to 1. Equal logits at the edge of a
    filter are kept or dropped as NumPy sorts them.
    """
    logits = penalised(logits, sampling, prompt, generated)
    if sampling.temperature == 0:
        return np.asarray(np.eye(len(logits))[np.argmax(logits)])
    q = _normalised(np.exp((logits - logits.max()) / sampling.temperature))
    q = _normalised(np.where(q >= sampling.min_p * q.max(), q, 0))
    if sampling.typical_p < 1:
        with np.errstate(divide="ignore", invalid="ignore"):
            entropy = -np.nansum(q * np.log(q))
            distance = np.abs(-np.log(q) - entropy)
        q = _normalised(np.where(_until(q, np.argsort(distance), sampling.typical_p), q, 0))
    if sampling.top_k:
        q = _normalised(np.where(np.argsort(np.argsort(-q)) < sampling.top_k, q, 0))
    if sampling.top_p < 1:
        q = _normalised(np.where(_until(q, np.argsort(-q), sampling.top_p), q, 0))
    return q


def inverse_cdf(q: Vector, uniform: float) -> int:
    """The first token, in the order of ids, at which the cumulative probability exceeds ``uniform``, in [0, 1)."""
    return int(np.flatnonzero(np.cumsum(q) > uniform)[0])


def _until(q: Vector, order: npt.NDArray[np.intp], mass: float) -> npt.NDArray[np.bool_]:
    """Whether each token is among the first ones in ``order`` whose sum reaches ``mass``."""
    inside = np.zeros(len(q), bool)
    total = 0.0
    for token in order:
        inside[token] = True
        total += q[token]
        if total >= mass:
            break
    return inside


def _normalised(q: Vector) -> Vector:
    return np.asarray(q / q.sum())


# ---- Texts drawn from toys, against their exact law
# Local policies run through the sampler of the engine, power sampling also through driver and controller. The law of a
# local policy is the product, along every text, of the plain distributions.

ENUMERATION = "exact enumeration"
PROMPT = (1, 2)
LOCAL, LOCAL_LIMIT = ToyModel.random(1, vocab_size=32, scale=1.5), 2
"""About a thousand texts of one or two tokens, with probabilities over several orders of magnitude; enough tokens for a
top-k of 20."""
POWER, POWER_LIMIT = ToyModel.random(2, vocab_size=3, scale=0.7), 4
"""Few and short texts, so that few chains suffice to measure a total variation."""


def compare(name: str, policy: Policy, options: EquivalenceOptions) -> list[ComparisonRow]:
    """Chi-square of a local policy; total variation of a sampler of p^alpha from its target.

    Power sampling has a chi-square, too. The other samplers tend to the target with more particles or rollouts, so that
    enough of them would find what is left of the distance; their row is a total variation alone.
    """
    if isinstance(policy.controller, Autoregressive):
        counts, _ = draws(LOCAL, policy, options.draws, LOCAL_LIMIT)
        drawable = enumerate_texts(LOCAL, PROMPT, LOCAL_LIMIT, sampling=policy.local)
        return [_chi_square("local", name, counts, drawable, options)]
    counts, _ = draws(POWER, policy, options.chains, POWER_LIMIT)
    law = target(POWER, policy, POWER_LIMIT)
    statistic, distance = "total variation", total_variation(counts, law)
    n, threshold = counts.total(), options.total_variation
    row = ComparisonRow("tier34", name, ENUMERATION, statistic, n, "chains", distance, "at most", threshold)
    if not isinstance(policy.controller, PowerSampling):
        return [row]
    return [row, _chi_square("tier34", name, counts, law, options)]


def has_law(policy: Policy) -> bool:
    """Whether a search samples p^alpha; mode ``reference`` of power sampling does not converge to it."""
    if isinstance(policy.controller, PowerSampling):
        return policy.controller.mode == "exact"
    return isinstance(policy.controller, SequentialMonteCarlo | Lookahead)


def _chi_square(
    table: TableName, name: str, counts: Counter[tuple[int, ...]], law: Law, options: EquivalenceOptions
) -> ComparisonRow:
    unit = "texts" if table == "local" else "chains"
    value, threshold = chi_square(counts, law), options.p_value
    return ComparisonRow(
        table, name, ENUMERATION, "p of chi-square", counts.total(), unit, value, "at least", threshold
    )


def draws(
    model: ToyModel, policy: Policy, count: int, limit: int, stream: str = "equivalence"
) -> tuple[Counter[tuple[int, ...]], float]:
    """How often each text is the best candidate of ``count`` runs, and the mean tokens drawn for one."""
    seeds = [child(0, stream, number) for number in range(count)]
    tasks = [Task(PROMPT, seed, limit, (EOS,), (), decode=str, answer=tuple) for seed in seeds]
    counts: Counter[tuple[int, ...]] = Counter()
    generated = 0
    for _, outcome in run(((task.seed, start(task, policy)) for task in tasks), ToyEngine(model)):
        if isinstance(outcome, Failure):
            raise RuntimeError(outcome.reason)
        counts.update(texts_of(outcome.candidates[:1]))
        generated += outcome.usage.generated
    return counts, generated / count


def target(model: ToyModel, policy: Policy, limit: int) -> Law:
    """The normalised p^alpha over the texts that the local policy can draw."""
    p = enumerate_texts(model, PROMPT, limit)
    alpha = float(policy.controller.parameters["alpha"])
    weights = {text: p[text] ** alpha for text in enumerate_texts(model, PROMPT, limit, sampling=policy.local)}
    return {text: weight / sum(weights.values()) for text, weight in weights.items()}
