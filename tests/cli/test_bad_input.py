"""Bad input of every command: one message that names the file or key, no traceback, and nothing changed."""

import gzip
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from conftest import Patch, Said
from searchlens.cli.main import main

ROOT = Path(__file__).parents[2]


OVERLAYS: dict[str, tuple[bytes | None, str]] = {
    "missing": (None, "cannot read mine.yaml: No such file or directory"),
    "empty": (b"", "mine.yaml must be a mapping of keys, found nothing"),
    "encoding": (b'results: "\xff"\n', "mine.yaml is not text in UTF-8: byte 11 is 0xff"),
    "key twice": (b"seed: 1\nseed: 2\n", "mine.yaml, line 2: seed is already in line 1"),
    "date": (b"lock: 2026-01-02\n", "mine.yaml: lock: 2026-01-02 is a date"),
    "policy twice": (b"references: [greedy, greedy]\n", "mine.yaml: references: 'greedy' is there more than once"),
    "lock": (
        b"lock: config\ncheckpoints: {micro-1m-rl: {path: null, sha256: null, hub: a/b}}\n",
        "cannot read config: Is a directory",
    ),
    "results empty": (b'results: ""\n', "mine.yaml: results: needs a name, found ''"),
    "results line break": (b'results: "a\\nb"\n', "mine.yaml: results: must not have line breaks"),
    "results long": (b"results: " + b"x" * 256 + b"\n", "mine.yaml: results: has a name of more than 255 bytes"),
    "gzip": (gzip.compress(b"seed: 1\n"), "mine.yaml is not text in UTF-8: byte 2 is 0x8b; it seems to be a file comp"),
    "no pairs": (b"study: {pairs: []}\n", "the study has no cell: study.pairs or study.benchmarks is empty"),
    "empty pool": (
        b"pools: {few: []}\nbenchmarks: {math: {pool: few}}\n",
        "mine.yaml: pools.few: must have at least one policy",
    ),
    "pool without the default": (
        b"pools: {few: [temp_0.5]}\nbenchmarks: {math: {pool: few, searches: null}}\n",
        "benchmarks.math.pool: 'few' does not have the default policy 'topp0.95_t1.0'; it has",
    ),
    "device": (b"benchmarks: {math: {path: /dev/zero}}\n", "benchmarks.math: cannot read /dev/zero: it is a device"),
    "results": (b"results: config/config.yaml\n", "cannot write to the results folder config/config.yaml"),
}
"""A configuration file that is merged over the shipped ones, and what `check` says of it."""

SAMPLES = {"--pair": "mine", "--role": "base", "--benchmark": "own", "--policy": "greedy"}


def samples(**changes: str) -> list[str]:
    """Arguments of `import` with some of them changed."""
    values: Mapping[str, str] = {**SAMPLES, **{f"--{key}": value for key, value in changes.items()}}
    return ["import", "mine", *(part for item in values.items() for part in item)]


