"""Evaluators: how good a path looks, finished or not, without the gold answer.

Each name in ``components.EVALUATORS`` is one function or class here. Likelihoods read the path alone; rollouts and
answers are drawn from the engine, and the model's opinion of its own is read there; a verifier is asked outside of it.
"""

from __future__ import annotations

import json
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from numbers import Real
from typing import Any

import numpy as np

from searchlens.engines.base import Completion, Request, Sampling
from searchlens.errors import InputError
from searchlens.policies import Part
from searchlens.search.task import Ask, Call, Evaluator, Scoring, Task, Trace

Scorer = Callable[[str, Sequence[str]], Sequence[float]]
"""Prompt and texts to one score for each text, higher is better."""
_SHOWN = 200  # characters of a wrong reply in a message
_RAW = Sampling(temperature=1.0)


def evaluator(part: Part) -> Evaluator:
    """The evaluator that a policy names.

    Parameters
    ----------
    part : Part
        A name in ``components.EVALUATORS`` and its parameters.
    """
    parameters = dict(part.parameters)
    match part.name:
        case "mean_logprob":
            return Likelihood(mean_logprob)
        case "sequence_logprob":
            return Likelihood(sequence_logprob)
        case "self_certainty":
            return Likelihood(self_certainty, measures=True)
        case "rollout_utility":
            return RolloutUtility(int(parameters["rollouts"]))
        case "answer_agreement":
            return AnswerAgreement(int(parameters["rollouts"]))
        case "self_evaluation":
            question, right, wrong = (str(parameters[key]) for key in ("question", "right", "wrong"))
            return SelfEvaluation(question, right, wrong, int(parameters["top"]))
        case "verifier":
            url = str(parameters["url"])
            return Verifier(HttpScorer(url), url)
    raise ValueError(f"no evaluator {part.name!r}")


def sequence_logprob(trace: Trace) -> float:
    """Natural log-probability of a path under the raw model; 0 for the empty path."""
    return float(trace.logprobs.sum(dtype=np.float64))


def mean_logprob(trace: Trace) -> float:
    """Mean natural log-probability of the tokens of a path under the raw model; 0 for the empty path."""
    return sequence_logprob(trace) / max(1, len(trace.tokens))


def self_certainty(trace: Trace) -> float:
    """Mean over tokens of the divergence of the uniform distribution from the raw model's, in nats, >= 0.

    0, as for a model that knows nothing, on the empty path.

    Raises
    ------
    ValueError
        A part of the path was drawn without measures.

    References
    ----------
    Kang, Zhao and Song (2025), Scalable best-of-N selection for large language models via self-certainty.
    """
    if not len(trace.tokens):
        return 0.0
    if trace.certainties is None:
        raise ValueError("self-certainty needs paths that were drawn with measures")
    return float(trace.certainties.mean(dtype=np.float64))


@dataclass(slots=True)
class Likelihood:
    """Scores each path by what the engine said of its tokens.

    Attributes
    ----------
    of : callable
        Path to score.
    measures, compares : bool
    """

    of: Callable[[Trace], float]
    measures: bool = False
    compares: bool = False

    def __call__(self, task: Task, traces: Sequence[Trace], sampling: Sampling, key: tuple[str | int, ...]) -> Scoring:
        """Score the paths; asks for nothing."""
        del task, sampling, key
        yield from ()
        return [self.of(trace) for trace in traces]


@dataclass(slots=True)
class RolloutUtility:
    """Scores a path by where it leads: the mean utility of its rollouts, in [0, 1].

    An unfinished path is drawn to its end ``rollouts`` times by the local policy; a finished one stands for itself. The
    utility of a text is 0 if it states no answer, else exp(mean log p), the geometric mean of the probabilities of all
    its tokens under the raw model. A product of log-probability and share of answers would reward texts without one.

    Attributes
    ----------
    rollouts : int
        >= 1.
    measures, compares : bool

    Notes
    -----
    Rollouts as the value of a reasoning step: Wang et al. (2024), Math-Shepherd, where the utility is whether the
    answer is right. That is not for a policy to know, so the likelihood of an answer takes its place.
    """

    rollouts: int
    measures: bool = False
    compares: bool = False

    def __call__(self, task: Task, traces: Sequence[Trace], sampling: Sampling, key: tuple[str | int, ...]) -> Scoring:
        """Score the paths by ``rollouts`` requests for each unfinished one."""
        ends = yield from _ends(task, traces, sampling, key, self.rollouts)
        return [float(np.mean([_utility(task, end) for end in of_path])) for of_path in ends]


