"""`searchlens run`: one line of progress in place of Snakemake's blocks, every error, its exit status, and Ctrl-C."""

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from conftest import Patch, Said
from searchlens.cli.main import main
from searchlens.cli.run import Filter, supervise
from searchlens.config import addons, project
from searchlens.errors import InputError, JobStoppedError
from searchlens.zoo import load_pair
from test_status import Terminal

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
localrule score_micro-1m:
    input: results/a.parquet
    jobid: 1

01:57:42 a/math: 240 samples: 157 right
Loading weights: 100%|##########| 62/62 [00:00<00:00, 3150.52it/s]
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


# ---- What the system, a signal or a missing library does to a command: it is said in one line


ROOT = Path(__file__).parents[2]


def test_what_the_system_refuses_is_one_line(monkeypatch: Patch, capsys: Said) -> None:
    """For example a disk that fails."""

    def fails(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error", "results/x.parquet")

    monkeypatch.setattr("searchlens.cli.study.check", fails)
    assert main(["check"]) == 1
    said = capsys.readouterr().err.splitlines()[-2:]
    assert said[0] == "searchlens: error: cannot use results/x.parquet: Input/output error"
    assert said[1].startswith("Hint: ")


def test_ctrl_c_ends_a_command_with_one_line(monkeypatch: Patch, capsys: Said) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("searchlens.cli.study.check", interrupted)
    assert main(["check"]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "searchlens: interrupted"


def test_a_job_whose_reader_is_gone_still_ends_by_its_status(monkeypatch: Patch) -> None:
    """A signal to all processes of a job ends `tee` at once, and the last line has nowhere to go."""

    def stopped(_: Any) -> None:
        raise JobStoppedError("stopped by SIGTERM")

    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr("searchlens.cli.tools._schema", stopped)
    monkeypatch.setattr(sys, "stderr", Closed())
    assert main(["schema"]) == 75


@pytest.mark.parametrize("module", sorted(name for name, extra in addons.EXTRAS.items() if extra not in addons.CLONED))
def test_a_missing_library_is_answered_with_what_can_be_installed(module: str, monkeypatch: Patch) -> None:
    """By their names: this package is in no registry."""
    hint = addons.missing(module).hint
    assert re.fullmatch(r"pip install( '[\w-]+[<>=.,\d]*')+", hint)
    monkeypatch.setattr("importlib.metadata.distributions", lambda name: [])
    assert addons.missing(module).hint == f"pip install -e '.[{addons.EXTRAS[module]}]' in a clone of the repository"


def test_a_demo_needs_the_micro_pair(tmp_path: Path, monkeypatch: Patch, capsys: Said) -> None:
    """A package without a checkout, and without the wheel of the pair."""
    (tmp_path / "wheel").mkdir()
    monkeypatch.setattr(project, "root", lambda: tmp_path / "wheel")
    assert main(["init", "--demo", str(tmp_path / "demo")]) == 2
    assert (
        "searchlens_zoo is not installed here\nHint: pip install ./resources/zoo in a clone" in capsys.readouterr().err
    )
    assert not (tmp_path / "demo").exists()


def test_the_micro_pair_is_found_in_its_package(tmp_path: Path, monkeypatch: Patch) -> None:
    (tmp_path / "site/searchlens_zoo").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert project.locate("zoo:micro-1m-base") == ROOT / "resources/zoo/micro-1m-base", "a checkout has its own"
    monkeypatch.setattr(project, "root", lambda: tmp_path / "wheel")
    assert project.locate("zoo:micro-1m-base") == tmp_path / "site/searchlens_zoo/micro-1m-base"
    with pytest.raises(InputError, match="zoo:cohort/orz-rl: the cohort of the zoo is in the repository alone"):
        project.locate("zoo:cohort/orz-rl")
    with pytest.raises(InputError, match="the cohort of the zoo is in the repository alone"):
        load_pair("orz")


def test_a_run_without_snakemake_is_refused_before_it_samples(tmp_path: Path, monkeypatch: Patch, capsys: Said) -> None:
    shutil.copytree(ROOT / "config", tmp_path / "config")
    (tmp_path / "resources").symlink_to(ROOT / "resources")
    monkeypatch.setattr(addons, "find_spec", lambda name: None if name == "snakemake" else find_spec(name))
    assert main(["-C", str(tmp_path), "run"]) == 2
    assert re.search("snakemake is not installed here\nHint: pip install .*'snakemake[<>=]", capsys.readouterr().err)


def test_a_line_is_written_over_on_a_terminal_and_messages_stand_alone(monkeypatch: Patch) -> None:
    monkeypatch.setattr("searchlens.cli.status.TERMINAL_SECONDS", 0.0)
    out = Terminal()
    assert supervise(script(ROUTINE + HEALTH + "\n", "time.sleep(1.2)"), lambda: "25% sampled", out) == 0
    text = out.getvalue()
    assert "\r1 of 2 steps, 25% sampled" in text
    assert f"\n{HEALTH}\n" in text and text.endswith("\n")
