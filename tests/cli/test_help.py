"""What the command line says to somebody who does not know it: its help, with examples, and what it refuses."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from conftest import Patch, Said
from searchlens.cli.main import main, parser
from searchlens.cli.options import FIRST, Commands
from searchlens.errors import counted, unknown

PARSER: Commands = parser()
COMMANDS = PARSER.commands
OF_LAB = {"equivalence", "benchmark-samplers", "simulate"}


def listed(said: str) -> list[str]:
    """The commands that a help lists."""
    commands = said.split("\n\n", 3)[3]  # behind usage, description and options
    return [line.split()[0] for line in commands.splitlines() if line.startswith("  ")]


# ---- the list of commands


def test_the_help_lists_what_most_users_want(capsys: Said) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    said = capsys.readouterr().out
    names = listed(said)
    assert names == [name for names in FIRST.values() for name in names]
    assert len(names) <= 16 and not OF_LAB & set(names)
    assert all(len(line) <= 80 for line in said.splitlines())
    assert "searchlens --help --all" in said
    assert main([]) == 0
    assert capsys.readouterr().out == said


@pytest.mark.parametrize("typed", [["--help", "--all"], ["--all", "--help"], ["--all", "-h"], ["--all"]])
def test_the_other_commands_are_in_the_whole_help(typed: list[str], capsys: Said) -> None:
    try:
        main(typed)
    except SystemExit as end:
        assert end.code == 0
    said = capsys.readouterr().out
    assert sorted(listed(said)) == sorted(COMMANDS)
    assert all(len(line) <= 80 for line in said.splitlines())


# ---- examples


def examples() -> Iterator[tuple[str, str]]:
    """Every command with each of its examples."""
    for name, command in COMMANDS.items():
        head, *lines = (command.epilog or "").split("\n")
        assert head == "example:" and 1 <= len(lines) <= 2, name
        yield from ((name, line.strip()) for line in lines)


@pytest.mark.parametrize(("name", "line"), list(examples()))
def test_every_example_is_a_command(name: str, line: str) -> None:
    """Its names are those of the study that `searchlens init` writes."""
    program, *arguments = shlex.split(line)
    assert program == "searchlens" and len(line) <= 140
    args = parser().parse_args(arguments)
    assert args.command == name
    config = Path(__file__).parents[2] / "config"
    own = yaml.safe_load((Path(__file__).parents[2] / "src/searchlens/cli/templates/own.yaml").read_text())
    known = {
        "checkpoint": own["checkpoints"],
        "benchmark": own["benchmarks"],
        "pair": own["pairs"],
        "policy": yaml.safe_load((config / "policies.yaml").read_text())["policies"],
    }
    for key, names in known.items():
        value = getattr(args, key, None) or []
        assert set([value] if isinstance(value, str) else value) <= set(names)


def test_the_example_is_the_end_of_the_help(capsys: Said) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["compare", "--help"])
    assert capsys.readouterr().out.endswith(
        "\nexample:\n  searchlens compare --demo\n  searchlens compare logs/base --against logs/rl --html page.html\n"
    )


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("sample-size", ["--question-sd", "--sample-sd", "--model-sd", "--shared"]),
        ("compare", ["--id-key", "--question-key", "--gold-key"]),
    ],
)
def test_each_option_has_its_own_text(command: str, options: list[str]) -> None:
    texts = {name: COMMANDS[command]._option_string_actions[name].help for name in options}
    assert len(set(texts.values())) == len(options)


# ---- what is refused


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (["plan", "--cofig", "x"], "option '--cofig' is unknown; did you mean '--config'?"),
        (["--quite", "plan"], "option '--quite' is unknown; did you mean '--quiet'?"),
        (["compare", "a", "--agianst", "b"], "option '--agianst' is unknown; did you mean '--against'?"),
        (["plan", "--cofig=x"], "Hint: `searchlens plan --help` says more"),
        (["plna"], "Hint: `searchlens --help` says more"),
    ],
)
def test_the_nearest_option_is_proposed(typed: list[str], says: str, capsys: Said) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(typed)
    assert says in capsys.readouterr().err


def test_of_many_known_names_the_nearest_are_listed() -> None:
    many = [f"topk{n}_t0.7" for n in range(40)]
    said = unknown("topk17_t0.8", many)
    assert "did you mean 'topk17_t0.7'?" in said and said.endswith(" and 32 more")
    assert said.count("topk") == 10
    assert unknown("x", ["b", "a"]) == "'x' is unknown. Known: a, b"


def test_one_of_a_kind_is_in_the_singular() -> None:
    assert [counted(n, "question") for n in (0, 1, 2_000)] == ["0 questions", "1 question", "2,000 questions"]
    assert counted(2, "policy") == "2 policies"


@pytest.fixture
def new(tmp_path: Path, monkeypatch: Patch, capsys: Said) -> Path:
    """The folder of a study, fresh from `searchlens init`, as seen from the folder above."""
    monkeypatch.chdir(tmp_path)
    for name in ("SEARCHLENS_SNAPSHOT", "SEARCHLENS_STUDY"):
        monkeypatch.delenv(name, raising=False)
    assert main(["init", "mine"]) == 0
    assert "created config, profiles, slurm and Snakefile in mine/" in capsys.readouterr().out
    return tmp_path


def test_a_fresh_folder_is_asked_for_its_checkpoints_first(new: Path, capsys: Said) -> None:
    """By `run`, before it asks for a library; `check` is in test_check.py."""
    first = "config/own.yaml: checkpoints.mine-base.hub: your-org/your-base is a placeholder: name your checkpoint"
    assert main(["-C", "mine", "run"]) == 2
    assert f"searchlens: error: {first}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "status", "message", "hint"),
    [
        (["verify", "nowhere"], 2, "nowhere is not a results folder: it does not exist", "`searchlens run` makes"),
        (["verify", "mine"], 2, "mine is not a results folder: it is the folder of a study", "name its results"),
        (["export", "mine", "out", "--to", "csv"], 2, "mine is not a results folder: it is the folder of a study", ""),
        (["-C", "mine", "show"], 2, "results is not a results folder: it does not exist", "`searchlens run` makes it"),
        (
            ["compare", "no", "--against", "no"],
            2,
            "Base: cannot read no: No such file or directory",
            "correct the path",
        ),
        (
            ["compare", "mine/Snakefile", "--against", "no"],
            2,
            "has no format that is known",
            "docs/import.md describes the known formats:\n  ",
        ),
        (["sample-size", "--gap", "-1", "--models", "3", "--questions", "4"], 2, "--gap: -1.0; allowed", ""),
        (["sample-size", "--gap", "1", "--models", "1", "--questions", "4"], 2, "--models: 1; ", ""),
        (
            ["sample-size", "no", "--gap", "1", "--models", "3", "--questions", "4"],
            2,
            "no: must be a folder of landscapes, found nothing\n",
            "",
        ),
        (["-C", "mine", "record", "--output", "x"], 1, "nothing was recorded", "`searchlens -C mine run`"),
    ],
)
def test_a_mistake_is_answered_with_what_to_do(
    new: Path, typed: list[str], status: int, message: str, hint: str, capsys: Said
) -> None:
    assert main(typed) == status
    said = capsys.readouterr().err
    assert message in said
    assert not hint or f"Hint: {hint}" in said
    assert "Errno" not in said
