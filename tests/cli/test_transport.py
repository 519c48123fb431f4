"""Samples that are carried between folders, one of them behind a program in place of ssh."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import Patch, Said, toy_study, write_config
from searchlens.cli import transport
from searchlens.cli.main import main
from searchlens.config import check
from searchlens.plan import Grid

CELL = ("toy-base", "sums")
SSH = """#!/bin/sh
[ "$1" = -- ] && shift
[ "$1" = far ] || { echo "ssh: Could not resolve hostname $1" >&2; exit 255; }
shift
exec sh -c "$*"
"""

pytestmark = pytest.mark.skipif(
    not (shutil.which("rsync") or os.environ.get("SEARCHLENS_CI")), reason="rsync is not installed"
)


@pytest.fixture
def here(tmp_path: Path, publish: Callable[..., Any], monkeypatch: Patch) -> Path:
    """A study with samples, beside one without; ``far`` is a host that only a program in place of ssh knows."""
    (tmp_path / "here").mkdir()
    raw = toy_study(tmp_path / "here")
    for name in ("here", "there"):
        write_config(tmp_path / name, raw)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ssh").write_text(SSH)
    (tmp_path / "bin/ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path / "here")
    grid = Grid(check.validate(raw))
    for generation in grid.jobs.generations(*CELL):
        publish(grid, *CELL, generation)
    chunk = grid.folder(*CELL, "unfinished") / "chunks/s00000-00004.q00000-00001.chunk"
    chunk.parent.mkdir(parents=True)
    chunk.touch()
    return tmp_path / "here"


def content(folder: Path) -> dict[str, bytes]:
    paths = (path for path in (folder / "results").rglob("s*-*") if path.suffix != ".chunk")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.parametrize("host", ["", "far:"])
def test_what_was_broken_off_goes_on_and_comes_back_verified(
    here: Path, host: str, monkeypatch: Patch, capsys: Said
) -> None:
    there, run = here.with_name("there"), transport._run
    place = f"{host}{there}"

    def broken_off(command: list[str]) -> Any:
        if command[0] == "rsync" and "--include=*.parquet" not in command:
            raise KeyboardInterrupt
        return run(command)

    with monkeypatch.context() as patch:
        patch.setattr(transport, "_run", broken_off)
        assert main(["push", place]) == 130
    arrived = content(there)
    assert {Path(name).suffix for name in arrived} == {".parquet"}, "no sidecar is there before its shard"
    assert main(["push", place]) == 0
    assert f"{len(arrived)} files sent to {place}; there: 4 shards" in capsys.readouterr().out
    assert content(there) == content(here) and not list(there.rglob("chunks"))
    shutil.rmtree(here / "results")
    assert main(["pull", place]) == 0
    assert content(there) == content(here)
    assert main(["pull", place]) == 0
    assert "0 files fetched" in capsys.readouterr().out


@pytest.mark.parametrize("host", ["", "far:"])
def test_a_file_that_is_there_stays_and_is_named_if_it_is_damaged(here: Path, host: str, capsys: Said) -> None:
    there = here.with_name("there")
    assert main(["push", str(there)]) == 0
    harmed = next((there / "results").rglob("*.parquet"))
    harmed.write_bytes(b"harmed")
    assert main(["push", f"{host}{there}"]) == 2
    said = capsys.readouterr().err
    assert str(harmed.relative_to(there)) in said and "1 damaged or missing" in said
    assert "`searchlens verify --repair` in both folders" in said, "the file may have come damaged"
    assert harmed.read_bytes() == b"harmed"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("push nowhere:x", "cannot reach nowhere: ssh: Could not resolve hostname nowhere\nHint: `ssh nowhere` must"),
        ("pull far:/", "far:/ is not the folder of a study: no config/*.yaml is there"),
        ("push .", "is this study itself"),
        ("pull ../there", "cannot use its results folder results: "),
        (
            "push far:{there} --there no-such",
            "everything arrived, but far has no no-such to verify it\nHint: name it",
        ),
    ],
)
def test_where_nothing_can_be_carried_to_is_one_clear_line(here: Path, command: str, says: str, capsys: Said) -> None:
    assert main(command.format(there=here.with_name("there")).split()) == 2
    assert says in capsys.readouterr().err


def test_the_file_that_rsync_cannot_carry_is_named_and_a_file_in_place_of_results(here: Path, capsys: Said) -> None:
    there, broken = here.with_name("there"), next((here / "results").rglob("*.parquet"))
    broken.unlink()
    broken.symlink_to("/nowhere")
    assert main(["push", str(there)]) == 1
    assert f'rsync ended with status 23: symlink has no referent: "{broken}"' in capsys.readouterr().err
    (here.with_name("bin") / "ssh").write_text(SSH.replace("exec", "echo hello\nexec"))
    assert main(["push", f"far:{there}"]) == 1
    assert "protocol version mismatch -- is your shell clean?" in capsys.readouterr().err
    shutil.rmtree(there / "results")
    (there / "results").touch()
    assert main(["-C", str(there), "pull", str(here)]) == 2
    assert "cannot write to results: Not a directory\nHint: make the results folder writable" in capsys.readouterr().err


@pytest.mark.parametrize("far", [False, True])
def test_without_rsync_it_says_on_which_machine(here: Path, far: bool, monkeypatch: Patch, capsys: Said) -> None:
    """There the shell finds none; here nothing does."""
    tools = here.with_name("bin")
    for name in ("sh", "ls", *(["rsync"] if far else [])):
        (tools / name).symlink_to(str(shutil.which(name)))
    if far:
        (tools / "ssh").write_text(SSH.replace("exec sh", f"PATH={here.parent} exec {shutil.which('sh')}"))
        (here.parent / "ls").symlink_to(str(shutil.which("ls")))
    monkeypatch.setenv("PATH", str(tools))
    assert main(["push", f"far:{here.with_name('there')}"]) == 2
    assert f"rsync is not installed {'on far' if far else 'here'}" in capsys.readouterr().err