GOOD = b'{"question": "q", "sample": 0, "text": "x", "gold": "1"}\n'
COMMANDS: dict[str, tuple[list[str], bytes | None, str]] = {
    "samples no JSON": (
        samples(),
        b"not\n",
        "mine has no format that is known: no row of it can be read: mine:1: not JSON",
    ),
    "samples encoding": (samples(), b"\xff\n", "mine has no format that is known: mine:1: not UTF-8 text"),
    "samples later no JSON": (samples(), GOOD + b"not\n", "mine:2: not JSON: Expecting value"),
    "samples grader": (samples(grader="mth"), GOOD, "grader 'mth' is unknown; did you mean 'math'? Known: choice"),
    "samples name": (samples(pair="a b"), GOOD, "pair 'a b' cannot be a name; allowed: at most 100 letters"),
    "samples ids": (
        samples(benchmark="math"),
        GOOD,
        "mine:1: not a question of the benchmark: neither its id nor its text",
    ),
    "landscapes file": (
        ["boptr", "mine", "--output", "out"],
        b"x",
        "mine: must be a folder of landscapes, found a file",
    ),
    "draws": (["boptr", "config", "--output", "out", "--draws", "-1"], None, "--draws: -1; allowed: 100 or more"),
    "simulate file": (["simulate", "--seed", "1", "--size", "small", "--output", "mine"], b"x", "mine: it is a file"),
    "snapshot missing": (["plan", "--snapshot", "mine"], None, "mine does not exist"),
    "snapshot empty": (["summary", "--snapshot", "mine"], b"{}", "mine is no snapshot of a configuration"),
    "manifest": (
        ["score", "--checkpoint", "micro-1m-rl", "--benchmark", "math", "--output", "out", "mine"],
        None,
        "cannot read mine: No such file",
    ),
    "checkpoint": (
        ["generate", "--checkpoint", "x", "--benchmark", "math"],
        None,
        "checkpoint 'x' is unknown. Known: ",
    ),
    "cell": (["rerun", "--checkpoint", "micro-1m-rl", "--benchmark", "x"], None, "benchmark 'x' is unknown. Known: "),
    "work": (
        ["work", "--config", "mine"],
        b"checkpoints: {micro-1m-base: {path: null, sha256: null, hub: a/b}}",
        "checkpoints.micro-1m-base.hub: model a/b@main is not pinned in config/lock.json",
    ),
    "gap": (
        ["sample-size", "--gap", "nan", "--models", "3", "--questions", "4"],
        None,
        "gap: nan; allowed: a finite number",
    ),
    "fingerprint": (["fingerprint", "mine"], None, "checkpoint folder mine does not exist"),
}
"""Arguments, the content of the file `mine` (None: there is none), and what the command says."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A working directory with the shipped configuration and one file of samples that must stay."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SEARCHLENS_SNAPSHOT", raising=False)
    for name in ("config", "resources"):
        (tmp_path / name).symlink_to(ROOT / name)
    kept = tmp_path / "results/generations/micro-1m-rl/math/abc/0-1.parquet"
    kept.parent.mkdir(parents=True)
    kept.write_text("samples")
    return tmp_path


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, links left out."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not {"config", "resources"} & set(path.relative_to(folder).parts)
    }


def refused(folder: Path, arguments: list[str], says: str, capsys: Said) -> None:
    before = content(folder)
    assert main(arguments) == 2
    said = re.sub(r"\Astudy: .*\n", "", capsys.readouterr().err)  # which files the study was read from
    assert said.startswith("searchlens: error: ")
    assert says in said
    assert "Traceback" not in said
    assert content(folder) == before, "bad input changed a file"


@pytest.mark.parametrize("name", OVERLAYS)
def test_a_bad_configuration_is_refused(folder: Path, name: str, capsys: Said) -> None:
    text, says = OVERLAYS[name]
    if text is not None:
        (folder / "mine.yaml").write_bytes(text)
    refused(folder, ["check", "--config", "mine.yaml"], says, capsys)


@pytest.mark.parametrize("command", ["plan", "status", "prune", "pin", "verify", "summary", "work", "pull x"])
def test_every_command_refuses_a_bad_configuration(folder: Path, command: str, capsys: Said) -> None:
    (folder / "mine.yaml").write_text("samples: -3\n")
    refused(folder, [*command.split(), "--config", "mine.yaml"], "mine.yaml: samples: must be an integer, >= 1", capsys)


@pytest.mark.parametrize("name", COMMANDS)
def test_bad_arguments_and_files_are_refused(folder: Path, name: str, capsys: Said) -> None:
    arguments, text, says = COMMANDS[name]
    if text is not None:
        (folder / "mine").write_bytes(text)
    refused(folder, arguments, says, capsys)


def test_a_number_of_threads_is_positive(folder: Path, capsys: Said) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["equivalence", "--output", "out", "--threads", "-3"])
    assert "--threads: '-3'; allowed: a whole number >= 1" in capsys.readouterr().err


def test_a_file_that_does_not_set_the_wrong_key_is_not_blamed(folder: Path, capsys: Said) -> None:
    """Both files have the section; the first has the mistake."""
    (folder / "mine.yaml").write_text("study: {smple: all}\n")
    (folder / "yours.yaml").write_text(json.dumps({"study": {"pairs": ["micro-1m"]}}))
    says = "mine.yaml: study: 'smple' is unknown; did you mean 'sample'?"
    refused(folder, ["check", "--config", "mine.yaml", "--config", "yours.yaml"], says, capsys)


@pytest.mark.parametrize("command", [["check"], ["verify"], ["boptr"]])
def test_a_second_file_after_one_config_is_refused(folder: Path, command: list[str], capsys: Said) -> None:
    """It would be taken for another argument, such as the folder of `verify`."""
    arguments = [*command, "--config", "mine.yaml", "yours.yaml", "--output", "results"]
    refused(folder, arguments, "Hint: --config mine.yaml --config yours.yaml", capsys)


def test_a_study_folder_that_is_not_there_is_refused(folder: Path, capsys: Said) -> None:
    refused(folder, ["-C", "nowhere", "check"], "-C: nowhere is not a folder", capsys)


@pytest.mark.parametrize(
    ("arguments", "overlay", "says"),
    [
        (["check", "--config", "pipe"], "", "cannot read pipe: it is a named pipe"),
        (
            ["check", "--config", "mine.yaml"],
            "benchmarks: {math: {path: pipe}}",
            "benchmarks.math: cannot read pipe: it",
        ),
        (["plan", "--snapshot", "pipe"], "", "cannot read pipe: it is a named pipe"),
        ([part.replace("mine", "pipe") for part in samples(pair="p")], "", "cannot read pipe: it is a named pipe"),
        (
            ["sample-size", "pipe", "--gap", "1", "--models", "3", "--questions", "4"],
            "",
            "pipe: must be a folder of landscapes, found a file",
        ),
    ],
)
def test_a_named_pipe_is_not_waited_for(
    folder: Path, arguments: list[str], overlay: str, says: str, capsys: Said
) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "mine.yaml").write_text(overlay)
    refused(folder, arguments, says, capsys)
