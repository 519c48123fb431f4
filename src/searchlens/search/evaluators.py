"""Evaluators: how good a path looks, finished or not, without the gold answer.

Each name in ``components.EVALUATORS`` is one function or class here. Likelihoods read the path alone; rollouts, and the
model's own opinion, need the engine; a verifier runs outside of it.
"""

from __future__ import annotations

import json
import urllib.request
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from http.client import HTTPException
from numbers import Real
from operator import attrgetter
from typing import Any

import numpy as np

from searchlens.engines.base import Request, Sampling
from searchlens.errors import InputError
from searchlens.search.components import Component
from searchlens.search.task import Ask, Call, Evaluator, Scoring, Task, Trace

Scorer = Callable[[str, Sequence[str]], Sequence[float]]
"""Prompt and texts to one score for each text; higher is better."""
_SHOWN = 200  # characters of a wrong reply that a message quotes
_RAW = Sampling(temperature=1.0)


def mean_logprob(trace: Trace) -> float:
    """Mean natural log-probability of the tokens of a path under the raw model; 0 for the empty path."""
    return trace.log_p / max(1, len(trace.tokens))


def self_certainty(trace: Trace) -> float:
    """Mean over tokens of the divergence of the uniform distribution from the raw model's, in nats, >= 0.

    0, as for a model that knows nothing, on the empty path. Raises ValueError if a part of the path was drawn without
    measures. Of Kang, Zhao and Song (2025), Scalable best-of-N selection for large language models via self-certainty.
    """
    if not len(trace.tokens):
        return 0.0
    if trace.certainties is None:
        raise ValueError("self-certainty needs paths that were drawn with measures")
    return float(trace.certainties.mean(dtype=np.float64))


@dataclass(frozen=True)
class Likelihood(Evaluator):
    """Scores each path by the probabilities of its tokens."""

    of: Callable[[Trace], float]
    measures: bool = False

    def __call__(self, task: Task, traces: Sequence[Trace], sampling: Sampling, key: tuple[str | int, ...]) -> Scoring:
        """Score the paths without a request."""
        yield from ()
        return [self.of(trace) for trace in traces]


@dataclass(frozen=True)
class RolloutUtility(Evaluator):
    """Scores a path by where it leads: the mean utility of its rollouts, in [0, 1].

    An unfinished path is drawn to its end ``rollouts`` times by the local policy; a finished one stands for itself. The
    utility of a text is 0 if it states no answer, else exp(mean log p), the geometric mean of the probabilities of all
    its tokens under the raw model. A product of log-probability and share of answers would reward texts without one.

    Rollouts as the value of a reasoning step: Wang et al. (2024), Math-Shepherd, where the utility is whether the
    answer is right. A policy cannot know that, so the likelihood of an answer takes its place.
    """

    rollouts: int

    def __call__(self, task: Task, traces: Sequence[Trace], sampling: Sampling, key: tuple[str | int, ...]) -> Scoring:
        """Score the paths by ``rollouts`` requests for each unfinished one."""
        completions = yield from _completed(task, traces, sampling, key, self.rollouts)
        utilities = [
            [float(np.exp(mean_logprob(text))) if task.answer(text.prefix) is not None else 0.0 for text in of_path]
            for of_path in completions
        ]
        scores = [float(np.mean(of_path)) for of_path in utilities]
        for trace, score, of_path in zip(traces, scores, utilities, strict=True):
            task.note("judged", path=trace, score=score, utilities=of_path)
        return scores


