"""The command line as a whole: its help, what every command takes, and what programs read."""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bad_inputs
from conftest import Patch, Said
from searchlens.cli.main import main, parser
from searchlens.cli.options import Commands, put
from searchlens.cli.terminal import Formatter, say_what_was_raised

ROOT = Path(__file__).parents[2]
PARSER: Commands = parser()
COMMANDS = PARSER.commands
STAGES = next(set(names) for title, names in PARSER.groups.items() if title.startswith("stages"))


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
    ("typed", "meant"),
    [(["stauts"], "status"), (["simulate", "--seed", "1", "--output", "x", "--size", "smal"], "small")],
)
def test_the_nearest_value_is_proposed(typed: list[str], meant: str, capsys: Said) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(typed)
    assert f"{typed[-1]!r} is unknown; did you mean {meant!r}?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["verify", " "], "' ' names nothing"),
        (["fingerprint", ""], "argument FOLDER: '' names nothing"),
        (["status", "--snapshot", "\t"], "argument --snapshot: '\\t' names nothing"),
        (["verify", "x" * 300], "xxx/config: File name too long"),
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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


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
