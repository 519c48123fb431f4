"""The study that bad input is made from, and inputs that are wrong in its configuration, names or options."""

import gzip
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

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


def toy(pool: str, policies: Sequence[str]) -> dict[str, Any]:
    """A configuration with one pair, one benchmark, and a pool of policies and greedy."""
    return {
        "results": "results",
        "samples": 4,
        "budgets": [1, 2, 4],
        "study": {"pairs": ["toy"], "benchmarks": ["sums"]},
        "checkpoints": {"toy-base": {"path": "base"}, "toy-rl": {"path": "rl"}},
        "pairs": {"toy": {"base": "toy-base", "rl": "toy-rl"}},
        "benchmarks": {"sums": {"path": "sums.jsonl", "grader": "math", "max_tokens": 8, "pool": pool}},
        "policies": dict.fromkeys([*policies, "greedy"]),
        "pools": {pool: list(policies)},
        "references": ["greedy"],
    }


def config() -> dict[str, Any]:
    """A sound configuration with most sections in it."""
    made = toy("two", ("temp_0.5", "topp0.9_t0.7"))
    made["study"] |= {"trace": {"questions": 1}, "likelihood": {"questions": 2}}
    return made | {"default_policy": "temp_0.5", "equivalence": {"policies": ["temp_0.5"]}}


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
        ["landscape.draws", "measures.draws", "boptr.draws", "equivalence.draws", "equivalence.chains"], DRAWS
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
            *("benchmarks.sums.check", "benchmarks.sums.recipe_stops"),
            *("pairs.toy.searches", "checkpoints.toy-base.examples"),
        ],
        "truth",
    ),
    **dict.fromkeys(
        [
            *("study.imports", "landscape.ties", "landscape.first_finish", "landscape.q_instructions"),
            *("boptr.estimator", "pairs.toy.group", "pairs.toy.templates"),
            *("checkpoints.toy-base.engine", "checkpoints.toy-base.dtype"),
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
    **dict.fromkeys(["budgets", "measures.null_k", "benchmarks.sums.extension"], "numbers"),
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
    "alias": b"budgets: &b [1, 2, 4]\nmeasures: {null_k: *b}\n",
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
    "folder of work": ("work",),
    "folder of push": ("push",),
    "folder of pull": ("pull",),
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
_LEFT_EMPTY |= {"folder of work"}
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
POWER = ("sample-size", "--gap", "1", "--models", "3", "--questions", "9")
OPTIONS: list[tuple[tuple[str, ...], str, list[str]]] = [
    (("show", "results"), "--samples", _NOT_WHOLE),
    (("show", "results"), "--limit", _NOT_WHOLE),
    (("show", "results"), "--only", ["nothing", ""]),
    (("explore", "results"), "--size", ["0", "-1", "many", "", "15XB", "1e9", "nan", "0MB"]),
    (("view", "results"), "--port", ["-1", "65536", "many", "", "80.5"]),
    (("equivalence", "--output", "out"), "--threads", _NOT_WHOLE),
    (("generate", "--checkpoint", "toy-base", "--benchmark", "sums"), "--threads", _NOT_WHOLE),
    (("work",), "--threads", _NOT_WHOLE),
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
    (("sample-size", "--models", "3", "--questions", "9"), "--gap", ["nan", "inf", "many", "", "-1", "0"]),
    (("sample-size", "--gap", "1", "--questions", "9"), "--models", ["0", "-1", "1.5", "many", ""]),
    (("sample-size", "--gap", "1", "--models", "3"), "--questions", ["0", "-1", "1.5", "many", ""]),
    (POWER, "--alpha", ["0", "1", "2", "-1", "nan", "many"]),
    *((POWER, option, ["0", "-1", "1.5", "many"]) for option in ("--contrasts", "--seeds")),
    *((POWER, f"--{name}-sd", ["-1", "nan", "inf", "many"]) for name in ("question", "sample", "model")),
    (POWER, "--shared", ["2", "nan", "many", "-2"]),
    (("convert", "x.gguf", "out"), "--dtype", ["float64", ""]),
    (("completion",), "", ["fish", ""]),
    (("boptr", "landscapes", "--output", "out"), "--estimator", ["mean", ""]),
]
COMMANDS = (
    *("init", "check", "plan", "run", "status", "summary", "show", "explore", "view", "diff", "benchmarks", "generate"),
    *("score", "compare-graders", "landscape", "recovery", "measures", "likelihood", "figures"),
    *("overview", "tables", "equivalence", "boptr", "transfer", "compare", "import", "imports", "export", "record"),
    *(
        "rerun",
        "trace",
        "verify",
        "prune",
        "pin",
        "work",
        "push",
        "pull",
        "fetch",
        "fingerprint",
        "convert",
        "sample-size",
        "simulate",
        "completion",
    ),
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
