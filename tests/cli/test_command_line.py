"""The command line as a whole: its help with examples, what every command takes, and what programs read."""

import argparse
import ast
import gzip
import json
import logging
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import bad_inputs
from conftest import Patch, Said
from scripts import printed
from searchlens.cli.main import main, parser
from searchlens.cli.options import FIRST, Commands, put
from searchlens.cli.terminal import Formatter, say_what_was_raised
from searchlens.errors import counted, unknown

ROOT = Path(__file__).parents[2]
PARSER: Commands = parser()
COMMANDS = PARSER.commands
STAGES = next(set(names) for title, names in PARSER.groups.items() if title.startswith("stages"))
COUNTED = ("-C", str(ROOT), "landscape", "--benchmark", "math", "--output", "out")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_argument_has_a_sentence_and_no_empty_default(name: str) -> None:
    """Nor are options of stages in the help of other commands."""
    said = COMMANDS[name].format_help()
    assert said.startswith(f"usage: searchlens {name} ")
    shown = [action for action in COMMANDS[name]._actions if action.help != argparse.SUPPRESS]
    assert all(action.help and len(action.help.split()) > 1 for action in shown)
    assert not any(f"(default: {empty})" in said for empty in ("None", "[]", ""))
    assert ("--snapshot" in said) == (name in STAGES)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["verify", " "], "' ' names nothing"),
        (["fingerprint", ""], "argument FOLDER: '' names nothing"),
        (["status", "--snapshot", "\t"], "argument --snapshot: '\\t' names nothing"),
        (["verify", "x" * 300], "xxx/config: File name too long\nHint: give a shorter name"),
        ([*COUNTED, "--scores", str(ROOT / "docs")], "docs: Is a directory\nHint: name a file"),
    ],
)
def test_a_name_that_no_file_can_have_is_wrong_input(typed: list[str], said: str, capsys: Said) -> None:
    """Not a failure of the system, which has status 1; and a blank can be read in the message."""
    try:
        status = main(typed)
    except SystemExit as end:  # of argparse
        status = int(end.code or 0)
    assert status == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize(("option", "level"), [("--quiet", logging.WARNING), ("--verbose", logging.DEBUG)])
def test_progress_can_be_left_out(place: str, option: str, level: int) -> None:
    assert PARSER.parse_args([option, "status"] if place == "before" else ["status", option]).level == level
    assert PARSER.parse_args(["status"]).level == logging.INFO


def test_a_job_loads_no_reader_of_yaml_before_it_needs_one() -> None:
    """Every job of a run starts the command; with a snapshot it needs neither pydantic nor YAML, nor any frame."""
    code = "import sys, searchlens.cli; print(*sorted({'pydantic', 'yaml', 'polars', 'numpy'} & set(sys.modules)))"
    assert printed(code) == ""


