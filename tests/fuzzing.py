"""Bad input of every kind, made by seed: each with the verdict that whoever made it expects.

    make fuzz                        # all inputs; the table lab/bad_inputs.csv
    python tests/fuzzing.py --family keys --show    # those of one family, with what was said

An input is a small study with one thing in it changed, and a command. Its generator knows whether it is wrong, and
which words a clear message has: the file or the key. Nothing here asks the program, its schema or its types for that.

Each input runs in a fork of a process that has imported everything, in a copy of the study, under a limit of processor
time. An input that is refused must end with status 2, say so in few lines, and leave the folder as it was.
"""

import argparse
import contextlib
import gzip
import json
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bad_inputs import LOG, SETTINGS, Input, keys, names, options, safetensors, texts, write_study

SECONDS = 20
"""Limit of processor time. Nothing here takes a second on an idle machine, but a hang takes all of it."""

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