@dataclass(slots=True)
class AnswerAgreement:
    """Scores a path by how much of everything says what it says, in [0, 1].

    Every path is completed as in ``RolloutUtility``. With s_i(a) the share of path i's completions that state answer a,
    the score of path i is ``sum_a s_i(a) mean_j s_j(a)`` over all paths j of the call, i included: the chance that one
    of its completions and one of a random path agree. Each path has one voice, however many completions it has; a
    completion without an answer agrees with nobody, itself included.

    Attributes
    ----------
    rollouts : int
        >= 1.
    measures, compares : bool

    Notes
    -----
    Agreement as evidence: Wang et al. (2023), Self-consistency improves chain of thought reasoning in language models.
    """

    rollouts: int
    measures: bool = False
    compares: bool = True

    def __call__(self, task: Task, traces: Sequence[Trace], sampling: Sampling, key: tuple[str | int, ...]) -> Scoring:
        """Score the paths by ``rollouts`` requests for each unfinished one."""
        ends = yield from _ends(task, traces, sampling, key, self.rollouts)
        shares = [_shares(task, of_path) for of_path in ends]
        voices: dict[Hashable, float] = defaultdict(float)
        for of_path in shares:
            for answer, share in of_path.items():
                voices[answer] += share / len(shares)
        return [sum((share * voices[answer] for answer, share in of_path.items()), 0.0) for of_path in shares]


@dataclass(slots=True)
class SelfEvaluation:
    """Asks the model itself: ``p(right) / (p(right) + p(wrong))`` of the token behind path and question, in [0, 1].

    One request of one token for each path, finished or not; a stop token at its end is left out, for the question goes
    on with the text. The probabilities are those of the raw model, whatever the local policy. An answer that is not
    among the ``top`` most likely tokens is taken to be as likely as the last of them, and is at most that; where
    neither is among them the score is 1/2.

    Attributes
    ----------
    question : str
        Stands behind prompt and path.
    right, wrong : str
        The two answers, each spelled by one token.
    top : int
        >= 1 and at most the vocabulary.
    measures, compares : bool

    Notes
    -----
    P(True) of Kadavath et al. (2022), Language models (mostly) know what they know; of unfinished texts, as the
    confidence in a step: Xie et al. (2023), Self-evaluation guided beam search for reasoning. There the model sees the
    text quoted in a prompt of its own; here it goes on from the text, whose keys and values the engine has.
    """

    question: str
    right: str
    wrong: str
    top: int
    measures: bool = False
    compares: bool = False

    def __call__(self, task: Task, traces: Sequence[Trace], sampling: Sampling, key: tuple[str | int, ...]) -> Scoring:
        """Score the paths by one request for each.

        Raises
        ------
        InputError
            As ``spelled``.
        """
        del sampling
        question, right, wrong = self.spelled(task.encode)
        done = yield [
            Request(
                task.prompt,
                _RAW,
                task.seed_of(*key, "question", i),
                1,
                (),
                prefix=_unended(task, trace) + question,
                top=self.top,
            )
            for i, trace in enumerate(traces)
        ]
        return [_share(one, right, wrong) for one in done]

    def spelled(
        self, encode: Callable[[str], tuple[int, ...]], where: str = "evaluator self_evaluation"
    ) -> tuple[tuple[int, ...], int, int]:
        """Token ids of the question, and the one of each answer.

        Parameters
        ----------
        encode : callable
            As in ``Task``.
        where : str
            For messages.

        Raises
        ------
        InputError
            An answer is not one token, or both are the same one.
        """
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