@dataclass(frozen=True)
class AnswerAgreement(Evaluator):
    """Scores a path by how far the completions of all paths agree with its own, in [0, 1].

    Every path is completed as in ``RolloutUtility``. With s_i(a) the share of path i's completions that state answer a,
    the score of path i is ``sum_a s_i(a) mean_j s_j(a)`` over all paths j of the call, i included: the chance that one
    of its completions and one of a random path agree. Each path has the same weight, however many completions it has; a
    completion without an answer agrees with none, not even itself. Agreement as evidence is that of Wang et al. (2023),
    Self-consistency improves chain of thought reasoning in language models.
    """

    rollouts: int
    compares = True

    def __call__(self, task: Task, traces: Sequence[Trace], sampling: Sampling, key: tuple[str | int, ...]) -> Scoring:
        """Score the paths by ``rollouts`` requests for each unfinished one."""
        completions = yield from _completed(task, traces, sampling, key, self.rollouts)
        # Exact, so that equal scores are equal to the last digit.
        shares: list[dict[Hashable, Fraction]] = []
        for of_path in completions:
            answers = Counter(task.answer(text.prefix) for text in of_path)
            shares.append({a: Fraction(n, len(of_path)) for a, n in answers.items() if a is not None})
        mean_share: dict[Hashable, Fraction] = defaultdict(Fraction)
        for stated in shares:
            for answer, share in stated.items():
                mean_share[answer] += share / len(shares)
        scores = [float(sum(share * mean_share[answer] for answer, share in stated.items())) for stated in shares]
        for trace, score, stated in zip(traces, scores, shares, strict=True):
            task.note("judged", path=trace, score=score, shares={str(a): float(share) for a, share in stated.items()})
        return scores


@dataclass(frozen=True)
class SelfEvaluation(Evaluator):
    """Asks the model: ``p(right) / (p(right) + p(wrong))`` of the token after path and question, in [0, 1].

    One request of one token for each path, finished or not; a stop token or stop text at its end is left out, because
    the question continues the text. The probabilities are those of the raw model, whatever the local policy. An answer
    that is not among the ``top`` most likely tokens is taken to be as likely as the last of them, which is an upper
    bound; if neither is among them, the score is 1/2.

    P(True) of Kadavath et al. (2022), Language models (mostly) know what they know; of unfinished texts, as the
    confidence in a step: Xie et al. (2023), Self-evaluation guided beam search for reasoning. There a prompt of its own
    quotes the text; here the question continues the text, whose keys and values the engine already has.
    """

    question: str
    """Comes after prompt and path."""
    right: str
    wrong: str
    top: int

    def __call__(self, task: Task, traces: Sequence[Trace], sampling: Sampling, key: tuple[str | int, ...]) -> Scoring:
        """Score the paths by one request for each; raises InputError as ``spelled``."""
        question, right, wrong = self.spelled(task.encode)
        ask = Request(prompt=task.prompt, sampling=_RAW, seed=task.seed, max_tokens=1, top=self.top)
        replies = yield [
            ask._replace(seed=task.seed_of(*key, "question", i), prefix=_without_stop(task, trace) + question)
            for i, trace in enumerate(traces)
        ]
        logs = []
        for reply in replies:
            logprobs = reply.top_logprobs[0].tolist()
            listed = dict(zip(reply.top_tokens[0].tolist(), logprobs, strict=True))
            logs.append((listed.get(right, logprobs[-1]), listed.get(wrong, logprobs[-1])))
        scores = [float(np.exp(yes - np.logaddexp(yes, no))) for yes, no in logs]
        for trace, score, (log_right, log_wrong) in zip(traces, scores, logs, strict=True):
            task.note("judged", path=trace, score=score, log_right=log_right, log_wrong=log_wrong)
        return scores

    def spelled(
        self, encode: Callable[[str], tuple[int, ...]], where: str = "evaluator self_evaluation"
    ) -> tuple[tuple[int, ...], int, int]:
        """Token ids of question and answers; InputError if an answer is not one token, or both are the same."""
        right, wrong = encode(self.right), encode(self.wrong)
        for name, text, tokens in (("right", self.right, right), ("wrong", self.wrong, wrong)):
            if len(tokens) != 1:
                raise InputError(
                    f"{where}: {name} is {text!r}, which is {len(tokens)} tokens; allowed: a text of one token",
                    "try it without the space before it, or another word",
                )
        if right == wrong:
            raise InputError(f"{where}: right {self.right!r} and wrong {self.wrong!r} are the same token")
        return encode(self.question), right[0], wrong[0]


