"""Words of others on the terminal: one function prints them, and nothing in them controls it."""

from __future__ import annotations

import ast
import gzip
import json
import logging
import os
from pathlib import Path

import pytest

import bad_inputs
from searchlens.cli.main import main
from searchlens.cli.terminal import Formatter, say_what_was_raised

ROOT = Path(__file__).parents[2] / "src/searchlens"
OUR_OWN = {"_schema": "a file of ours", "_completion": "a script of ours, with tabs", "say": "the function itself"}
"""Functions that print by themselves, and why they may."""

HOSTILE = "\x1b[2J\x1b]0;pw\x07\x9b1m\u202eevil\u2066\u200b\x7f\r"


def is_print(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    return name == "print" or name.endswith(("stdout.write", "stderr.write", "stdout.writelines"))


def test_one_function_prints() -> None:
    found = set()
    for path in [*ROOT.glob("cli/*.py"), *ROOT.glob("formats/*.py")]:
        for function in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(function, ast.FunctionDef):
                calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and is_print(node)]
                found |= {function.name} if calls else set()
    assert found == set(OUR_OWN)


def is_harmless(text: str) -> bool:
    return all(char == "\n" or char.isprintable() for char in text)


def run(command: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    try:
        status = main(command)
    except SystemExit as ended:
        status = int(str(ended.code))
    said = "".join(capfd.readouterr())
    assert is_harmless(said), (command, said)
    return status, said


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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


def test_what_a_log_has_controls_no_terminal(study: Path, capfd: pytest.CaptureFixture[str]) -> None:
    base, rl = log(study / "base.jsonl"), log(study / f"rl{HOSTILE}.jsonl")
    imported = ["import", str(rl), "--pair", "new", "--benchmark", "other", "--role", "rl", "--policy", "greedy"]
    status, said = run([*imported, "--yes"], capfd)
    assert status == 0 and "greedy" in said
    status, said = run(["compare", str(base), "--against", str(rl), "--grader", "math"], capfd)
    assert status == 0 and "\\x1b[2J" in said
    assert run(["imports"], capfd)[0] == 0


@pytest.mark.parametrize("word", ["{}", "none/{}", "{}.jsonl", "{}.parquet", "{}.eval"])
def test_what_is_refused_controls_no_terminal(study: Path, word: str, capfd: pytest.CaptureFixture[str]) -> None:
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


def test_a_file_whose_name_is_no_utf8_is_named(study: Path, capfd: pytest.CaptureFixture[str]) -> None:
    name = os.fsdecode(b"none\xff.jsonl")
    status, said = run(["fingerprint", name], capfd)
    assert status == 2 and "none\\udcff.jsonl" in said


@pytest.mark.parametrize("name", [b"log\xff.jsonl", b"log\xff.jsonl.gz", b"folder\xff/log.jsonl"])
def test_a_log_whose_name_is_no_utf8_is_read(study: Path, name: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    path = Path(os.fsdecode(name))
    path.parent.mkdir(exist_ok=True)
    content = log(study / "log.jsonl").read_bytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    imported = ["import", str(path), "--pair", "new", "--benchmark", "other", "--role", "rl", "--policy", "greedy"]
    assert run([*imported, "--yes"], capfd)[0] == 0
    assert "\\udcff" in run(["imports"], capfd)[1]
    html = ["--html", "page.html", "--grader", "math"]
    assert run(["compare", str(path), "--against", str(path), *html], capfd)[0] == 0
    assert (study / "page.html").read_text("utf-8")


def test_log_lines_and_what_nobody_expected_control_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    record = logging.LogRecord("searchlens", logging.INFO, "", 0, "model %s", (HOSTILE,), None)
    assert is_harmless(Formatter("%(asctime)s %(message)s").format(record))
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        say_what_was_raised(type(error), error, error.__traceback__)
    said = capfd.readouterr()
    assert said.out == "" and "ValueError: \\x1b[2J" in said.err and is_harmless(said.err)