@dataclass(slots=True)
class Verifier:
    """Asks somebody else; unfinished paths are shown as they are.

    Attributes
    ----------
    scorer : callable
        Gets the text of the prompt and the texts of the paths; may be slow: it runs beside the engine.
    name : str
        For messages.
    measures, compares : bool
    """

    scorer: Scorer
    name: str
    measures: bool = False
    compares: bool = False

    def __call__(self, task: Task, traces: Sequence[Trace], sampling: Sampling, key: tuple[str | int, ...]) -> Scoring:
        """Score the paths by one call.

        Raises
        ------
        ValueError
            What came back is not one finite number for each path.
        """
        del sampling, key
        texts = [task.decode(trace.prefix) for trace in traces]
        (scores,) = yield [Call(partial(self.scorer, task.decode(task.prompt), texts))]
        return self._checked(scores, len(texts))

    def _checked(self, scores: Any, wanted: int) -> list[float]:
        try:
            found = list(scores)
        except TypeError:
            raise ValueError(f"verifier {self.name} returned {scores!r:.{_SHOWN}}, not a list of scores") from None
        if len(found) != wanted:
            raise ValueError(f"verifier {self.name} returned {len(found)} scores for {wanted} texts")
        for score in found:
            if not isinstance(score, Real) or not np.isfinite(float(score)):
                raise ValueError(f"verifier {self.name} returned a score of {score!r:.{_SHOWN}}, not a finite number")
        return [float(score) for score in found]


@dataclass(frozen=True, slots=True)
class HttpScorer:
    """A scorer behind HTTP: POST of ``{"prompt": text, "texts": [text, ...]}`` gives ``{"scores": [number, ...]}``.

    Attributes
    ----------
    url : str
    timeout : float
        Seconds without a byte until it counts as failed. There is no second try.
    """

    url: str
    timeout: float = 60.0

    def __call__(self, prompt: str, texts: Sequence[str]) -> Sequence[float]:
        """Ask for the scores.

        Raises
        ------
        RuntimeError
            No reply in time, an HTTP error, or a reply without scores.
        """
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
            return json.loads(text)["scores"]  # type: ignore[no-any-return]  # checked where it is used
        except (ValueError, TypeError, KeyError):
            raise RuntimeError(
                f'verifier {self.url} replied {text!r:.{_SHOWN}}, not JSON of the form {{"scores": [...]}}'
            ) from None


def _ends(
    task: Task, traces: Sequence[Trace], sampling: Sampling, key: tuple[str | int, ...], rollouts: int
) -> Generator[list[Ask], list[Any], list[list[Trace]]]:
    """The completions of each path: ``rollouts`` of an unfinished one; of a finished one, itself."""
    open_paths = [i for i, trace in enumerate(traces) if trace.finish is None]
    draws = [(i, rollout) for i in open_paths for rollout in range(rollouts)]
    done = yield [
        Request(
            task.prompt,
            sampling,
            task.seed_of(*key, "rollout", i, rollout),
            task.max_tokens - len(traces[i].tokens),
            task.stop_ids,
            prefix=traces[i].prefix,
        )
        for i, rollout in draws
    ]
    ends: list[list[Trace]] = [[] if trace.finish is None else [trace] for trace in traces]
    for (i, _), one in zip(draws, done, strict=True):
        ends[i].append(traces[i].extend(one, one.finish))
    return ends


def _unended(task: Task, trace: Trace) -> tuple[int, ...]:
    """The tokens of a path without a stop token at its end."""
    tokens = trace.prefix
    return tokens[:-1] if tokens and tokens[-1] in task.stop_ids else tokens


def _share(done: Completion, right: int, wrong: int) -> float:
    """p(right) / (p(right) + p(wrong)) at the first position."""
    assert done.top_tokens is not None and done.top_logprobs is not None, "the engine was asked for them"
    logprobs = done.top_logprobs[0].tolist()
    listed = dict(zip(done.top_tokens[0].tolist(), logprobs, strict=True))
    one, other = (listed.get(token, logprobs[-1]) for token in (right, wrong))
    return float(np.exp(one - np.logaddexp(one, other)))


def _utility(task: Task, end: Trace) -> float:
    return float(np.exp(mean_logprob(end))) if task.answer(end.prefix) is not None else 0.0


def _shares(task: Task, ends: Sequence[Trace]) -> dict[Hashable, float]:
    """Share of the completions that state each answer."""
    answers = Counter(task.answer(end.prefix) for end in ends)
    return {answer: count / len(ends) for answer, count in answers.items() if answer is not None}
