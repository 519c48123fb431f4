"""A sample of the faults of `make test-faults`, by seed: nothing is lost, torn or drawn twice, whatever breaks."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RUN = [sys.executable, str(Path(__file__).with_name("run.py"))]


def run(**counts: int) -> str:
    """The figures of some kinds of faults, from a process of its own: it forks before a library starts threads."""
    every = dict.fromkeys(("points", "states", "meetings", "workers", "steps", "reads"), 0) | {"seed": 24} | counts
    options = [word for name, count in every.items() for word in (f"--{name}", str(count))]
    done = subprocess.run([*RUN, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4_000:]
    return done.stdout


def test_a_fault_at_any_call_loses_no_more_than_the_chunk_under_way() -> None:
    assert "0 violations" in run(points=40)


def test_workers_that_are_killed_lose_no_chunk_and_none_is_drawn_twice() -> None:
    assert "0 chunks lost, 0 doubled, 0 violations" in run(workers=4)


@pytest.mark.skipif(not (shutil.which("cc") or os.environ.get("SEARCHLENS_CI")), reason="there is no C compiler, cc")
@pytest.mark.long
def test_a_read_that_fails_is_not_damage() -> None:
    """Nothing finished is gone or set aside, and each error is one clear line."""
    counted = json.loads(run(reads=48).splitlines()[-1])
    assert counted["reads"] >= 48
    assert counted["ended"] > 10
    assert {key: counted[key] for key in ("lost", "aside", "tracebacks", "violations")} == dict.fromkeys(
        ("lost", "aside", "tracebacks", "violations"), 0
    )


@pytest.mark.long
def test_no_power_failure_loses_what_was_finished() -> None:
    assert "0 violations" in run(states=40)


@pytest.mark.long
def test_a_store_that_syncs_no_folders_is_found_out() -> None:
    """The survey of states would notice: chunks would be gone before the name of their shard is certain."""
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import points, states
from searchlens.store import files
files._sync_folder = lambda folder: None
with points.new_root() as root:
    survey = states.Survey(root)
    # without any sync everything is open at the end: the names of the shards may be missing, those of the chunks gone
    final = [one for one in survey.states() if one.after == len(survey.calls) and "link" in str(one.lost)]
    wrong = states.attempt_all(survey, final[:60], 2)
print(sum("drawn twice" in line for line in wrong))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(found.split()[-1]) > 0


@pytest.mark.long
def test_jobs_that_meet_anywhere_end_well() -> None:
    assert "0 violations" in run(meetings=12)


@pytest.mark.long
def test_the_store_equals_its_model_after_any_sequence() -> None:
    assert "0 violations" in run(steps=200)
