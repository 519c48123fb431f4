"""Bad input of every command: one message that names the file or key, no traceback, and nothing changed."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from searchlens.cli.main import main

ROOT = Path(__file__).parents[2]


def _aliases(levels: int) -> bytes:
    """A few hundred bytes that stand for 9 ** levels values."""
    last = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines = [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, levels)]
    return "\n".join(last + lines).encode()


OVERLAYS: dict[str, tuple[bytes | None, str]] = {
    "missing": (None, "cannot read mine.yaml: No such file or directory"),
    "empty": (b"", "mine.yaml must be a mapping of keys, found nothing"),
    "list": (b"- a\n", "mine.yaml must be a mapping of keys, found a list"),
    "number": (b"42\n", "mine.yaml must be a mapping of keys, found a number"),
    "encoding": (b'results: "\xff"\n', "mine.yaml is not text in UTF-8: byte 11 is 0xff"),
    "zero byte": (b"a\0b: 1\n", "mine.yaml is not YAML"),
    "syntax": (b"seed: [1\n", "mine.yaml is not YAML"),
    "python": (b"seed: !!python/object:os.system x\n", "mine.yaml is not YAML"),
    "circle": (b"a: &a [*a]\n", "mine.yaml: an alias stands inside of what it names"),
    "key twice": (b"seed: 1\nseed: 2\n", "mine.yaml, line 2: seed is already in line 1"),
    "key of a list": (b"? [a, b]\n: 1\n", "mine.yaml is not YAML"),
    "key of a number": (b"pools: {16: []}\n", "mine.yaml: pools: key 16 must be a string"),
    "date": (b"lock: 2026-01-02\n", "mine.yaml: lock: 2026-01-02 is a date"),
    "negative": (b"samples: -3\n", "mine.yaml: samples: must be an integer, >= 1"),
    "unknown key": (b"sampels: 3\n", "mine.yaml: configuration: 'sampels' is unknown; did you mean 'samples'?"),
    "unknown key below": (b"boptr: {beta: {mth: 1}}\n", "mine.yaml: boptr.beta: 'mth' is unknown"),
    "null": (b"benchmarks: {math: null}\n", "mine.yaml: benchmarks.math: must be a mapping of keys (found None)"),
    "type": (b"results: [1]\n", "mine.yaml: results: "),
    "pair": (b"study: {pairs: [x]}\n", "mine.yaml: study.pairs: 'x' is unknown. Known: micro-1m"),
    "benchmark": (
        b"study: {benchmarks: [mth]}\n",
        "mine.yaml: study.benchmarks: 'mth' is unknown; did you mean 'math'?",
    ),
    "policy": (b"references: [gredy]\n", "mine.yaml: references: 'gredy' is unknown; did you mean 'greedy'?"),
    "policy name": (
        b"policies: {topp8_t1.0: null}\n",
        "mine.yaml: policies.topp8_t1.0: policy 'topp8_t1.0': top_p is 8.0",
    ),
    "benchmark twice": (
        b"study: {benchmarks: [math, math]}\n",
        "mine.yaml: study.benchmarks: 'math' is there more than",
    ),
    "policy twice": (b"references: [greedy, greedy]\n", "mine.yaml: references: 'greedy' is there more than once"),
    "questions": (b"benchmarks: {math: {path: no.jsonl}}\n", "benchmarks.math: cannot read benchmark file no.jsonl"),
    "checkpoint": (
        b"checkpoints: {micro-1m-rl: {path: nowhere}}\n",
        "checkpoints.micro-1m-rl.path: checkpoint folder nowhere",
    ),
    "extension": (b"extensions: [no.py]\n", "mine.yaml: extensions: no.py does not exist"),
    "lock": (
        b"lock: config\ncheckpoints: {micro-1m-rl: {path: null, sha256: null, hub: a/b}}\n",
        "cannot read config: Is a directory",
    ),
    "results empty": (b'results: ""\n', "mine.yaml: results: needs a name, found ''"),
    "results line break": (b'results: "a\\nb"\n', "mine.yaml: results: must not have line breaks"),
    "results zero byte": (b'results: "a\\0b"\n', "mine.yaml: results: must not have line breaks"),
    "results long": (b"results: " + b"x" * 256 + b"\n", "mine.yaml: results: has a name of more than 255 bytes"),
    "questions long": (
        b"benchmarks: {math: {path: " + b"x" * 256 + b"}}\n",
        "mine.yaml: benchmarks.math.path: has a name of more than 255 bytes",
    ),
    "Latin-1": ("# é\n".encode("latin-1"), "mine.yaml is not text in UTF-8: byte 3 is 0xe9"),
    "UTF-16": ("seed: 1\n".encode("utf-16"), "mine.yaml is not text in UTF-8: byte 1 is 0xff; it seems to be UTF-16"),
    "gzip": (gzip.compress(b"seed: 1\n"), "mine.yaml is not text in UTF-8: byte 2 is 0x8b; it seems to be a file comp"),
    "aliases": (_aliases(9), "mine.yaml: its aliases stand for 490,329,0"),
    "merge of itself": (b"study: &s\n  <<: *s\n", "mine.yaml: an alias stands inside of what it names"),
    "deep": (b"a: " + b"{a: " * 900 + b"1" + b"}" * 900, "mine.yaml: an alias stands inside of what it names, or map"),
    "deeper, open": (b"a: " + b"[" * 20_000, "mine.yaml: an alias stands inside of what it names, or mappings are too"),
    "large": (b"#" * 2_000_001, "mine.yaml has 2,000,001 characters; allowed: at most 2,000,000"),
    "readouts": (b"study: {readouts: nowhere}\n", "study.readouts: nowhere is no folder"),
    "no pairs": (b"study: {pairs: []}\n", "the study has no cell: study.pairs or study.benchmarks is empty"),
    "no benchmarks": (b"study: {benchmarks: []}\n", "the study has no cell"),
    "one side": (
        b"pairs: {micro-1m: {base: micro-1m-rl, rl: micro-1m-rl}}\n",
        "mine.yaml: pairs.micro-1m: base and rl are both 'micro-1m-rl'",
    ),
    "empty pool": (
        b"pools: {few: []}\nbenchmarks: {math: {pool: few}}\n",
        "mine.yaml: pools.few: must have at least one policy",
    ),
    "pool without the default": (
        b"pools: {few: [temp_0.5]}\nbenchmarks: {math: {pool: few, searches: null}}\n",
        "benchmarks.math.pool: 'few' does not have the default policy 'topp0.95_t1.0'; it has",
    ),
    "device": (b"benchmarks: {math: {path: /dev/zero}}\n", "benchmarks.math: cannot read /dev/zero: it is a device"),
    "lock that is a device": (
        b"lock: /dev/zero\ncheckpoints: {micro-1m-rl: {path: null, sha256: null, hub: a/b}}\n",
        "cannot read /dev/zero: it is a device",
    ),
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
    "samples missing": (samples(), None, "cannot read mine: No such file"),
    "samples empty": (samples(), b"", "mine has no format that is known: it is empty"),
    "samples no JSON": (
        samples(),
        b"not\n",
        "mine has no format that is known: no row of it can be read: mine:1: not JSON",
    ),
    "samples encoding": (samples(), b"\xff\n", "mine has no format that is known: mine:1: not UTF-8 text"),
    "samples later encoding": (samples(), GOOD + b"\xff\n", "mine:2: not UTF-8 text"),
    "samples later no JSON": (samples(), GOOD + b"not\n", "mine:2: not JSON: Expecting value"),
    "samples list": (samples(), GOOD + b"[1]\n", "mine:2: must be a JSON object, found list"),
    "samples negative": (samples(), GOOD.replace(b"0", b"-1"), "mine:1: 'sample' must be an integer >= 0, found -1"),
    "samples type": (samples(), GOOD.replace(b'"x"', b"3"), "mine:1: 'text' must be a string, found 3"),
    "samples key": (samples(), GOOD.replace(b"text", b"txt"), "mine:1: key 'text' is missing"),
    "samples grader": (samples(grader="mth"), GOOD, "grader 'mth' is unknown; did you mean 'math'? Known: choice"),
    "samples name": (samples(pair="a b"), GOOD, "pair 'a b' cannot be a name; allowed: at most 100 letters"),
    "samples ids": (
        samples(benchmark="math"),
        GOOD,
        "mine:1: not a question of the benchmark: neither its id nor its text",
    ),
    "landscapes missing": (["boptr", "mine", "--output", "out"], None, "mine: must be a folder of landscapes"),
    "landscapes file": (
        ["boptr", "mine", "--output", "out"],
        b"x",
        "mine: must be a folder of landscapes, found a file",
    ),
    "draws": (["boptr", "config", "--output", "out", "--draws", "-1"], None, "--draws: -1; allowed: 100 or more"),
    "simulate file": (["simulate", "--seed", "1", "--size", "small", "--output", "mine"], b"x", "mine: it is a file"),
    "verify missing": (["verify", "mine"], None, "mine is not a results folder"),
    "verify file": (["verify", "mine"], b"x", "mine is not a results folder"),
    "snapshot missing": (["plan", "--snapshot", "mine"], None, "mine does not exist"),
    "snapshot no JSON": (["status", "--snapshot", "mine"], b"x", "mine is damaged"),
    "snapshot list": (["prune", "--snapshot", "mine"], b"[]", "mine is no snapshot of a configuration"),
    "snapshot empty": (["summary", "--snapshot", "mine"], b"{}", "mine is no snapshot of a configuration"),
    "snapshot folder": (["verify", "--snapshot", "config"], None, "cannot read config: Is a directory"),
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
    "gap": (["power", "--gap", "nan", "--models", "3", "--questions", "4"], None, "gap: nan; allowed: a finite number"),
    "level": (
        ["power", "--gap", "1", "--models", "3", "--questions", "4", "--alpha", "2"],
        None,
        "alpha: 2.0; allowed: a number > 0, < 1",
    ),
    "fingerprint": (["fingerprint", "mine"], None, "checkpoint folder mine does not exist"),
}
"""Arguments, the content of the file `mine` (None: there is none), and what the command says."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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


