"""Would a test notice? Small changes of the code, one at a time, each against the tests that run the changed line.

    make mutants                                            # the sample of lab/mutants.csv, resumable
    make mutants-sample                                     # a few, in a minute
    python tests/mutants.py seeds uncertainty --sample 40   # some targets, fewer mutants

The changes are those of cosmic-ray: other operators, numbers and comparisons, conditions turned round, loops that never
run, and so on. A place is drawn by seed, then one of the changes at that place, so that a `+`, for which cosmic-ray
knows eleven, counts no more than a `not`. Annotations, which nothing evaluates, are left alone.

A mutant lives in a fork that has imported the libraries but nothing of ours, and compiles the module from the changed
source. The tests of a target run that execute the changed statement, found by coverage, the quickest first, then quick
ones of the same files, as far as ``MOST`` seconds reach. A failure kills the mutant, and so does a limit of processor
time, which ends loops that never end. With ``--all-tests`` the survivors are run again without that end.
"""

import argparse
import csv
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import math
import os
import re
import resource
import signal
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from mutations import FROZEN, NO_PROGRAM, ROOT, SOURCE, TARGETS, Mutant, mutants, near_lines, sample

STATE = ROOT / ".mutants"
LIBRARIES = ("hypothesis", "numpy", "polars", "pyarrow.parquet", "scipy.stats", "statsmodels.api")
"""Imported once, before any fork."""

SECONDS = 8.0
"""Processor time that a mutant has beyond three times what its tests take."""

MOST = 4.0
"""Seconds of tests that a mutant gets, and at least one test. Of the first 228 that were noticed, a test that begins
within one second noticed 227, and one within eight seconds the other; what is not noticed costs all of them."""

SLOW = 3.0
"""Seconds of a test that runs only for changes of statements that it executes."""


def test_files(target: str) -> tuple[str, ...]:
    """The test files of a target."""
    names = [f"test_{name.partition('::')[0]}.py" for name in TARGETS[target][1]]
    return tuple(sorted(str(path.relative_to(ROOT)) for name in names for path in (ROOT / "tests").rglob(name)))


@cache
def _state(names: tuple[str, ...]) -> str:
    return hashlib.sha256(b"".join((ROOT / name).read_bytes() for name in names)).hexdigest()[:16]


# ---- what the tests run


@dataclass(frozen=True)
class Baseline:
    """What one test file does with unchanged code: seconds of each test, and tests of each line of each file.

    ``state`` is that of the test file. In a file that was edited only new tests are measured.
    """

    seconds: dict[str, float]
    tests: dict[str, dict[str, list[str]]]
    state: str = ""


class _Session:
    """A plugin of pytest that collects and then gives the tests to a function instead of running them."""

    def __init__(self, work: Callable[[dict[str, Any]], None]) -> None:
        self._work = work

    def pytest_runtestloop(self, session: Any) -> bool:
        self._work({item.nodeid: item for item in session.items})
        return True


def _collected(files: Sequence[str], work: Callable[[dict[str, Any]], None], *plugins: object) -> int:
    """Collect tests, let ``work`` have them by id, and return pytest's status: not 0 if a file cannot be imported."""
    options = ("-s", "-qq", "--no-header", "-p", "no:cacheprovider", "-p", "no:faulthandler")
    return int(pytest.main([*options, *files], plugins=[_Session(work), *plugins]))


def _protocol(items: Sequence[Any]) -> None:
    """Run tests as pytest does, until one of them fails."""
    for item, following in zip(items, [*items[1:], None], strict=False):  # none, if no test of a file is new
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if item.session.shouldfail or item.session.shouldstop:
            return


class _Watch:
    """A plugin of pytest: what each test takes, and which fail."""

    def __init__(self) -> None:
        self.seconds, self.failed = dict[str, float](), list[str]()

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0) + report.duration
        if report.failed:
            self.failed.append(report.nodeid)


