"""Would a test notice? Small changes of the code, one at a time, each against the tests that run the changed line.

    make mutants                                            # the sample of docs/mutants.csv, resumable
    python tests/mutants.py seeds uncertainty --sample 40   # some targets, fewer mutants

The changes are those of cosmic-ray: other operators, numbers and comparisons, conditions turned round, loops that never
run, and so on. A place is drawn by seed, then one of the changes at that place, so that a `+`, for which cosmic-ray
knows eleven, counts no more than a `not`. Annotations, which nothing evaluates, are left alone.

A mutant lives in a fork of this process, which has imported the libraries but nothing of ours: its module is compiled
from the changed source, in memory. First the tests run that execute the changed line, found by coverage, then the
others of all test files that use the changed file. A failure kills the mutant, and so does a limit of processor time,
which ends loops that never end.
"""

from __future__ import annotations

import argparse
import ast
import csv
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import random
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
STATE = ROOT / ".mutants"

TARGETS: dict[str, tuple[str, tuple[str, ...]]] = {
    "seeds": ("seeds.py", ("seeds", "stops")),
    "uncertainty": ("uncertainty.py", ("uncertainty", "boptr_regimes", "recovery", "landscape")),
    "landscape": ("landscape", ("landscape", "readouts", "extensions", "import_recorded")),
    "recovery": ("recovery", ("recovery", "extensions")),
    "boptr": ("boptr", ("boptr_*",)),
    "store": ("store", ("shards", "verdicts", "verify", "traces", "provenance", "judges")),
}
"""Name of a target: its file or package in searchlens, and the names of its test files (without ``test_``)."""

SECONDS = 30.0
"""Processor time that a mutant has beyond three times what its tests take."""


@dataclass(frozen=True)
class Mutant:
    """One change of one file: the ``occurrence``-th place of a cosmic-ray operator."""

    target: str
    file: str
    operator: str
    occurrence: int
    line: int

    @property
    def path(self) -> Path:
        """The file that is changed."""
        return SOURCE / "searchlens" / self.file

    def source(self) -> str:
        """The file with the change in it."""
        from cosmic_ray.mutating import mutate_code

        mutated: str = mutate_code(self.path.read_text("utf-8"), _operators()[self.operator](), self.occurrence)
        return mutated

    def lines(self) -> tuple[str, str]:
        """The first line that differs, before and after."""
        before, after = self.path.read_text("utf-8").splitlines(), self.source().splitlines()
        for i in range(max(len(before), len(after))):
            pair = (before[i : i + 1] or [""])[0].strip(), (after[i : i + 1] or [""])[0].strip()
            if pair[0] != pair[1]:
                return pair
        return "", ""

    def key(self) -> str:
        """The change and the code around it: a result is kept as long as the file stays as it is."""
        content = hashlib.sha256(self.path.read_bytes()).hexdigest()
        return f"{self.file} {content[:16]} {self.operator} {self.occurrence}"


@cache
def _operators() -> dict[str, Any]:
    """The operators of cosmic-ray that need no arguments, by name."""
    from cosmic_ray.operators.provider import OperatorProvider

    provider = OperatorProvider()
    return {name: provider[name] for name in provider if not provider[name].arguments()}


def mutants(target: str) -> dict[tuple[str, int, int], list[Mutant]]:
    """All mutants of a target by their place: file, line and column."""
    place = SOURCE / "searchlens" / TARGETS[target][0]
    found: dict[tuple[str, int, int], list[Mutant]] = defaultdict(list)
    for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
        file = str(path.relative_to(SOURCE / "searchlens"))
        for operator, occurrence, (line, column) in _places(path.read_text("utf-8")):
            found[file, line, column].append(Mutant(target, file, operator, occurrence, line))
    return found


def _places(source: str) -> Iterator[tuple[str, int, tuple[int, int]]]:
    """Operator, number of the occurrence, and the place of every change, without those that change nothing."""
    from cosmic_ray.ast import ast_nodes, get_ast

    left_out, lines = list(_without_effect(ast.parse(source))), source.splitlines()
    nodes = list(ast_nodes(get_ast(source)))
    for name, operator in _operators().items():
        positions = (start for node in nodes for start, _ in operator().mutation_positions(node))
        for occurrence, start in enumerate(positions):
            annotated = any(first <= start < last for first, last in left_out)
            if not annotated and "TYPE_CHECKING" not in lines[start[0] - 1]:
                yield name, occurrence, start


