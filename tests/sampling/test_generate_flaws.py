"""What searches return is looked at together; the verdict is that of a look at each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from searchlens.sampling._sample import checked
from searchlens.search.driver import Failure, Outcome, Result, Usage
from searchlens.search.policy import parse
from searchlens.search.task import Candidate

POLICY, VOCAB = parse("temp_1.0"), 10


def candidate(**changes: Any) -> Candidate:
    tokens = np.array([3, 4, 9], np.int32)
    return Candidate(tokens, -np.ones(3, np.float32), -np.ones(3, np.float32), "stop", 0.5)._replace(**changes)


FLAWS: dict[str, Any] = {
    "no list": None,
    "two candidates": [candidate(), candidate()],
    "no candidate": [(1, 2)],
    "no array": [candidate(tokens=[3, 4, 9])],
    "no token": [candidate(tokens=np.zeros(0, np.int32))],
    "two dimensions": [candidate(tokens=np.zeros((3, 1), np.int32))],
    "no ids": [candidate(tokens=np.ones(3))],
    "below the vocabulary": [candidate(tokens=np.array([3, -1, 9]))],
    "above the vocabulary": [candidate(tokens=np.array([3, 10, 9]))],
    "another length": [candidate(logprobs=np.ones(2, np.float32))],
    "not a number": [candidate(sampling_logprobs=np.array([0, math.nan, 0], np.float32))],
    "a score without end": [candidate(score=math.inf)],
}


@pytest.mark.parametrize("flawed", FLAWS.values(), ids=FLAWS)
def test_a_flaw_fails_its_run_alone(flawed: Any) -> None:
    sound, failed = Result([candidate()], Usage(1, 3)), Failure("ValueError: no", Usage(2))
    outcomes: list[Outcome] = [sound, Result(flawed, Usage(5, 7)), failed, sound]
    first, second, third, fourth = checked(outcomes, POLICY, VOCAB)
    assert (first, third, fourth) == (sound, failed, sound)
    assert isinstance(second, Failure) and second.usage == Usage(5, 7)
    assert second.reason.startswith("controller autoregressive returned ")


def test_what_is_sound_stays() -> None:
    lists = [candidate(logprobs=[0.0, 0.0, 0.0]), candidate(tokens=np.array([3, 4, 9], np.int64))]
    outcomes: list[Outcome] = [Result([each], Usage()) for each in (candidate(), *lists)]
    assert list(checked(outcomes, POLICY, VOCAB)) == outcomes
    assert list(checked([], POLICY, VOCAB)) == []