@pytest.fixture
def study(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A folder with a configuration of its own, of which nothing was run."""
    for name in ("config", "resources"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "mine.yaml").write_text("results: results/mine\nstudy: {benchmarks: [math]}\nequivalence: null\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SEARCHLENS_SNAPSHOT", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "keys", "says"),
    [
        ("check", {"cells": 2, "missing": []}, "{cells} cells"),
        ("plan", {"to_make": 58, "without_boptr": ""}, "{to_make} to make, about {tokens:,} tokens"),
        ("status", {"scored": 0, "failed": []}, "{scored} scored"),
        ("benchmarks", {}, "gpqa"),
    ],
)
def test_programs_read_the_numbers_that_people_read(
    study: Path, name: str, keys: dict[str, Any], says: str, capsys: Said
) -> None:
    """Both writers have the same answer, and only the answer is on the standard output."""
    command = [name, "--config", "mine.yaml"]
    assert main([*command, "--json"]) == 0
    written = capsys.readouterr()
    found = json.loads(written.out)
    assert {key: found[key] for key in keys} == keys
    assert written.err == "study: mine.yaml; results: results/mine\n"
    assert main([*command, "--quiet"]) == 0
    written = capsys.readouterr()
    assert says.format(**found) in written.out
    assert written.err == ""


def test_the_summary_names_the_command_that_makes_its_tables(study: Path, capsys: Said) -> None:
    assert main(["summary", "-C", str(study), "--config", "mine.yaml"]) == 2
    assert f"Hint: `searchlens -C {study} run --config mine.yaml` makes it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "stage"),
    [
        (["figures", "--pair", "micro-1m", "--benchmark", "math", "--output", "x"], "landscape"),
        (["landscape", "--benchmark", "math", "--scores", "nowhere.parquet", "--output", "x"], "score"),
        (["recovery", "--benchmark", "math", "--base", "nowhere", "--rl", "nowhere", "--output", "x"], "landscape"),
        (["overview", "--output", "x"], "landscape"),
        (["tables", "--output", "x"], "landscape"),
        (["measures"], "landscape"),
        (["compare-graders", "--checkpoint", "micro-1m-base", "--benchmark", "math", "--output", "x"], "score"),
        (["transfer", "results", "--output", "x"], "boptr"),
    ],
)
def test_a_stage_without_its_input_names_the_stage_before(
    study: Path, command: list[str], stage: str, capsys: Said
) -> None:
    (study / "results").mkdir()
    assert main([*command, "--config", "mine.yaml"]) == 2
    said = capsys.readouterr().err
    assert f"Hint: `searchlens run` makes it, or its stage alone: `searchlens {stage}`" in said
    assert said.count("study:") == 1


def test_several_cells_have_one_file_and_one_folder_each(capsys: Said) -> None:
    cells = ["--benchmark", "math", "aime", "--scores", "one.parquet", "--output", "x", "y"]
    assert main(["landscape", *cells]) == 2
    assert "--scores: 1 given; wanted: one for each benchmark, 2" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_completes_commands_and_options(shell: str, capsys: Said) -> None:
    """The shell itself reads what is printed, if it is installed here."""
    pytest.importorskip("shtab")
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in ("searchlens", "recovery", "--checkpoint", "--snapshot"))
    assert "--landscape" not in script, "an option that was renamed"
    if program := shutil.which(shell):
        subprocess.run([program, "-n", "-c", script], check=True, capture_output=True)


def test_json_has_no_number_that_is_none(capsys: Said) -> None:
    """Python writes NaN, which other languages cannot read."""
    answer = {"a": float("nan"), "b": [float("inf"), 1.5, {"c": -float("inf")}], "d": (2, None)}
    put(argparse.Namespace(json=True), answer, str)
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {
        "a": None, "b": [None, 1.5, {"c": None}], "d": [2, None]
    }  # fmt: skip


# ---- Words of others on the terminal: one function prints them, and nothing in them controls it


SOURCES = Path(__file__).parents[2] / "src/searchlens"
OUR_OWN = {"_schema": "a file of ours", "_completion": "a script of ours, with tabs", "say": "the function itself"}
"""Functions that print by themselves, and why they may."""

HOSTILE = "\x1b[2J\x1b]0;pw\x07\x9b1m\u202eevil\u2066\u200b\x7f\r"


def is_print(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    return name == "print" or name.endswith(("stdout.write", "stderr.write", "stdout.writelines"))


def test_one_function_prints() -> None:
    found = set()
    for path in [*SOURCES.glob("cli/*.py"), *SOURCES.glob("formats/*.py")]:
        for function in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(function, ast.FunctionDef):
                calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and is_print(node)]
                found |= {function.name} if calls else set()
    assert found == set(OUR_OWN)


def is_harmless(text: str) -> bool:
    return all(char == "\n" or char.isprintable() for char in text)


def run(command: list[str], capfd: Said) -> tuple[int, str]:
    try:
        status = main(command)
    except SystemExit as ended:
        status = int(str(ended.code))
    said = "".join(capfd.readouterr())
    assert is_harmless(said), (command, said)
    return status, said


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Patch) -> Path:
    bad_inputs.write_study(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def log(path: Path) -> Path:
    rows = [
        {"question": f"q{i}", "sample": s, "text": f"{HOSTILE} \\boxed{{{i}}}", "gold": str(i), "model": HOSTILE}
        for i in range(4)
        for s in range(2)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_what_a_log_has_controls_no_terminal(folder: Path, capfd: Said) -> None:
    base, rl = log(folder / "base.jsonl"), log(folder / f"rl{HOSTILE}.jsonl")
    imported = ["import", str(rl), "--pair", "new", "--benchmark", "other", "--role", "rl", "--policy", "greedy"]
    status, said = run([*imported, "--yes"], capfd)
    assert status == 0 and "greedy" in said
    status, said = run(["compare", str(base), "--against", str(rl), "--grader", "math"], capfd)
    assert status == 0 and "\\x1b[2J" in said
    assert run(["imports"], capfd)[0] == 0


@pytest.mark.parametrize("word", ["{}", "none/{}", "{}.jsonl", "{}.parquet", "{}.eval"])
def test_what_is_refused_controls_no_terminal(folder: Path, word: str, capfd: Said) -> None:
    name = word.format(HOSTILE)
    for command in (
        [name],
        ["check", "--config", name],
        ["check", name],
        ["-C", name, "check"],
        ["import", name, "--pair", name, "--benchmark", name, "--role", name],
        ["import", name, "--pair", "new", "--benchmark", "other", "--role", "rl", "--policy", "greedy"],
        ["compare", name, "--against", name],
        ["show", name],
        ["verify", name],
        ["generate", "--checkpoint", name, "--benchmark", "sums"],
        ["fingerprint", name],
    ):
        status, said = run(command, capfd)
        assert status in (1, 2) and said


def test_a_file_whose_name_is_no_utf8_is_named(folder: Path, capfd: Said) -> None:
    name = os.fsdecode(b"none\xff.jsonl")
    status, said = run(["fingerprint", name], capfd)
    assert status == 2 and "none\\udcff.jsonl" in said


@pytest.mark.parametrize("name", [b"log\xff.jsonl", b"log\xff.jsonl.gz", b"folder\xff/log.jsonl"])
def test_a_log_whose_name_is_no_utf8_is_read(folder: Path, name: bytes, capfd: Said) -> None:
    path = Path(os.fsdecode(name))
    path.parent.mkdir(exist_ok=True)
    content = log(folder / "log.jsonl").read_bytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    imported = ["import", str(path), "--pair", "new", "--benchmark", "other", "--role", "rl", "--policy", "greedy"]
    assert run([*imported, "--yes"], capfd)[0] == 0
    assert "\\udcff" in run(["imports"], capfd)[1]
    html = ["--html", "page.html", "--grader", "math"]
    assert run(["compare", str(path), "--against", str(path), *html], capfd)[0] == 0
    assert (folder / "page.html").read_text("utf-8")


def test_log_lines_and_what_nobody_expected_control_no_terminal(capfd: Said) -> None:
    record = logging.LogRecord("searchlens", logging.INFO, "", 0, "model %s", (HOSTILE,), None)
    assert is_harmless(Formatter("%(asctime)s %(message)s").format(record))
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        say_what_was_raised(type(error), error, error.__traceback__)
    said = capfd.readouterr()
    assert said.out == "" and "ValueError: \\x1b[2J" in said.err and is_harmless(said.err)


# ---- help and examples


OF_LAB = {"equivalence", "benchmark-samplers", "simulate"}


def listed(said: str) -> list[str]:
    """The commands that a help lists."""
    commands = said.split("\n\n", 3)[3]  # behind usage, description and options
    return [line.split()[0] for line in commands.splitlines() if line.startswith("  ")]


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
        (["stauts"], "'stauts' is unknown; did you mean 'status'?"),
        (["simulate", "--seed", "1", "--output", "x", "--size", "smal"], "'smal' is unknown; did you mean 'small'?"),
    ],
)
def test_the_nearest_option_or_value_is_proposed(typed: list[str], says: str, capsys: Said) -> None:
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