class _Lines:
    """A plugin of pytest: which lines each test and each fixture that tests share runs."""

    def __init__(self, coverage: Any) -> None:
        self._switch, self._contexts = coverage.switch_context, [""]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._contexts = [nodeid]
        self._switch(nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[Any]:
        """What a shared fixture runs belongs to all who use it, not to the first alone."""
        is_shared = fixturedef.scope != "function"
        if is_shared:
            self._contexts.append(f"fixture {fixturedef.argname}")
            self._switch(self._contexts[-1])
        try:
            return (yield)
        finally:
            if is_shared:
                self._contexts.pop()
                self._switch(self._contexts[-1])


def baseline(target: str) -> Baseline:
    """Of all test files of a target; each measured once for a state of it and of the target, in its own process."""
    sources = tuple(sorted({each.file for some in mutants(target).values() for each in some}))
    seconds, tests = dict[str, float](), defaultdict[str, dict[str, list[str]]](lambda: defaultdict(list))
    for file in test_files(target):
        name = f"{target}-{Path(file).stem}-{_state(tuple(f'src/searchlens/{name}' for name in sources))}.json"
        kept = STATE / name
        if _measured(kept).state != _state((file,)):
            _forked(lambda file=file, kept=kept: _measure(target, file, kept))  # type: ignore[misc]
        known = _measured(kept)
        if not known.seconds:
            raise SystemExit(f"{file}: no test passes without any change; remove {kept} and look why")
        seconds |= known.seconds
        for name, lines in known.tests.items():
            for line, some in lines.items():
                tests[name][line] = [*tests[name].get(line, []), *some]
    return Baseline(seconds, dict(tests))


def _forked(work: Callable[[], None]) -> None:
    child = os.fork()
    if not child:
        try:
            work()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(0)
    os.waitpid(child, 0)


def _measured(kept: Path) -> Baseline:
    """A baseline; an empty one if there is none yet."""
    return Baseline(**json.loads(kept.read_text())) if kept.exists() else Baseline({}, {})


def _measure(target: str, file: str, kept: Path) -> None:
    import coverage

    place = str(SOURCE / "searchlens" / TARGETS[target][0])
    measured = coverage.Coverage(data_file=None, include=[place, f"{place}/*"])
    watch = _Watch()
    users: dict[str, list[str]] = defaultdict(list)
    parts = dict(name.split("::") for name in TARGETS[target][1] if "::" in name)
    earlier, present, part = _measured(kept), set[str](), parts.get(Path(file).stem.removeprefix("test_"), "")

    def work(items: dict[str, Any]) -> None:
        measured.start()
        for item in items.values():
            for name in item.fixturenames:
                users[f"fixture {name}"].append(item.nodeid)
        present.update(items)
        _protocol([item for name, item in items.items() if re.search(part, name) and name not in earlier.seconds])
        measured.stop()

    _collected([file], work, watch, _Lines(measured))
    data = measured.get_data()
    tests = {
        name: {line: sorted(present & set(some)) for line, some in of.items()} for name, of in earlier.tests.items()
    }
    for path in data.measured_files():
        lines = tests.setdefault(str(Path(path).relative_to(SOURCE / "searchlens")), {})
        for line, some in data.contexts_by_lineno(path).items():
            found = {test for one in some if one for test in users.get(one, [one])} - set(watch.failed)
            lines[str(line)] = sorted({*lines.get(str(line), ()), *found})
    if watch.failed:
        print(f"{file}: left out, since they fail without any change: {watch.failed}", flush=True)
    new = {test: value for test, value in watch.seconds.items() if test not in watch.failed}
    seconds = {test: value for test, value in earlier.seconds.items() if test in present} | new
    kept.write_text(json.dumps(asdict(Baseline(seconds, tests, _state((file,))))))


def order(mutant: Mutant, known: Baseline, most: float = MOST) -> list[str]:
    """The tests that may notice a mutant: first those that run the changed statement, then others of their files.

    A test may hold in a cache what another one has made; so the second part, of tests that are quick, is needed. What
    runs when a module is imported, such as the defaults of options, belongs to no test: then all are such others.
    """
    lines = known.tests.get(mutant.file, {})
    place = near_lines(mutant.path.read_text("utf-8"), mutant.line)
    near = {test for line in place for test in lines.get(str(line), [])}
    files = {test.split("::")[0] for test in near or known.seconds}
    quick = [test for test in known.seconds if test.split("::")[0] in files and known.seconds[test] < SLOW]
    by_time = known.seconds.__getitem__
    if not near:  # and those that read declarations before all others
        near = {test for test in quick if FROZEN.split("::")[1] in test}
    every = [*sorted(near, key=by_time), *sorted(set(quick) - near, key=by_time)]
    ends = accumulate(known.seconds[test] for test in every)
    return [test for test, end in zip(every, ends, strict=True) if end <= most] or every[:1]


# ---- one mutant

Result = tuple[str, str]


class _Changed(importlib.machinery.SourceFileLoader, importlib.abc.MetaPathFinder):
    """Imports one module from a changed source, every other one as usual."""

    def __init__(self, mutant: Mutant, source: str) -> None:
        parts = ["searchlens", *Path(mutant.file).with_suffix("").parts]
        super().__init__(".".join(parts).removesuffix(".__init__"), str(mutant.path))
        self.changed = source

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        if name != self.name:
            return None
        folder = [str(Path(self.path).parent)] if self.path.endswith("__init__.py") else None
        return importlib.util.spec_from_file_location(name, self.path, loader=self, submodule_search_locations=folder)

    def get_code(self, fullname: str) -> Any:
        return compile(self.changed, self.path, "exec", dont_inherit=True)


def _outcome(seconds: float, work: Callable[[_Watch], None]) -> Result:
    """What becomes of a mutant in a fork under a limit of processor time, and the test that noticed it."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        status = 1
        try:
            _limit(seconds)
            watch = _Watch()
            try:
                work(watch)
                status = int(bool(watch.failed))
            except BaseException:
                watch.failed.append("import")
            os.write(writing, (watch.failed or [""])[0].encode())
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        noticed = pipe.read()
    _, ended = os.waitpid(child, 0)
    if os.WIFSIGNALED(ended):
        return "timeout", f"signal {os.WTERMSIG(ended)}"
    return ("survived" if os.WEXITSTATUS(ended) == 0 else "killed"), noticed


def _limit(seconds: float) -> None:
    os.setpgid(0, 0)
    begun = time.process_time()
    resource.setrlimit(resource.RLIMIT_CPU, (int(begun + seconds) + 1, int(begun + seconds) + 2))
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    signal.alarm(int(10 * seconds) + 60)  # of one that waits for ever, on a busy machine
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def imported(mutant: Mutant, source: str, tests: list[str], known: Baseline) -> Result:
    """What became of a change: in a fork that has none of our modules yet, one comes from the changed source."""

    def work(watch: _Watch) -> None:
        loader = _Changed(mutant, source)
        sys.meta_path.insert(0, loader)
        read = Path.read_text

        def read_text(path: Path, *options: Any, **named: Any) -> str:
            """The catalogue reads declarations from the text, without an import."""
            return loader.changed if path == mutant.path else read(path, *options, **named)

        Path.read_text = read_text  # type: ignore[assignment, method-assign]

        def inside(items: dict[str, Any]) -> None:
            if not items or not all(test in items for test in tests):
                watch.failed.append("collection")
                return
            next(iter(items.values())).config.option.maxfail = 1
            _protocol([items[test] for test in tests])

        if _collected(sorted({test.split("::")[0] for test in tests}), inside, watch):
            watch.failed.append("import")

    return _outcome(3 * sum(known.seconds[test] for test in tests) + SECONDS, work)


def became(mutant: Mutant, known: Baseline, most: float) -> Result:
    """What became of a mutant, and the test that noticed it."""
    source, tests = mutant.source(), order(mutant, known, most)
    try:
        compile(source, str(mutant.path), "exec", dont_inherit=True)
    except SyntaxError:
        return NO_PROGRAM, ""
    return imported(mutant, source, tests, known) if tests else ("survived", "")


def require_harmless_forks(mutant: Mutant, known: Baseline) -> None:
    """Without any change no test fails in a fork."""
    tests = [test for test in known.seconds if known.seconds[test] < SLOW / 10]
    result = imported(mutant, mutant.path.read_text("utf-8"), tests, known)
    if result[0] != "survived":
        raise SystemExit(f"{mutant.target}: a test fails in a fork without any change: {result}")


class _Results:
    """What became of mutants, in a file that lasts."""

    def __init__(self, most: float) -> None:
        self._most = most
        STATE.mkdir(exist_ok=True)
        self._path = STATE / "results.jsonl"
        self._path.touch()

    def read(self) -> dict[str, dict[str, Any]]:
        return {row["key"]: row for row in map(json.loads, self._path.read_text().splitlines())}

    def add(self, mutant: Mutant, result: Result, begun: float) -> None:
        """Note a result, and print the mutant if it survived."""
        (outcome, noticed), (before, after) = result, mutant.lines()
        row = {"key": mutant.key(), **asdict(mutant), "outcome": outcome, "noticed": noticed}
        row |= {"tests": _state(test_files(mutant.target)), "most": self._most, "before": before, "after": after}
        with self._path.open("a") as log:
            log.write(json.dumps(row | {"seconds": round(_spent() - begun, 1)}) + "\n")
        if outcome == "survived":
            print(f"survived: {mutant.file}:{mutant.line}  {before}  ->  {after}", flush=True)

    def open(self, chosen: Sequence[Mutant]) -> list[Mutant]:
        """Those that have to run: they did not, or they survived and a new test or more tests may notice them."""
        known = self.read()
        rows = [(mutant, known.get(mutant.key())) for mutant in chosen]
        return [mutant for mutant, row in rows if row is None or (row["outcome"] == "survived" and self._open(row))]

    def _open(self, row: dict[str, Any]) -> bool:
        return bool(row["tests"] != _state(test_files(row["target"])) or row.get("most", math.inf) < self._most)


def run(chosen: Sequence[Mutant], minutes: float, most: float) -> list[dict[str, Any]]:
    """The outcome of each mutant, as far as processor time allows; what is known already is not run again."""
    results, end = _Results(most), _spent() + 60 * minutes
    left = results.open(chosen)
    baselines = {target: baseline(target) for target in dict.fromkeys(each.target for each in left)}
    for library in LIBRARIES:
        importlib.import_module(library)
    for target, known in baselines.items():
        require_harmless_forks(next(each for each in left if each.target == target), known)
    for mutant in left:
        if _spent() < end:
            begun = _spent()
            results.add(mutant, became(mutant, baselines[mutant.target], most), begun)
    rows = results.read()
    found = [rows[each.key()] for each in chosen if each.key() in rows]
    return [row for row in found if row["outcome"] != NO_PROGRAM]


def _spent() -> float:
    """Processor time of this process and of those that it has waited for."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in both)


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
    parser.add_argument("targets", nargs="*", choices=[[], *TARGETS], help="default: all")
    parser.add_argument("--sample", type=int, default=1200, help="number of mutants (default: 1200)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the sample (default: 1)")
    parser.add_argument("--report", type=Path, help="CSV of survivors, whose judgements are kept")
    parser.add_argument(
        "--minutes", type=float, default=1e6, help="processor time after which it stops, to go on later"
    )
    parser.add_argument("--least", type=float, default=0.0, help="exit with 1 if a smaller share is noticed")
    parser.add_argument("--all-tests", action="store_true", help=f"not only those of the first {MOST:g} seconds")
    parser.add_argument("--own-tests", action="store_true", help="only the test file that has the name of a target")
    args = parser.parse_args()
    if args.own_tests:
        TARGETS.update({name: (place, (name,)) for name, (place, _) in TARGETS.items()})
    os.nice(max(0, 10 - os.nice(0)))
    os.chdir(ROOT)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"):
        os.environ[name] = "1"
    sys.path.insert(0, str(SOURCE))
    targets = args.targets or list(TARGETS)
    rows = run(sample(targets, args.sample, args.seed), args.minutes, math.inf if args.all_tests else MOST)
    report(rows, args.report)
    noticed = sum(row["outcome"] != "survived" for row in rows)
    sys.exit(noticed < args.least * len(rows))


if __name__ == "__main__":
    main()
