"""A sample of the bad inputs of ``fuzzing.py``; ``make fuzz`` runs all of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import fuzzing


def own_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in the folder of this file. Forks of this process would wait for ever for threads that only it has."""
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=Path(__file__).parent
    )


@pytest.mark.long
def test_a_sample_of_bad_inputs_ends_as_expected() -> None:
    """No traceback, no hang, nothing wrong that is accepted, nothing right that is refused, and no file changed."""
    done = own_process("fuzzing.py", "--sample", "140", "--seed", "7")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all: 140 inputs, 0 not as expected" in done.stdout


def test_inputs_are_many_and_have_names_of_their_own() -> None:
    every = fuzzing.inputs()
    assert len(every) > 4000
    assert len({(each.family, each.name) for each in every}) == len(every)
    assert 50 < sum(not each.says for each in every) < 500  # right ones are among them


def test_the_runner_notices_what_it_looks_for(tmp_path: Path) -> None:
    """Expectations turned round: what is right as wrong, what is wrong as right, and words that no message has."""
    code = f"""
import json, pathlib
import bad_inputs, fuzzing
runner = fuzzing.Runner(pathlib.Path({str(tmp_path)!r}))
wrong, right = {{"mine.yaml": b"samples: -3\\n"}}, {{"mine.yaml": b"seed: 42\\n"}}
print(json.dumps([
    runner.run(bad_inputs.Input("x", "x", bad_inputs.CHECK, files, says)).problem
    for files, says in ((right, ("samples",)), (wrong, ()), (wrong, ("nowhere",)), (wrong, ("samples",)))
]))
"""
    problems = json.loads(own_process("-c", code).stdout)
    assert problems == ["accepted, although wrong", "refused, although right", "file or key is not named", ""]