def refused(folder: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = content(folder)
    assert main(arguments) == 2
    said = re.sub(r"\Astudy: .*\n", "", capsys.readouterr().err)  # which files the study was read from
    assert said.startswith("searchlens: error: ")
    assert says in said
    assert "Traceback" not in said
    assert content(folder) == before, "bad input changed a file"


@pytest.mark.parametrize("name", OVERLAYS)
def test_a_bad_configuration_is_refused(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text, says = OVERLAYS[name]
    if text is not None:
        (folder / "mine.yaml").write_bytes(text)
    refused(folder, ["check", "--config", "mine.yaml"], says, capsys)


@pytest.mark.parametrize("command", ["plan", "status", "prune", "pin", "verify", "summary"])
def test_every_command_refuses_a_bad_configuration(
    folder: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "mine.yaml").write_text("samples: -3\n")
    refused(folder, [command, "--config", "mine.yaml"], "mine.yaml: samples: must be an integer, >= 1", capsys)


@pytest.mark.parametrize("name", COMMANDS)
def test_bad_arguments_and_files_are_refused(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, text, says = COMMANDS[name]
    if text is not None:
        (folder / "mine").write_bytes(text)
    refused(folder, arguments, says, capsys)


@pytest.mark.parametrize("threads", ["0", "-3", "many"])
def test_a_number_of_threads_is_positive(folder: Path, threads: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["equivalence", "--output", "out", "--threads", threads])
    assert f"--threads: '{threads}'; allowed: a whole number >= 1" in capsys.readouterr().err


def test_a_file_that_does_not_set_the_wrong_key_is_not_blamed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both files have the section; the first has the mistake."""
    (folder / "mine.yaml").write_text("study: {smple: all}\n")
    (folder / "yours.yaml").write_text(json.dumps({"study": {"pairs": ["micro-1m"]}}))
    says = "mine.yaml: study: 'smple' is unknown; did you mean 'sample'?"
    refused(folder, ["check", "--config", "mine.yaml", "--config", "yours.yaml"], says, capsys)


@pytest.mark.parametrize("command", [["check"], ["verify"], ["boptr"]])
def test_a_second_file_after_one_config_is_refused(
    folder: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """It would be taken for another argument, such as the folder of `verify`."""
    arguments = [*command, "--config", "mine.yaml", "yours.yaml", "--output", "results"]
    refused(folder, arguments, "Hint: --config mine.yaml --config yours.yaml", capsys)


def test_a_study_folder_that_is_not_there_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(folder, ["-C", "nowhere", "check"], "-C: nowhere is not a folder", capsys)


def test_a_configuration_with_a_byte_order_mark_is_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Editors of Windows write one."""
    (folder / "mine.yaml").write_bytes("\ufeffseed: 7\n".encode())
    assert main(["check", "--config", "mine.yaml"]) == 0


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
            ["power", "pipe", "--gap", "1", "--models", "3", "--questions", "4"],
            "",
            "cannot read pipe: it is a named pipe",
        ),
    ],
)
def test_a_named_pipe_is_not_waited_for(
    folder: Path, arguments: list[str], overlay: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "mine.yaml").write_text(overlay)
    refused(folder, arguments, says, capsys)


def test_what_the_system_refuses_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """For example a disk that fails."""

    def fails(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error", "results/x.parquet")

    monkeypatch.setattr("searchlens.cli.study.check", fails)
    assert main(["check"]) == 1
    said = capsys.readouterr().err.splitlines()[-2:]
    assert said[0] == "searchlens: error: cannot use results/x.parquet: Input/output error"
    assert said[1].startswith("Hint: ")


def test_ctrl_c_ends_a_command_with_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("searchlens.cli.study.check", interrupted)
    assert main(["check"]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "searchlens: interrupted"
