"""The command line as a whole: its help, what every command takes, and what programs read."""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys

import pytest

from searchlens import cli
from searchlens.cli.options import CommandsParser

PARSER: CommandsParser = cli.parser()
COMMANDS: dict[str, argparse.ArgumentParser] = next(
    dict(action.choices) for action in PARSER._actions if isinstance(action, argparse._SubParsersAction)
)
STAGES = next(set(names) for title, names in PARSER.groups.items() if title.startswith("stages"))


def test_the_command_alone_lists_every_command_once_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    said = capsys.readouterr().out
    assert all(len(line) <= 80 for line in said.splitlines())
    listed = [line.split()[0] for line in said.split("a study:")[1].splitlines() if line.startswith("  ")]
    assert sorted(listed) == sorted(COMMANDS)
    assert [title.split()[0] for title in PARSER.groups] == ["a", "stages", "logs", "samples", "tools"]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_argument_has_a_sentence_and_no_empty_default(name: str) -> None:
    """Nor are options of stages in the help of other commands."""
    said = COMMANDS[name].format_help()
    shown = [action for action in COMMANDS[name]._actions if action.help != argparse.SUPPRESS]
    assert all(action.help and len(action.help.split()) > 1 for action in shown)
    assert not any(f"(default: {empty})" in said for empty in ("None", "[]", ""))
    assert ("--snapshot" in said) == (name in STAGES)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [(["stauts"], "status"), (["simulate", "--seed", "1", "--output", "x", "--size", "smal"], "small")],
)
def test_the_nearest_value_is_proposed(typed: list[str], meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(typed)
    assert f"{typed[-1]!r} is unknown; did you mean {meant!r}?" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize(("option", "level"), [("--quiet", logging.WARNING), ("--verbose", logging.DEBUG)])
def test_progress_can_be_left_out(place: str, option: str, level: int) -> None:
    assert PARSER.parse_args([option, "status"] if place == "before" else ["status", option]).level == level
    assert PARSER.parse_args(["status"]).level == logging.INFO


@pytest.mark.parametrize(
    ("typed", "new"),
    [
        (["generate", "--model", "x"], "--checkpoint"),
        (["figures", "--model", "x"], "--pair"),
        (["tables", "--out", "x"], "--output"),
        (["record", "--out", "x"], "--output"),
    ],
)
def test_one_word_for_one_thing(typed: list[str], new: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(typed) == 2
    assert f"{typed[1]} is now {new}" in capsys.readouterr().err


def test_a_job_loads_no_reader_of_yaml_before_it_needs_one() -> None:
    """Every job of a run starts the command; with a snapshot it needs neither pydantic nor YAML, nor any frame."""
    code = "import sys, searchlens.cli; print(*sorted({'pydantic', 'yaml', 'polars', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