@dataclass(frozen=True)
class Verifier(Evaluator):
    """Asks an external scorer, which sees unfinished paths as they are, and finished ones up to their stop text."""

    scorer: Scorer
    """Gets the text of the prompt and the texts of the paths. It runs in a thread, so it may be slow."""
    name: str
    """For messages."""

    def __call__(self, task: Task, traces: Sequence[Trace], sampling: Sampling, key: tuple[str | int, ...]) -> Scoring:
        """Score the paths by one call. Raises ValueError if it does not return one finite number for each path."""
        texts = [task.text(trace.prefix) for trace in traces]
        (reply,) = yield [Call(partial(self.scorer, task.decode(task.prompt), texts))]
        try:
            given = list(reply)
        except TypeError:
            raise ValueError(f"verifier {self.name} returned {reply!r:.{_SHOWN}}, not a list of scores") from None
        if len(given) != len(texts):
            raise ValueError(f"verifier {self.name} returned {len(given)} scores for {len(texts)} texts")
        for score in given:
            if not isinstance(score, Real) or not np.isfinite(float(score)):
                raise ValueError(f"verifier {self.name} returned a score of {score!r:.{_SHOWN}}, not a finite number")
        scores = [float(score) for score in given]
        for trace, score in zip(traces, scores, strict=True):
            task.note("judged", path=trace, score=score, verifier=self.name)
        return scores


@dataclass(frozen=True, slots=True)
class HttpScorer:
    """A scorer over HTTP: POST of ``{"prompt": text, "texts": [text, ...]}`` gives ``{"scores": [number, ...]}``."""

    url: str
    timeout: float = 60.0
    """Seconds without a byte until the request counts as failed; it is not repeated."""

    def __call__(self, prompt: str, texts: Sequence[str]) -> Sequence[float]:
        """Ask for the scores; RuntimeError if there is no reply in time, an HTTP error, or no scores in it."""
        body = json.dumps({"prompt": prompt, "texts": list(texts)}).encode()
        request = urllib.request.Request(self.url, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as reply:
                text = reply.read().decode(errors="replace")
        except TimeoutError:
            raise RuntimeError(f"verifier {self.url} did not reply within {self.timeout:g} s") from None
        except (OSError, HTTPException) as error:
            raise RuntimeError(f"verifier {self.url} failed: {error}") from error
        try:
            return json.loads(text)["scores"]  # type: ignore[no-any-return]  # Verifier checks it
        except (ValueError, TypeError, KeyError):
            raise RuntimeError(
                f'verifier {self.url} replied {text!r:.{_SHOWN}}, not JSON of the form {{"scores": [...]}}'
            ) from None


def _completed(
    task: Task, traces: Sequence[Trace], sampling: Sampling, key: tuple[str | int, ...], rollouts: int
) -> Generator[list[Ask], list[Any], list[list[Trace]]]:
    """Finished texts of each path: ``rollouts`` continuations of an unfinished one; a finished one itself."""
    unfinished = [i for i, trace in enumerate(traces) if trace.finish is None]
    draws = [(i, rollout) for i in unfinished for rollout in range(rollouts)]
    replies = yield [task.request(traces[i], sampling, task.seed_of(*key, "rollout", i, n)) for i, n in draws]
    texts: list[list[Trace]] = [[] if trace.finish is None else [trace] for trace in traces]
    for (i, n), reply in zip(draws, replies, strict=True):
        text = task.extend(traces[i], reply)
        task.note("rollout", node=(*key, i, n), of=traces[i], start=len(traces[i].tokens), path=text)
        texts[i].append(text)
    return texts


def _without_stop(task: Task, trace: Trace) -> tuple[int, ...]:
    """The tokens of a path before the stop token or stop text at its end."""
    tokens = trace.prefix
    if tokens and tokens[-1] in task.stop_ids:
        return tokens[:-1]
    if task.length(tokens) is None:
        return tokens
    said = len(task.text(tokens))
    return tokens[: bisect_right(range(len(tokens)), said, key=lambda n: len(task.decode(tokens[:n]))) - 1]


_EVALUATORS: Mapping[str, Callable[..., Evaluator]] = {
    "mean_logprob": partial(Likelihood, mean_logprob),
    "sequence_logprob": partial(Likelihood, attrgetter("log_p")),
    "self_certainty": partial(Likelihood, self_certainty, measures=True),
    "rollout_utility": RolloutUtility,
    "answer_agreement": AnswerAgreement,
    "self_evaluation": SelfEvaluation,
    "verifier": lambda url: Verifier(HttpScorer(url), url),
}


@cache  # every search asks for one, and none has a state
def evaluator(component: Component) -> Evaluator:
    """The evaluator that a policy names, with its parameters."""
    return _EVALUATORS[component.name](**component.parameters)
