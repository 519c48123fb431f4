"""Bad input of every kind, made by seed: each with the verdict that whoever made it expects.

    make fuzz                        # all inputs; the table of docs/validation.md
    python tests/fuzzing.py --family keys --show    # those of one family, with what was said

An input is a small study with one thing in it changed, and a command. Its generator knows whether it is wrong, and
which words a clear message has: the file or the key. Nothing here asks the program, its schema or its types for that.

Each input runs in a fork of a process that has imported everything, in a copy of the study, under a limit of processor
time. An input that is refused must end with status 2, say so in few lines, and leave the folder as it was.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import math
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

SECONDS = 20
"""Limit of processor time. Nothing here takes a second on an idle machine, but a hang takes all of it."""

CHECK = ("check", "--config", "mine.yaml")


@dataclass(frozen=True)
class Input:
    """One input: files that are written over the study, a command, and what is expected.

    A file of None is removed, and a function is called with the path. ``says`` has words of the message, one of which
    it must have: of a file, a key or an option. It is empty for what is right.
    """

    family: str
    name: str
    command: tuple[str, ...]
    files: Mapping[str, bytes | Callable[[Path], object] | None] = field(default_factory=dict)
    says: tuple[str, ...] = ()


# ---- the study


def config() -> dict[str, Any]:
    """A sound configuration with most sections in it."""
    return {
        "results": "results",
        "samples": 4,
        "budgets": [1, 2, 4],
        "default_policy": "temp_0.5",
        "study": {"pairs": ["toy"], "benchmarks": ["sums"], "trace": {"questions": 1}, "likelihood": {"questions": 2}},
        "checkpoints": {"toy-base": {"path": "base"}, "toy-rl": {"path": "rl"}},
        "pairs": {"toy": {"base": "toy-base", "rl": "toy-rl"}},
        "benchmarks": {"sums": {"path": "sums.jsonl", "grader": "math", "max_tokens": 8, "pool": "two"}},
        "policies": {"temp_0.5": None, "topp0.9_t0.7": None, "greedy": None},
        "pools": {"two": ["temp_0.5", "topp0.9_t0.7"]},
        "references": ["greedy"],
        "equivalence": {"policies": ["temp_0.5"]},
    }


QUESTIONS = b"".join(
    json.dumps({"id": f"q{i}", "question": f"Compute {i}+{i + 1}.", "gold": str(2 * i + 1)}).encode() + b"\n"
    for i in range(4)
)
LOG = b"".join(
    json.dumps({"question": f"q{i}", "sample": s, "text": f"\\boxed{{{2 * i + s}}}"}).encode() + b"\n"
    for i in range(4)
    for s in range(2)
)


TENSORS = {
    "model.embed_tokens.weight": [16, 8],
    "model.norm.weight": [8],
    "lm_head.weight": [16, 8],
    **{f"model.layers.0.{name}layernorm.weight": [8] for name in ("input_", "post_attention_")},
    **{f"model.layers.0.self_attn.{name}_proj.weight": [8, 8] for name in "qkvo"},
    **{f"model.layers.0.mlp.{name}_proj.weight": [8, 8] for name in ("gate", "up", "down")},
}
"""Names and shapes of the weights of a llama of one layer."""


def safetensors(shapes: Mapping[str, list[int]] = TENSORS, number: bytes = b"\0\0\x80?") -> bytes:
    """Tensors whose entries are all one number of four bytes."""
    entries, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 4 * math.prod(shape)
        entries[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    content = json.dumps(entries).encode()
    return len(content).to_bytes(8, "little") + content + number * (end // 4)


SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
SETTINGS = {"model_type": "llama", "eos_token_id": 0, **dict(zip(SIZES, (8, 8, 1, 1, 16), strict=True))}
CHECKPOINT = {
    "config.json": json.dumps(SETTINGS).encode(),
    "tokenizer.json": b'{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}',
    "model.safetensors": safetensors(),
}


def write_study(folder: Path) -> None:
    """The study, with no samples yet."""
    (folder / "config").mkdir(parents=True)
    (folder / "config/config.yaml").write_text(yaml.safe_dump(config(), sort_keys=False))
    for name in ("models", "benchmarks", "policies", "boptr"):
        (folder / f"config/{name}.yaml").write_text("seed: 42\n")
    for side in ("base", "rl"):
        (folder / side).mkdir()
        for name, content in CHECKPOINT.items():
            (folder / side / name).write_bytes(content)
    (folder / "sums.jsonl").write_bytes(QUESTIONS)
    (folder / "log.jsonl").write_bytes(LOG)
    (folder / "mine.yaml").write_text("seed: 42\n")


# ---- keys of the configuration: what each may hold, written down here by hand

WHOLE, WHOLE0, DRAWS, SHARE = "whole from 1", "whole from 0", "draws", "share"
INSIDE, REAL, MEASURE, EXPONENT = "inside", "real", "measure", "exponent"
KINDS: dict[str, str] = {
    **dict.fromkeys(
        [
            *("samples", "pool_size", "chunk_samples", "study.trace.questions"),
            *("study.likelihood.questions", "study.likelihood.samples", "checkpoints.toy-base.max_rows"),
            *("benchmarks.sums.max_tokens", "benchmarks.sums.questions", "benchmarks.sums.samples"),
            *("boptr.permutations", "equivalence.engine_samples"),
        ],
        WHOLE,
    ),
    **dict.fromkeys(["seed", "boptr.seed", "study.agreement", "boptr.reselect", "equivalence.questions"], WHOLE0),
    **dict.fromkeys(
        ["landscape.draws", "readings.draws", "boptr.draws", "equivalence.draws", "equivalence.chains"], DRAWS
    ),
    **dict.fromkeys(
        [
            *("failed_share", "recovery.support_q", "recovery.epsilon", "cost.distinct_thoughts"),
            *("health.answered", "health.answered_of_finished", "health.unknown"),
        ],
        SHARE,
    ),
    **dict.fromkeys(["landscape.confidence", "boptr.confidence"], INSIDE),
    **dict.fromkeys(["grace_seconds", "recovery.l_comp", "recovery.l_z", "recovery.l_b"], REAL),
    **dict.fromkeys(["target_minutes", "cost.prompt_tokens", "pairs.toy.parameters"], MEASURE),
    **dict.fromkeys(["boptr.beta.math", "boptr.beta.nonmath", "boptr.beta.floor"], EXPONENT),
    **dict.fromkeys(
        [
            *("boptr.exclude_default_on_anchor", "benchmarks.sums.check", "benchmarks.sums.recipe_stops"),
            *("pairs.toy.searches", "checkpoints.toy-base.examples"),
        ],
        "truth",
    ),
    **dict.fromkeys(
        [
            *("study.imports", "landscape.ties", "landscape.first_finish", "landscape.q_instructions"),
            *("boptr.readout", "boptr.rounding", "boptr.ties", "boptr.mu_floor"),
            *("boptr.h1", "boptr.selector_norm", "boptr.selector_proto", "boptr.selector_rank"),
            *("boptr.selector_rank_pool", "boptr.b0", "boptr.headroom", "boptr.q_sides", "pairs.toy.group"),
            *("pairs.toy.templates", "checkpoints.toy-base.engine", "checkpoints.toy-base.dtype"),
            *("checkpoints.toy-base.device", "checkpoints.toy-base.template", "benchmarks.sums.role"),
            *("benchmarks.sums.regime", "benchmarks.sums.grader", "benchmarks.sums.wording"),
            *("benchmarks.sums.family", "benchmarks.sums.pool", "benchmarks.sums.searches", "cost.gpu"),
            *("default_policy", "pairs.toy.base", "pairs.toy.rl", "pairs.toy.rltrain"),
            *("boptr.anchor.pair", "boptr.anchor.benchmark"),
        ],
        "one of",
    ),
    **dict.fromkeys(
        [
            *("study.pairs", "study.benchmarks", "study.sample", "study.figures", "references", "pools.two"),
            *("study.trace.policies", "boptr.mu_without", "equivalence.policies"),
        ],
        "names",
    ),
    **dict.fromkeys(["budgets", "readings.null_k", "benchmarks.sums.extension"], "numbers"),
    **dict.fromkeys(["results", "lock", "checkpoints.toy-base.path", "benchmarks.sums.path"], "path"),
}

_NO_NUMBER = ["many", "1e3", "", [1], {"a": 1}, True, "0x10"]
_HOSTILE = [
    *("a b", "../up", "a/b/c", "$(touch owned)", "; touch owned", "`touch owned`", "%s%n", "nul", "-rf", "é", "\u202e"),
    *("a\nb", "a\0b", "'", '"', "<script>alert(1)</script>", "=1+1", "{{7*7}}", "\\input{x}", "x" * 300, "", " "),
]

BAD: dict[str, list[Any]] = {
    WHOLE: [*_NO_NUMBER, 0, -1, -(2**63), 1.5, 2**70, 1e300, ".inf", ".nan", 10**10],
    WHOLE0: [*_NO_NUMBER, -1, 1.5, 2**70, ".inf", ".nan", -0.5],
    DRAWS: [*_NO_NUMBER, 0, 99, -100, 10**9, 100.5, ".inf", ".nan"],
    SHARE: [*_NO_NUMBER, -0.01, 1.01, 2, -1, ".inf", "-.inf", ".nan", 1e300],
    INSIDE: [*_NO_NUMBER, 0, 1, -0.5, 1.5, ".inf", ".nan", 95],
    REAL: [*_NO_NUMBER, -1, -0.001, ".inf", "-.inf", ".nan", 1e300],
    MEASURE: [*_NO_NUMBER, 0, -1, ".inf", "-.inf", ".nan", 1e300],
    EXPONENT: [*_NO_NUMBER, -0.1, 11, ".inf", ".nan"],
    "truth": ["maybe", "", 0, 1, 2.5, [True], {"a": True}, "true ", "nein"],
    "one of": ["nowhere", 3, 2.5, [1], {"a": 1}, True, *_HOSTILE],
    "names": ["nowhere", 3, True, [3], [[]], [None], {"a": 1}, ["nowhere"], *([name] for name in _HOSTILE)],
    "numbers": ["many", 3, True, ["a"], [None], [[1]], {"a": 1}, [-1], [".inf"], [".nan"], [True]],
    "path": [3, 2.5, True, {"a": 1}, [[]], "", " ", "a\nb", "a\0b", "x" * 300, "x/" * 3000, "\u202e"],
}
GOOD: dict[str, list[Any]] = {
    WHOLE: [4, 16, 1000],
    WHOLE0: [0, 7],
    DRAWS: [100, 1000],
    SHARE: [0, 0.5, 1],
    INSIDE: [0.5, 0.99],
    REAL: [0, 0.5, 3],
    MEASURE: [0.5, 60],
    EXPONENT: [0, 0.8, 1],
    "truth": [False, True],
}
_UNSUITED = {
    ("benchmarks.sums.questions", 16),
    ("benchmarks.sums.questions", 1000),
    ("checkpoints.toy-base.examples", False),
}
"""Good values that do not fit the rest of this study."""


def overlay(path: str, value: Any) -> bytes:
    """A YAML file that sets one key."""
    for part in reversed(path.split(".") if "sums" not in path else path.split(".", 2)):
        value = {part: value}
    text = yaml.safe_dump(value, allow_unicode=True)
    for number in ("-.inf", ".inf", ".nan"):  # as numbers, not as texts
        text = text.replace(f"'{number}'", number).replace(f" {number}", f" {number}")
    return text.encode()


def keys() -> Iterator[Input]:
    """One key wrong, or right."""
    for path, kind in KINDS.items():
        last = path.rpartition(".")[2]
        for i, value in enumerate(BAD[kind]):
            yield Input("keys", f"{path} bad {i}", CHECK, {"mine.yaml": overlay(path, value)}, (path, last))
        for i, value in enumerate(GOOD.get(kind, [])):
            if (path, value) not in _UNSUITED:
                yield Input("keys", f"{path} good {i}", CHECK, {"mine.yaml": overlay(path, value)})
        misspelled = f"{path[:-1]}" if len(last) > 2 else f"{path}x"
        near = misspelled.rpartition(".")[2]
        if not path.startswith("pools."):
            yield Input("keys", f"{path} misspelled", CHECK, {"mine.yaml": overlay(misspelled, 1)}, (f"'{near}'",))


# ---- texts of files


def _aliases() -> bytes:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    return "\n".join(lines).encode()


YAML: dict[str, bytes | Callable[[Path], object] | None] = {
    "missing": None,
    "empty": b"",
    "list": b"- a\n",
    "number": b"42\n",
    "text": b"hello\n",
    "null": b"null\n",
    "date": b"seed: 2026-01-02\n",
    "Latin-1": "# é\nseed: 1\n".encode("latin-1"),
    "UTF-16": "seed: 1\n".encode("utf-16"),
    "UTF-32": "seed: 1\n".encode("utf-32"),
    "bytes": bytes(range(256)),
    "gzip": gzip.compress(b"seed: 1\n"),
    "Parquet": b"PAR1" + bytes(64) + b"PAR1",
    "zero byte": b"seed: 1\0\n",
    "open list": b"seed: [1\n",
    "open mapping": b"seed: {a: 1\n",
    "open text": b"seed: 'a\n",
    "tab": b"study:\n\tpairs: [toy]\n",
    "key twice": b"seed: 1\nseed: 2\n",
    "key twice below": b"study: {pairs: [toy], pairs: [toy]}\n",
    "unknown anchor": b"seed: *a\n",
    "circle": b"study: &s {a: *s}\n",
    "circle of a list": b"budgets: &b [*b]\n",
    "merge of itself": b"study: &s\n  <<: *s\n",
    "merge of a text": b"study:\n  <<: text\n",
    "aliases": _aliases(),
    "deep": b"a: " + b"{a: " * 900 + b"1" + b"}" * 900,
    "deep lists": b"a: " + b"[" * 5000,
    "large": b"#" * 2_000_001,
    "python object": b"seed: !!python/object/apply:os.system ['touch owned']\n",
    "python name": b"seed: !!python/name:os.system\n",
    "tag": b"seed: !mine 1\n",
    "binary": b"results: !!binary aGVsbG8=\n",
    "set": b"study: !!set {a, b}\n",
    "two documents": b"seed: 1\n---\nseed: 2\n",
    "number as a key": b"3: 1\n",
    "list as a key": b"? [a, b]\n: 1\n",
    "truth as a key": b"true: 1\n",
    "folder": lambda path: (path.unlink(missing_ok=True), path.mkdir()),
    "pipe": lambda path: (path.unlink(missing_ok=True), os.mkfifo(path)),
    "device": lambda path: (path.unlink(missing_ok=True), path.symlink_to("/dev/zero")),
    "link to itself": lambda path: (path.unlink(missing_ok=True), path.symlink_to(path.name)),
    "unknown key": b"sampels: 3\n",
}
NO_COHORT = {"unknown key", "missing", "number as a key", "truth as a key", "key twice", "key twice below", "date"}
"""What does not damage a description of a cohort."""
SOUND_YAML = {
    "BOM": b"\xef\xbb\xbfseed: 42\n",
    "Windows lines": b"seed: 42\r\nsamples: 4\r\n",
    "comment": "# é, 漢字\nseed: 42\n".encode(),
    "alias": b"budgets: &b [1, 2, 4]\nreadings: {null_k: *b}\n",
    "JSON": b'{"seed": 42}\n',
}
CONFIGURED = ("check", "plan", "status", "summary", "prune", "verify", "snapshot", "record", "imports", "pin")


def texts() -> Iterator[Input]:
    """Whole files of the configuration that are damaged, read by several commands."""
    for what, content in YAML.items():
        for command in CONFIGURED:
            if what == "large" and command != "check":
                continue
            options = ("--output", "out") if command == "record" else ()
            arguments = (command, "--config", "mine.yaml", *options)
            yield Input("texts", f"overlay {what}, {command}", arguments, {"mine.yaml": content}, ("mine.yaml",))
        for name in ("config", "models", "boptr"):
            file = f"config/{name}.yaml"
            yield Input("texts", f"{name} {what}", ("check",), {file: content}, (file,))
        if what in ("missing", "link to itself"):
            yield Input("texts", f"own {what} sound", ("check",), {})
        else:
            yield Input("texts", f"own {what}", ("check",), {"config/own.yaml": content}, ("config/own.yaml",))
        if what in NO_COHORT:
            continue
        cohort = {"landscapes/cohort.yaml": content}
        yield Input("texts", f"cohort {what}", ("boptr", "landscapes", "--output", "out"), cohort, ("cohort.yaml",))
    for what, text in SOUND_YAML.items():
        yield Input("texts", f"overlay {what}", CHECK, {"mine.yaml": text})


# ---- names

NAMED: dict[str, tuple[str, ...]] = {
    "checkpoint of generate": ("generate", "--benchmark", "sums", "--checkpoint"),
    "benchmark of generate": ("generate", "--checkpoint", "toy-base", "--benchmark"),
    "checkpoint of rerun": ("rerun", "--benchmark", "sums", "--checkpoint"),
    "benchmark of rerun": ("rerun", "--checkpoint", "toy-base", "--benchmark"),
    "policy of rerun": ("rerun", "--checkpoint", "toy-base", "--benchmark", "sums", "--policy"),
    "checkpoint of score": ("score", "m.json", "--output", "out", "--benchmark", "sums", "--checkpoint"),
    "benchmark of landscape": ("landscape", "--scores", "s.parquet", "--output", "out", "--benchmark"),
    "pair of figures": ("figures", "--benchmark", "sums", "--output", "out", "--pair"),
    "benchmark of figures": ("figures", "--pair", "toy", "--output", "out", "--benchmark"),
    "pair of likelihood": ("likelihood", "--benchmark", "sums", "--output", "out", "--pair"),
    "policy of trace": ("trace", "--checkpoint", "toy-base", "--benchmark", "sums", "--policy"),
    "pair of import": ("import", "log.jsonl", "--benchmark", "sums", "--role", "base", "--policy", "p", "--pair"),
    "grader of import": (
        *("import", "log.jsonl", "--pair", "toy", "--benchmark", "new", "--role", "base"),
        *("--policy", "p", "--grader"),
    ),
    "folder of show": ("show",),
    "folder of verify": ("verify",),
    "folder of explore": ("explore",),
    "folder of diff": ("diff", "results"),
    "folder of fingerprint": ("fingerprint",),
    "folder of boptr": ("boptr", "--output", "out"),
    "study": ("check", "-C"),
    "snapshot": ("plan", "--snapshot"),
    "file of import": ("import", "--pair", "toy", "--benchmark", "sums", "--role", "base", "--policy", "p"),
    "format of export": ("export", "results", "out", "--to"),
    "to take back": ("imports", "--remove"),
}


_LEFT_EMPTY = {"folder of show", "folder of verify", "folder of explore", "policy of rerun", "to take back", "study"}
"""Here an empty text means that nothing was given."""

_MAY_BE_NAMED = {"pair of import": {"nul"}}


def names() -> Iterator[Input]:
    """Names that are unknown, or that a shell, a path or a page would misread."""
    for where, begin in NAMED.items():
        for i, name in enumerate(["nowhere", *_HOSTILE, *(["."] if "folder" not in where else [])]):
            if (not name and where in _LEFT_EMPTY | {"snapshot"}) or name in _MAY_BE_NAMED.get(where, ()):
                continue
            if name == "nowhere" and where == "pair of import":
                continue
            if name == "." and where in ("study", "snapshot", "file of import"):
                continue
            spoken = {name, repr(name)[1:-1], repr(name)[1:81], begin[-1].strip("-")} - {"", " "}
            if where == "folder of diff" and name.startswith("-"):
                spoken = {"B"}  # it is taken for an option, so the second folder is missing
            yield Input("names", f"{where} {i}", (*begin, name), {}, tuple(spoken))


# ---- options

_NOT_WHOLE = ["0", "-1", "1.5", "many", "", "1e3", "٣", "99999999999999999999999x", "0x10", "nan"]
POWER = ("power", "--gap", "1", "--models", "3", "--questions", "9")
OPTIONS: list[tuple[tuple[str, ...], str, list[str]]] = [
    (("show", "results"), "--samples", _NOT_WHOLE),
    (("show", "results"), "--limit", _NOT_WHOLE),
    (("show", "results"), "--only", ["nothing", ""]),
    (("explore", "results"), "--size", ["0", "-1", "many", "", "15XB", "1e9", "nan", "0MB"]),
    (("view", "results"), "--port", ["-1", "65536", "many", "", "80.5"]),
    (("equivalence", "--output", "out"), "--threads", _NOT_WHOLE),
    (("generate", "--checkpoint", "toy-base", "--benchmark", "sums"), "--threads", _NOT_WHOLE),
    (("trace", "--checkpoint", "toy-base", "--benchmark", "sums", "--policy", "greedy"), "--questions", _NOT_WHOLE),
    (("trace", "--checkpoint", "toy-base", "--benchmark", "sums", "--policy", "greedy"), "--runs", _NOT_WHOLE),
    (("compare", "log.jsonl", "--against", "log.jsonl"), "--seed", ["-1", "1.5", "many", ""]),
    (("compare", "log.jsonl", "--against", "log.jsonl"), "--threads", _NOT_WHOLE),
    (("compare", "log.jsonl", "--against", "log.jsonl"), "--failed", ["keep"]),
    (("import", "log.jsonl", "--pair", "toy", "--benchmark", "sums"), "--role", ["teacher", "Base"]),
    (("import", "log.jsonl", "--pair", "toy", "--benchmark", "sums"), "--ids", ["number", ""]),
    (("simulate", "--output", "out"), "--seed", ["many", "", "1.5"]),
    (("simulate", "--output", "out", "--seed", "1"), "--mode", ["none", ""]),
    (("simulate", "--output", "out", "--seed", "1"), "--size", ["huge"]),
    (("power", "--models", "3", "--questions", "9"), "--gap", ["nan", "inf", "many", "", "-1", "0"]),
    (("power", "--gap", "1", "--questions", "9"), "--models", ["0", "-1", "1.5", "many", ""]),
    (("power", "--gap", "1", "--models", "3"), "--questions", ["0", "-1", "1.5", "many", ""]),
    (POWER, "--alpha", ["0", "1", "2", "-1", "nan", "many"]),
    *((POWER, option, ["0", "-1", "1.5", "many"]) for option in ("--contrasts", "--seeds")),
    *((POWER, f"--{name}-sd", ["-1", "nan", "inf", "many"]) for name in ("question", "sample", "model")),
    (POWER, "--shared", ["2", "nan", "many", "-2"]),
    (("convert", "x.gguf", "out"), "--dtype", ["float64", ""]),
    (("completion",), "", ["fish", ""]),
    (("boptr", "landscapes", "--output", "out"), "--readout", ["mean", ""]),
]
COMMANDS = (
    *("init", "check", "plan", "run", "status", "summary", "show", "explore", "view", "diff", "benchmarks", "generate"),
    *("score", "agreement", "landscape", "recovery", "readings", "likelihood", "figures"),
    *("overview", "tables", "equivalence", "boptr", "transfer", "compare", "import", "imports", "export", "record"),
    *("rerun", "trace", "verify", "prune", "pin", "fetch", "fingerprint", "convert", "power", "simulate", "completion"),
    *("schema", "snapshot"),
)


def options() -> Iterator[Input]:
    """Options with values that they cannot have, unknown ones, and commands that are spelled otherwise."""
    for begin, option, values in OPTIONS:
        for i, value in enumerate(values):
            command = (*begin, f"{option}={value}") if option else (*begin, value)
            yield Input("options", f"{begin[0]} {option} {i}", command, {}, (option.strip("-"), option.strip("-")[:4]))
    for name in COMMANDS:
        for what, option in (("unknown option", "--no-such-option"), ("short", "-Z")):
            yield Input("options", f"{name} {what}", (name, option), {}, (option, "required"))
        yield Input("options", f"{name} misspelled", (f"{name}x",), {}, (f"'{name}x'",))
        yield Input("options", f"{name} upper", (name.upper(),), {}, (f"'{name.upper()}'",))
        yield Input("options", f"{name} second file", (name, "--config", "mine.yaml", "b.yaml"), {}, ("--config",))


# ---- other files

JSON: dict[str, bytes | Callable[[Path], object] | None] = {
    "empty": b"",
    "no JSON": b"not JSON",
    "torn": b'{"version": 1, "mod',
    "list": b"[]",
    "number": b"3",
    "null": b"null",
    "text": b'"x"',
    "nothing in it": b"{}",
    "other keys": b'{"a": {"b": [1, 2]}}',
    "deep": b"[" * 100_000,
    "Latin-1": b'{"a": "\xe9"}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "zero bytes": bytes(100),
    "folder": lambda path: (path.unlink(missing_ok=True), path.mkdir(parents=True)),
    "pipe": lambda path: (path.unlink(missing_ok=True), os.mkfifo(path)),
    "device": lambda path: (path.unlink(missing_ok=True), path.symlink_to("/dev/zero")),
}
WITH_SNAPSHOT = ("plan", "status", "check", "summary", "prune", "imports", "pin")


def documents() -> Iterator[Input]:
    """Snapshots, lock files, benchmark files, manifests and derived files that are damaged."""
    hub = b"checkpoints: {toy-base: {path: null, hub: a/b}, toy-rl: {path: null, hub: a/c}}\n"
    for what, content in JSON.items():
        for command in WITH_SNAPSHOT:
            files = {"snap.json": content}
            yield Input(
                "documents", f"snapshot {what}, {command}", (command, "--snapshot", "snap.json"), files, ("snap.",)
            )
        lock = {"config/lock.json": content, "mine.yaml": hub}
        for command in ("check", "plan"):
            arguments = (command, "--config", "mine.yaml")
            yield Input("documents", f"lock {what}, {command}", arguments, lock, ("config/lock.json",))
        for command in ("check", "plan", "status"):
            yield Input(
                "documents", f"questions {what}, {command}", (command,), {"sums.jsonl": content}, ("sums.jsonl",)
            )
        score = ("score", "--checkpoint", "toy-base", "--benchmark", "sums", "--output", "out.parquet", "m.json")
        yield Input("documents", f"manifest {what}, score", score, {"m.json": content}, ("m.json",))
        landscape = ("landscape", "--benchmark", "sums", "--output", "out")
        arguments = (*landscape, "--scores", "s.parquet")
        yield Input(
            "documents", f"scores {what}, landscape", arguments, {"s.parquet": content}, ("s.parquet", "s.json")
        )
        power = ("power", "c.parquet", "--gap", "1", "--models", "3", "--questions", "9")
        yield Input("documents", f"contributions {what}, power", power, {"c.parquet": content}, ("c.parquet", "anchor"))
        convert = ("convert", "m.gguf", "out")
        yield Input("documents", f"model {what}, convert", convert, {"m.gguf": content}, ("m.gguf",))


ROW = {"question": "q0", "sample": 0, "text": "\\boxed{1}"}
_KEY_VALUES: dict[str, list[Any]] = {
    "question": [3, None, [], {}, True, 1.5, ""],
    "sample": ["0", None, -1, 1.5, [], {}, True, 2**70],
    "text": [3, None, [], {}, True, 1.5],
}


def rows(what: str, key: str, values: Sequence[Any]) -> Iterator[tuple[str, bytes]]:
    """Logs whose second row has one wrong value."""
    for i, value in enumerate(values):
        bad = {**ROW, "sample": 1, key: value}
        yield f"{what} {key} {i}", json.dumps(ROW).encode() + b"\n" + json.dumps(bad).encode() + b"\n"
    without = {name: value for name, value in {**ROW, "sample": 1}.items() if name != key}
    yield f"{what} no {key}", json.dumps(ROW).encode() + b"\n" + json.dumps(without).encode() + b"\n"


def evaluated(document: int, **changes: Any) -> bytes:
    """A row as lm-evaluation-harness logs it, with two texts, and something changed."""
    options = {"do_sample": True, "temperature": 1.0, "until": []}
    row: dict[str, Any] = {
        "doc_id": document,
        "doc": {"id": f"q{document}", "question": f"Compute {document}+{document + 1}."},
        "target": str(2 * document + 1),
        "arguments": {"gen_args_0": {"arg_0": f"Compute {document}+{document + 1}.", "arg_1": options}},
        "resps": [[f"\\boxed{{{2 * document + sample}}}" for sample in range(2)]],
        "filtered_resps": ["1"],
        "filter": "none",
        "metrics": ["exact_match"],
        "exact_match": 1.0,
    }
    return json.dumps(row | changes).encode() + b"\n"


_EVALUATED: dict[str, list[Any]] = {
    "doc_id": [{}, [], [0], {"a": 1}],
    "arguments": [3, "x", [], None, {"gen_args_0": 3}, {"gen_args_0": []}, {"gen_args_0": {"arg_1": 3}}, {"other": {}}],
    "resps": [3, "x", {}, [], [[]], [[3]], [[{}]], [[["x"]]], [{"a": 1}], [[True]], True],
    "metrics": [3, True, 1.5, [[]], [{}]],
}


def imports(seed: int = 1, count: int = 260) -> Iterator[Input]:
    """Logs to import: wrong rows, damaged and cut files, at random places."""
    arguments = ("import", "log.jsonl", "--pair", "toy", "--benchmark", "sums", "--role", "base", "--policy", "p")
    compare = ("compare", "log.jsonl", "--against", "log.jsonl")
    for what, content in JSON.items():
        yield Input("imports", f"log {what}", arguments, {"log.jsonl": content}, ("log.jsonl",))
        yield Input("imports", f"compared {what}", compare, {"log.jsonl": content}, ("log.jsonl",))
    for key, values in _KEY_VALUES.items():
        for what, content in rows("row", key, values):
            yield Input("imports", what, arguments, {"log.jsonl": content}, ("log.jsonl:2",))
    yield Input("imports", "sound", arguments, {})
    yield Input("imports", "sound row by row", arguments, {"log.jsonl": b"\n\n" + LOG.replace(b"\n", b"\r\n")})
    yield Input("imports", "sound compressed", arguments, {"log.jsonl": gzip.compress(LOG)})
    logged = [evaluated(i) for i in range(4)]
    foreign = ("compare", "log.jsonl", "--against", "log.jsonl", "--benchmark", "sums")
    yield Input("imports", "sound lm_eval", arguments, {"log.jsonl": b"".join(logged)})
    for key, values in _EVALUATED.items():
        for i, value in enumerate(values):
            content = b"".join([logged[0], evaluated(1, **{key: value}), *logged[2:]])
            for name, command in (("read", arguments), ("compared", foreign)):
                yield Input("imports", f"lm_eval {key} {i}, {name}", command, {"log.jsonl": content}, ("log.jsonl:2",))
    draws = random.Random(seed)
    for i in range(count):
        place = draws.randrange(1, len(LOG) - 2)
        if i % 2:  # a byte that no UTF-8 text has
            content = LOG[:place] + b"\xff" + LOG[place:]
        else:  # cut within a row: what is left of it is no JSON, unless the cut is at its end
            while LOG[place - 1 : place + 1] in (b"}\n", b"}}") or LOG[place - 1 : place] == b"\n":
                place = draws.randrange(1, len(LOG) - 2)
            content = LOG[:place]
        yield Input("imports", f"damaged {i}", arguments, {"log.jsonl": content}, ("log.jsonl",))


# ---- folders of models


def header(content: Any, body: bytes = bytes(16), size: int | None = None) -> bytes:
    """A safetensors file with this header."""
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return (len(text) if size is None else size).to_bytes(8, "little") + text + body


def tensor(**changes: Any) -> dict[str, Any]:
    """A header of one tensor, with something changed."""
    return {"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16], **changes}}


def two(*places: list[int]) -> bytes:
    """A file of two tensors at these places."""
    entry = {"dtype": "F32", "shape": [4]}
    content = json.dumps({f"w{i}": entry | {"data_offsets": place} for i, place in enumerate(places)}).encode()
    return len(content).to_bytes(8, "little") + content + bytes(places[-1][1])


def settings(**changes: object) -> bytes:
    return json.dumps(SETTINGS | changes).encode()


MODELS: dict[str, tuple[str, bytes | Callable[[Path], object] | None]] = {
    "weights cut": ("model.safetensors", safetensors()[:-4]),
    "weights longer": ("model.safetensors", safetensors() + b"x"),
    "weights empty": ("model.safetensors", b""),
    "weights text": ("model.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
    "weights pickled": ("model.safetensors", b"cos\nsystem\n(S'touch owned'\ntR."),
    "header too long": ("model.safetensors", header(tensor(), size=2**62)),
    "header beyond the file": ("model.safetensors", header(tensor(), size=10_000)),
    "header no JSON": ("model.safetensors", header(b"x" * 40)),
    "header a list": ("model.safetensors", header([1, 2])),
    "header deep": ("model.safetensors", header(b"[" * 100_000)),
    "offsets beyond": ("model.safetensors", header(tensor(data_offsets=[0, 1 << 40]))),
    "offsets negative": ("model.safetensors", header(tensor(data_offsets=[-16, 0]))),
    "offsets backwards": ("model.safetensors", header(tensor(data_offsets=[16, 0]))),
    "shape and bytes": ("model.safetensors", header(tensor(shape=[5]))),
    "dtype unknown": ("model.safetensors", header(tensor(dtype="PICKLE"))),
    "tensor no mapping": ("model.safetensors", header({"w": 3})),
    "weights a pipe": ("model.safetensors", lambda path: (path.unlink(), os.mkfifo(path))),
    "weights a device": ("model.safetensors", lambda path: (path.unlink(), path.symlink_to("/dev/zero"))),
    "weights a folder": ("model.safetensors", lambda path: (path.unlink(), path.mkdir())),
    "pickle only": ("model.safetensors", lambda path: path.rename(path.with_name("pytorch_model.bin"))),
    "no config": ("config.json", None),
    "config empty": ("config.json", b""),
    "config a list": ("config.json", b"[]"),
    "config no JSON": ("config.json", b"{"),
    "config deep": ("config.json", b"[" * 100_000),
    "no model type": ("config.json", b"{}"),
    "model type a list": ("config.json", b'{"model_type": []}'),
    "remote code": ("config.json", b'{"model_type": "mine", "auto_map": {"AutoConfig": "mine.Config"}}'),
    "architecture": ("config.json", b'{"model_type": "mamba"}'),
    "no tokenizer": ("tokenizer.json", None),
    "tokenizer empty mapping": ("tokenizer.json", b"{}"),
    "tokenizer a list": ("tokenizer.json", b"[]"),
    "tokenizer no JSON": ("tokenizer.json", b"x"),
    "index a list": ("model.safetensors.index.json", b"[]"),
    "index no JSON": ("model.safetensors.index.json", b"{"),
    "index without a map": ("model.safetensors.index.json", b"{}"),
    "overlapping": ("model.safetensors", two([0, 16], [8, 24])),
    "a gap": ("model.safetensors", two([0, 16], [20, 36])),
    "about a number": ("model.safetensors", header({"__metadata__": {"format": 1}, **tensor()})),
    "only an adapter": ("model.safetensors", lambda path: path.rename(path.with_name("adapter_model.safetensors"))),
    "index of another file": ("model.safetensors.index.json", b'{"weight_map": {"v": "model.safetensors"}}'),
    "vocabulary of 0": ("config.json", settings(vocab_size=0)),
    "vocabulary of -1": ("config.json", settings(vocab_size=-1)),
    "hidden a text": ("config.json", settings(hidden_size="8")),
    "layers a fraction": ("config.json", settings(num_hidden_layers=1.5)),
    "zeros": ("model.safetensors", safetensors(number=bytes(4))),
    "index map a list": ("model.safetensors.index.json", b'{"weight_map": []}'),
    "index a number": ("model.safetensors.index.json", b'{"weight_map": {"w": 3}}'),
    "index names another": ("model.safetensors.index.json", b'{"weight_map": {"w": "part-2.safetensors"}}'),
    "index outside": ("model.safetensors.index.json", b'{"weight_map": {"w": "../base/model.safetensors"}}'),
    "index absolute": ("model.safetensors.index.json", b'{"weight_map": {"w": "/etc/passwd"}}'),
}


def models() -> Iterator[Input]:
    """Folders of checkpoints that are incomplete, damaged or foreign."""
    generate = ("generate", "--checkpoint", "toy-rl", "--benchmark", "sums")
    for what, (name, content) in MODELS.items():
        for command in (("check",), generate):
            yield Input("models", f"{what}, {command[0]}", command, {f"rl/{name}": content}, ("rl",))


FAMILIES: dict[str, Callable[[], Iterator[Input]]] = {
    "keys": keys,
    "texts": texts,
    "names": names,
    "options": options,
    "documents": documents,
    "imports": imports,
    "models": models,
}


def inputs(families: Sequence[str] = tuple(FAMILIES)) -> list[Input]:
    """Every input of some families."""
    return [each for family in families for each in FAMILIES[family]()]


# ---- running them


@dataclass(frozen=True)
class Outcome:
    """What became of an input: ``problem`` is empty if it ended as expected."""

    input: Input
    status: int | None
    said: str
    problem: str


class Runner:
    """Runs inputs, each in a process and a copy of the study of its own."""

    def __init__(self, folder: Path) -> None:
        from searchlens.cli.main import parser

        parser()
        self.folder, self.study = folder, folder / "study"
        write_study(self.study)
        self.before = _content(self.study)

    def run(self, each: Input) -> Outcome:
        """The outcome of an input."""
        place = self.folder / "place"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.study, place)
        for name, content in each.files.items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                path.unlink(missing_ok=True)
            elif callable(content):
                content(path)
            else:
                path.write_bytes(content)
        before = _content(place)
        child = os.fork()
        if not child:
            _child(place, each.command, self.folder / "said")
        _, status = os.waitpid(child, 0)
        said = (self.folder / "said").read_text(errors="replace")
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        return Outcome(each, code, said, _problem(each, code, said, before, _content(place)))


def _child(place: Path, command: Sequence[str], said: Path) -> None:
    """Run a command and end the process with its status; 70: it raised an error."""
    status = 70
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
        resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
        signal.alarm(15 * SECONDS)  # what waits takes no processor time
        output = os.open(said, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.dup2(output, 2)
        sys.stdout, sys.stderr = open(os.devnull, "w"), open(2, "w", closefd=False)  # noqa: PTH123, SIM115
        os.chdir(place)
        for name in ("SEARCHLENS_SNAPSHOT", "SEARCHLENS_STUDY"):
            os.environ.pop(name, None)
        from searchlens.cli.main import main

        try:
            status = main(list(command))
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0 if end.code is None else 70
        except BaseException:
            import traceback

            traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _content(folder: Path) -> dict[str, object]:
    """Every file and its bytes; of what is no file, its kind."""
    found: dict[str, object] = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_file() and not path.is_symlink():
            found[name] = path.read_bytes()
        elif not path.is_dir():
            found[name] = "no file"
    return found


def _problem(
    each: Input, status: int | None, said: str, before: Mapping[str, object], after: Mapping[str, object]
) -> str:
    """What is wrong with how an input ended; empty if nothing is."""
    if "Traceback (most recent call last)" in said or status == 70:
        return "traceback"
    if status is None:
        return "hang"
    if not each.says:
        return "" if status == 0 else "refused, although right"
    if status == 0:
        return "accepted, although wrong"
    if status != 2:
        return f"status {status}"
    message = "\n".join(line for line in said.splitlines() if not line.startswith("study: "))
    if not any(word in message for word in each.says):
        return "file or key is not named"
    if len(message.split("Hint:")[0].splitlines()) > 25 or len(message) > 12_000:
        return "long message"
    if "owned" in after or any(after.get(name) != content for name, content in before.items()):
        return "changed a file"
    return ""


def sampled(count: int, seed: int) -> list[Input]:
    """Some inputs of every family, by seed."""
    draws, chosen = random.Random(seed), []
    for family in FAMILIES:
        every = inputs([family])
        chosen += draws.sample(every, min(len(every), count // len(FAMILIES)))
    return chosen


def main() -> int:
    """Run, and print how many of each family ended as expected."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--family", action="append", choices=tuple(FAMILIES), help="default: all")
    parser.add_argument("--only", default="", help="part of the name of an input")
    parser.add_argument("--sample", type=int, default=0, help="so many inputs, drawn by seed (default: all)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="print what every input was answered")
    args = parser.parse_args()
    chosen = sampled(args.sample, args.seed) if args.sample else inputs(args.family or tuple(FAMILIES))
    chosen = [each for each in chosen if args.only in f"{each.family} {each.name}"]
    begin, counts, problems = time.process_time(), Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(Path(folder))
        for each in chosen:
            outcome = runner.run(each)
            counts[each.family] += 1
            if outcome.problem or args.show:
                problems[each.family] += bool(outcome.problem)
                print(f"{each.family} | {each.name} | {outcome.problem or 'ok'} | {each.command}", flush=True)
                print("    " + "\n    ".join(outcome.said.strip().splitlines()[-4:])[:900], flush=True)
    for family, count in counts.items():
        print(f"{family}: {count} inputs, {count - problems[family]} as expected")
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = time.process_time() - begin + children.ru_utime + children.ru_stime
    print(f"all: {counts.total()} inputs, {problems.total()} not as expected, {seconds:.0f} s of processor time")
    return int(problems.total() > 0)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
