"""A sample of the bad inputs of ``fuzzing.py``; ``make fuzz`` runs all of them."""

from __future__ import annotations

from pathlib import Path

import fuzzing


def test_a_sample_of_bad_inputs_ends_as_expected(tmp_path: Path) -> None:
    """No traceback, no hang, nothing wrong that is accepted, nothing right that is refused, and no file changed."""
    runner = fuzzing.Runner(tmp_path)
    outcomes = [runner.run(each) for each in fuzzing.sampled(140, seed=7)]
    assert [(each.input.name, each.problem, each.said) for each in outcomes if each.problem] == []


def test_inputs_are_many_and_have_names_of_their_own() -> None:
    every = fuzzing.inputs()
    assert len(every) > 5000
    assert len({(each.family, each.name) for each in every}) == len(every)
    assert 50 < sum(not each.says for each in every) < 500  # right ones are among them


def test_the_runner_notices_what_it_looks_for(tmp_path: Path) -> None:
    """Expectations turned round: what is right as wrong, what is wrong as right, and words that no message has."""
    runner = fuzzing.Runner(tmp_path)
    wrong, right = {"mine.yaml": b"samples: -3\n"}, {"mine.yaml": b"seed: 42\n"}
    problems = [
        runner.run(fuzzing.Input("x", "x", fuzzing.CHECK, files, says)).problem
        for files, says in ((right, ("samples",)), (wrong, ()), (wrong, ("nowhere",)), (wrong, ("samples",)))
    ]
    assert problems == ["accepted, although wrong", "refused, although right", "file or key is not named", ""]
