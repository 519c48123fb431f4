"""`searchlens run`: one line of progress in place of Snakemake's blocks, every error, its exit status, and Ctrl-C."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from searchlens.cli.run import Filter, supervise

ROUTINE = """\
Using workflow specific profile profiles/default for setting default command line arguments.
Config file config/own.yaml is extended by additional config specified via the command line.
Assuming unrestricted shared filesystem usage.
Building DAG of jobs...
Provided cores: 2
Rules claiming more threads will be scaled down.
Job stats:
job          count
---------  -------
score            2
total            2

Select jobs to execute...
Execute 1 jobs...

[Mon Nov 23 01:57:41 2026]
localrule score:
    input: results/a.parquet
    jobid: 1

01:57:42 a/math: 240 samples: 157 right
[Mon Nov 23 01:57:43 2026]
Finished jobid: 1 (Rule: score)
1 of 2 steps (50%) done
"""
HEALTH = "01:57:42 a/math: not interpretable: 0% of 8 samples have an answer"
ERROR = """\
[Mon Nov 23 01:57:44 2026]
Error in rule landscape:
    jobid: 2
    log: logs/landscape/a.log (check log file(s) for error details)
Logfile logs/landscape/a.log:
================================================================================
01:57:44 error: results/a.parquet is damaged

================================================================================

[Mon Nov 23 01:57:45 2026]
"""
END = """\
Exiting because a job execution failed. Look below for error messages
Complete log(s): /study/.snakemake/log/x.snakemake.log
"""


def shown(text: str) -> list[str]:
    known = Filter()
    return [line for line in text.splitlines() if known.shows(line)]


def test_routine_is_hidden_and_everything_else_is_shown() -> None:
    """Also what nobody thought of, and the log of a job that failed, whose lines are routine elsewhere."""
    assert shown(ROUTINE) == []
    assert shown(ROUTINE + HEALTH) == [HEALTH]
    assert shown(ROUTINE + ERROR + END) == [*ERROR.splitlines()[1:-1], END.splitlines()[0]]
    locked = "LockException:\nError: Directory cannot be locked."
    assert shown(locked) == locked.splitlines()
    nothing = "Nothing to be done (all requested files are present and up to date)."
    assert shown(nothing) == [nothing]


def script(text: str, after: str = "") -> list[str]:
    return [sys.executable, "-c", f"import sys, time; print({text!r}, end='', flush=True); {after}"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_run_that_succeeds_says_how_many_steps_it_took() -> None:
    out = io.StringIO()
    assert supervise(script(ROUTINE.replace("1 of 2 steps (50%)", "2 of 2 steps (100%)")), lambda: "", out) == 0
    (line,) = out.getvalue().splitlines()
    assert line.endswith("2 of 2 steps, done in 0.0 min")
    out = io.StringIO()
    assert supervise(script(ROUTINE), lambda: "", out, shown=False) == 0
    assert out.getvalue() == "", "--quiet"


def test_a_run_that_fails_shows_why_and_keeps_its_exit_status() -> None:
    out = io.StringIO()
    assert supervise(script(ROUTINE + ERROR + END, "sys.exit(3)"), lambda: "", out) == 3
    said = out.getvalue().splitlines()
    assert "01:57:44 error: results/a.parquet is damaged" in said
    assert said[-1] == "Snakemake's log: /study/.snakemake/log/x.snakemake.log"
    assert supervise(script("", "import os; os.kill(os.getpid(), 9)"), lambda: "", io.StringIO()) == 137


CHILD = """
import signal, subprocess, sys, time
from pathlib import Path
def stop(number, frame):
    Path(sys.argv[1], f"signal-{signal.Signals(number).name}").touch()
    sys.exit(1)
signal.signal(signal.SIGINT, stop)
signal.signal(signal.SIGTERM, stop)
Path(sys.argv[1], "ready").touch()
time.sleep(60)
"""
PARENT = """
import sys
from searchlens.cli.run import supervise
sys.exit(supervise([sys.executable, sys.argv[2], sys.argv[1]], lambda: "", sys.stderr))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_ends_the_run_reaches_snakemake_which_ends_by_itself(tmp_path: Path, number: signal.Signals) -> None:
    """It cleans up and keeps finished samples; its status is that of the run."""
    (tmp_path / "child.py").write_text(CHILD)
    command = [sys.executable, "-c", PARENT, str(tmp_path), str(tmp_path / "child.py")]
    with subprocess.Popen(command, env=dict(os.environ)) as parent:
        while not (tmp_path / "ready").exists():
            assert parent.poll() is None
            time.sleep(0.05)
        parent.send_signal(number)
        assert parent.wait(30) == 1
    assert (tmp_path / f"signal-{number.name}").exists()
