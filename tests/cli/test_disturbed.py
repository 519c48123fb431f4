"""What the system, a signal or a library that is not there does to a command: it is said in one line."""

from __future__ import annotations

import io
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from searchlens.cli.main import main
from searchlens.cli.run import supervise
from searchlens.config import addons, project
from searchlens.errors import InputError, JobStoppedError
from searchlens.zoo import load_pair
from test_supervise import HEALTH, ROUTINE, Terminal, script

Patch = pytest.MonkeyPatch
Said = pytest.CaptureFixture[str]

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