def _without_effect(tree: ast.AST) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Where annotations begin and end."""
    for node in ast.walk(tree):
        notes = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        for note in notes:
            if isinstance(note, ast.expr):
                yield (note.lineno, note.col_offset), (note.end_lineno or 0, note.end_col_offset or 0)


def sample(targets: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """``count`` mutants: as many of each target, and of those with fewer places all."""
    chosen, left = [], count
    groups = sorted(((name, mutants(name)) for name in targets), key=lambda item: len(item[1]))
    for i, (name, places) in enumerate(groups):
        draws, order = random.Random(f"{seed} {name}"), sorted(places)
        draws.shuffle(order)
        some = [draws.choice(places[place]) for place in order][: left // (len(groups) - i)]
        left -= len(some)
        chosen += some
    return chosen


def test_files(target: str) -> tuple[str, ...]:
    """The test files of a target."""
    names = [f"test_{name}.py" for name in TARGETS[target][1]]
    return tuple(sorted(str(path.relative_to(ROOT)) for name in names for path in (ROOT / "tests").glob(name)))


@cache
def _state(names: tuple[str, ...]) -> str:
    return hashlib.sha256(b"".join((ROOT / name).read_bytes() for name in names)).hexdigest()[:16]


class _Watch:
    """A plugin of pytest: which lines each test runs, what it takes, and which fail."""

    def __init__(self, coverage: Any = None) -> None:
        self.coverage, self.seconds, self.failed = coverage, dict[str, float](), list[str]()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if self.coverage:
            self.coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0) + report.duration
        if report.failed:
            self.failed.append(report.nodeid)


@dataclass(frozen=True)
class Baseline:
    """What the unchanged code does: seconds of each test, tests of each line of each file, libraries in use."""

    seconds: dict[str, float]
    tests: dict[str, dict[str, list[str]]]
    modules: list[str]


def baseline(target: str) -> Baseline:
    """Measured once for a state of tests and sources, in a process of its own."""
    sources = sorted((SOURCE / "searchlens").rglob("*.py"))
    kept = STATE / f"{target}-{_state((*test_files(target), *map(str, sources)))}.json"
    if not kept.exists():
        child = os.fork()
        if not child:
            os._exit(_measured(target, kept))
        _, status = os.waitpid(child, 0)
        if status:
            raise SystemExit(f"{target}: tests fail without any change: {' '.join(test_files(target))}")
    return Baseline(**json.loads(kept.read_text()))


def _measured(target: str, kept: Path) -> int:
    import coverage
    import pytest

    place = str(SOURCE / "searchlens" / TARGETS[target][0])
    measured = coverage.Coverage(data_file=None, include=[place, f"{place}/*"])
    watch = _Watch(measured)
    measured.start()
    status = int(pytest.main(["-q", "-p", "no:cacheprovider", *test_files(target)], plugins=[watch]))
    measured.stop()
    if status:
        return status
    tests = {}
    data = measured.get_data()
    for name in data.measured_files():
        contexts = data.contexts_by_lineno(name)
        lines = {str(line): sorted(set(some) - {""}) for line, some in contexts.items()}
        tests[str(Path(name).relative_to(SOURCE / "searchlens"))] = lines
    modules = sorted(name for name, module in list(sys.modules.items()) if _is_library(name, module))
    kept.write_text(json.dumps(asdict(Baseline(watch.seconds, tests, modules))))
    return 0


def _is_library(name: str, module: object) -> bool:
    """Whether a module belongs to neither searchlens nor its tests."""
    file = getattr(module, "__file__", None) or ""
    return "site-packages" in file and not name.startswith(("_", "coverage"))


class _Changed(importlib.machinery.SourceFileLoader, importlib.abc.MetaPathFinder):
    """Imports one module from a changed source, every other one as usual."""

    def __init__(self, mutant: Mutant) -> None:
        parts = ["searchlens", *Path(mutant.file).with_suffix("").parts]
        super().__init__(".".join(parts).removesuffix(".__init__"), str(mutant.path))
        self.changed = mutant.source()

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        if name != self.name:
            return None
        folder = [str(Path(self.path).parent)] if self.path.endswith("__init__.py") else None
        return importlib.util.spec_from_file_location(name, self.path, loader=self, submodule_search_locations=folder)

    def get_code(self, fullname: str) -> Any:
        return compile(self.changed, self.path, "exec", dont_inherit=True)


def tried(mutant: Mutant, known: Baseline) -> tuple[str, str]:
    """What became of a mutant, ``killed``, ``timeout`` or ``survived``, and the first test that noticed it."""
    lines = known.tests.get(mutant.file, {})
    near, files = (
        set(lines.get(str(mutant.line), [])),
        {test.split("::")[0] for some in lines.values() for test in some},
    )
    order = [test for test in sorted(known.seconds, key=known.seconds.__getitem__) if test.split("::")[0] in files]
    for tests in ([test for test in order if test in near], [test for test in order if test not in near]):
        if tests:
            outcome, noticed = _run(mutant, tests, 3 * sum(known.seconds[test] for test in tests) + SECONDS)
            if outcome != "survived":
                return outcome, noticed
    return "survived", ""


def _run(mutant: Mutant, tests: list[str], seconds: float) -> tuple[str, str]:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        try:
            _child(mutant, tests, seconds, writing)
        finally:
            os._exit(3)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        noticed = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "timeout", f"signal {os.WTERMSIG(status)}"
    return ("survived" if os.WEXITSTATUS(status) == 0 else "killed"), noticed


def _child(mutant: Mutant, tests: list[str], seconds: float, writing: int) -> None:
    """Run tests on a changed module, and end with 0 if none of them fails."""
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    import pytest

    sys.meta_path.insert(0, _Changed(mutant))
    watch = _Watch()
    files = sorted({test.split("::")[0] for test in tests})
    chosen = tests if len(tests) < 400 else files
    status = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *chosen], plugins=[watch]))
    with suppress(OSError):
        os.write(writing, (watch.failed[0] if watch.failed else "import").encode())
    os._exit(1 if status else 0)


def run(chosen: Sequence[Mutant]) -> list[dict[str, Any]]:
    """The outcome of each mutant; what is known already is not run again."""
    STATE.mkdir(exist_ok=True)
    results = STATE / "results.jsonl"
    known = {row["key"]: row for row in map(json.loads, results.read_text().splitlines())} if results.exists() else {}
    rows, measured = [], dict[str, Baseline]()
    with results.open("a") as log:
        for i, mutant in enumerate(chosen):
            row, tests = known.get(mutant.key()), _state(test_files(mutant.target))
            if row is None or (row["outcome"] == "survived" and row["tests"] != tests):  # a new test may notice it
                if mutant.target not in measured:
                    measured[mutant.target] = baseline(mutant.target)
                    _import(measured[mutant.target].modules)
                start = time.monotonic()
                outcome, noticed = tried(mutant, measured[mutant.target])
                row = {"key": mutant.key(), **asdict(mutant), "outcome": outcome, "noticed": noticed, "tests": tests}
                before, after = mutant.lines()
                row |= {"before": before, "after": after, "seconds": round(time.monotonic() - start, 1)}
                log.write(json.dumps(row) + "\n")
                log.flush()
                if outcome == "survived":
                    print(
                        f"{i + 1}/{len(chosen)} survived: {mutant.file}:{mutant.line}  {before}  ->  {after}",
                        flush=True,
                    )
            rows.append(row)
    return rows


def _import(modules: Sequence[str]) -> None:
    """Import libraries once, for all mutants."""
    for name in modules:
        with suppress(Exception):
            importlib.import_module(name)


JUDGED = ("file", "before", "after", "judgement", "why")


def report(rows: Sequence[dict[str, Any]], path: Path | None) -> None:
    """Print the score of each target, with and without equivalent mutants; write the survivors, keeping judgements."""
    judged: dict[tuple[str, str, str], dict[str, str]] = {}
    if path and path.exists():
        with path.open(newline="") as file:
            judged = {(row["file"], row["before"], row["after"]): row for row in csv.DictReader(file)}
    lines = []
    for row in sorted(rows, key=lambda row: (row["target"], row["file"], row["line"])):
        if row["outcome"] == "survived":
            key = row["file"], row["before"], row["after"]
            lines.append(judged.get(key, {**dict(zip(JUDGED, key, strict=False)), "judgement": "", "why": ""}))
    equal = {(line["file"], line["before"], line["after"]) for line in lines if line["judgement"] == "equivalent"}
    for target in [*dict.fromkeys(row["target"] for row in rows), "all"]:
        some = [row for row in rows if target in (row["target"], "all")]
        killed = sum(row["outcome"] != "survived" for row in some)
        same = sum((row["file"], row["before"], row["after"]) in equal for row in some)
        print(
            f"{target}: {len(some)} mutants, {killed} noticed, score {killed / len(some):.3f}; "
            f"{same} equivalent, without them {killed / max(1, len(some) - same):.3f}"
        )
    if path:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, JUDGED, lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)


def main() -> None:
    """Draw, run, report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("targets", nargs="*", choices=[[], *TARGETS], help="default: all but store")
    parser.add_argument("--sample", type=int, default=1200, help="number of mutants (default: 1200)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the sample (default: 1)")
    parser.add_argument("--report", type=Path, help="CSV of survivors, whose judgements are kept")
    parser.add_argument("--least", type=float, default=0.0, help="exit with 1 if a smaller share is noticed")
    args = parser.parse_args()
    os.nice(10)
    os.chdir(ROOT)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"):
        os.environ[name] = "1"
    sys.path.insert(0, str(SOURCE))
    targets = args.targets or [name for name in TARGETS if name != "store"]
    rows = run(sample(targets, args.sample, args.seed))
    report(rows, args.report)
    noticed = sum(row["outcome"] != "survived" for row in rows)
    sys.exit(noticed < args.least * len(rows))


if __name__ == "__main__":
    main()
