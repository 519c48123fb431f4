"""A state machine over one study: anything that people and disks do to a store, in any order, against a small model.

The model is a dictionary: (generation, question, sample) to what was drawn, which the scripted engine makes a function
of its seed. After every run the store equals it, and nothing is left to draw or to report.
"""

import json
import os
import random
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
from hypothesis import HealthCheck, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

import study
from company import slow_down
from injected import DIED, FAULTS, Injected
from points import in_fork
from searchlens.cli.verify import verify
from searchlens.config.model import from_plain
from searchlens.plan import Grid
from searchlens.store import shards

steps = {"rules": 0, "runs": 0, "faults": 0}
"""Counts of this process."""


LONGEST = 0.02
"""Seconds for which a call of two jobs at once is held up; those of ``company`` wait longer."""

KINDS = st.sampled_from(["shard", "sidecar", "manifest", "chunk"])


class Store(RuleBasedStateMachine):
    """One study folder and what is done to it."""

    def __init__(self) -> None:
        super().__init__()
        self.base = Path(tempfile.mkdtemp(prefix="searchlens-machine-", dir=study.scratch()))
        self.folder = self.base / "0"
        study.found(self.folder)
        self.policies, self.samples, self.edited = ["temp_0.5", "topp0.95_t1.0"], 2, False
        self.imported = False
        self.model: dict[tuple[str, str, int], str] = {}
        self._configure()

    def teardown(self) -> None:
        shutil.rmtree(self.base, ignore_errors=True)

    def _configure(self) -> None:
        policies: dict[str, Any] = dict.fromkeys(["temp_0.5", "topp0.95_t1.0", "topp0.9_t0.7", "greedy"])
        policies["mine"] = {"local": {"temperature": 0.85 if self.edited else 0.8}}
        changes = {"policies": policies, "pools": {"some": [*self.policies, "mine"]}, "samples": self.samples}
        study.configure(self.folder, study.raw(**changes, budgets=[1, 2]))

    def _files(self, pattern: str) -> list[Path]:
        return sorted((self.folder / "results").glob(pattern))

    def _fork(self, work: Callable[[], object], said: str = "said") -> int:
        """Exit status of work in a process of its own, whose last words are in the file ``said``."""

        def there() -> int:
            study.script(study.Counter())
            os.chdir(self.folder)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(os.open(self.base / said, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), 2)
            return int(work() or 0)

        return in_fork(there, may_fail=True)

    def _do(self, work: Callable[[], object], *statuses: int) -> None:
        """Work in a process of its own, which must end well, or with one of some other statuses."""
        status = self._fork(work)
        assert status in (0, *statuses), f"ended with {status}: {self._said('said')}"

    def _said(self, name: str) -> str:
        return (self.base / name).read_text(errors="replace")[-3_000:]

    # ---- the configuration

    @rule()
    def edit_a_policy_and_back(self) -> None:
        self.edited = not self.edited
        self._configure()

    @rule(samples=st.sampled_from([2, 3, 4]))
    def ask_for_other_samples(self, samples: int) -> None:
        self.samples = samples
        self._configure()

    @rule()
    def add_or_remove_a_policy(self) -> None:
        name = "topp0.9_t0.7"
        self.policies = [one for one in self.policies if one != name] + [name] * (name not in self.policies)
        self._configure()

    # ---- what happens to files

    @rule(pick=st.integers(0, 10**6), kind=KINDS)
    def delete(self, pick: int, kind: str) -> None:
        if path := self._one(kind, pick):
            path.unlink()

    @rule(pick=st.integers(0, 10**6), place=st.integers(0, 10**6), keeps_time=st.booleans())
    def flip_a_bit(self, pick: int, place: int, keeps_time: bool) -> None:
        if path := self._one(("shard", "chunk")[pick % 2], pick):
            stat, content = path.stat(), bytearray(path.read_bytes())
            if content:
                content[place % len(content)] ^= 1 << place % 8
                path.write_bytes(content)
            if keeps_time:
                os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    @rule(pick=st.integers(0, 10**6), share=st.floats(0, 1), kind=KINDS)
    def truncate(self, pick: int, share: float, kind: str) -> None:
        if path := self._one(kind, pick):
            path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])

    @rule(pick=st.integers(0, 10**6))
    def rename_to_another_range(self, pick: int) -> None:
        """As in a folder that was merged by hand."""
        if path := self._one("shard", pick):
            for suffix in (".parquet", ".json"):
                if path.with_suffix(suffix).exists():
                    self._copy(path.with_suffix(suffix), path.with_name(f"s00002-00004{suffix}"))

    @staticmethod
    def _copy(source: Path, target: Path) -> None:
        if source != target:
            shutil.copy2(source, target)

    @rule()
    def copy_the_folder(self) -> None:
        """To another place, without its times."""
        target = self.base / str(int(self.folder.name) + 1)
        shutil.copytree(self.folder, target, symlinks=True, copy_function=shutil.copyfile)
        shutil.rmtree(self.folder)
        self.folder = target

    @rule()
    def set_the_clock_back(self) -> None:
        """By an hour: everything that is there is from the future."""
        for path in self._files("**/*"):
            stat = path.stat()
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 3600 * 10**9))

    def _one(self, kind: str, pick: int) -> Path | None:
        pattern = {
            "shard": "generations/*/*/*/*.parquet",
            "sidecar": "generations/*/*/*/*.json",
            "manifest": "manifests/*/*/*.json",
            "chunk": "generations/*/*/*/chunks/*.chunk",
        }[kind]
        paths = [path for path in self._files(pattern) if "other-base" not in path.parts]
        return paths[pick % len(paths)] if paths else None

    # ---- commands

    @rule(at=st.integers(1, 150), fault=st.sampled_from(FAULTS))
    def run_and_fail(self, at: int, fault: Any) -> None:
        """A job dies, or the disk fails, at some call."""
        steps["faults"] += 1

        def work() -> int:
            Injected(self.folder / "results", at, fault)
            return max(study.run(*arguments) for arguments in study.generate())

        self._do(work, 1, 2, DIED, os.EX_TEMPFAIL)

    @rule(delays=st.integers(0, 10**6))
    def two_jobs_at_once(self, delays: int) -> None:
        """After a look by ``verify``, as in ``run``: sampling reads no shard whose size and time are the same.

        Every other time both are held up at calls that ``delays`` chooses, as on a busy machine.
        """
        self._do(self._verified)
        names = ("said by one", "said by the other")

        def work(place: int) -> int:
            if delays % 2:
                slow_down(2 * delays + place, LONGEST)
            return self._generate()

        pids = []
        for place, name in enumerate(names):
            if (pid := os.fork()) == 0:
                os._exit(self._fork(partial(work, place), name))
            pids.append(pid)
        statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        assert statuses == [0, 0], f"ended with {statuses}: {[self._said(name) for name in names]}"
        self._look()

    @rule()
    def draw_a_cell_again(self) -> None:
        arguments = ["rerun", "--checkpoint", "toy-base", "--benchmark", "sums", "--policy", "mine"]
        self._do(lambda: study.run(*arguments))

    @rule()
    def prune(self) -> None:
        self._do(lambda: study.run("prune", "--delete"))

    @rule()
    def repair(self) -> None:
        if self._files("generations"):
            self._do(lambda: study.run("verify", "--repair", "results"), 2)  # a run has to follow

    @rule()
    def import_or_take_back(self) -> None:
        options = ["--pair", "other", "--benchmark", "sums", "--role", "base", "--policy", "theirs", "--yes"]
        command = ["imports", "--remove", "other/sums"] if self.imported else ["import", "log.jsonl", *options]
        self._do(lambda: study.run(*command))
        self.imported = not self.imported

    @rule()
    def run(self) -> None:
        """The next run, after a look by ``verify``, which finds what changed without a new time."""
        steps["runs"] += 1

        def work() -> int:
            self._verified()
            return self._generate()

        self._do(work)
        self._look()

    @staticmethod
    def _verified() -> None:
        if Path("results/generations").exists():
            verify(Path("results"))

    @staticmethod
    def _generate() -> int:
        return max(study.run(*arguments) for arguments in study.generate())

    # ---- the model

    def _look(self) -> None:
        """Compare the store with the model, in a process of its own."""
        report = self.base / "look.json"

        def work() -> int:
            report.write_text(json.dumps(self._found()))
            return 0

        self._do(work)
        found = json.loads(report.read_text())
        assert found["damaged"] == [], found["damaged"]
        assert found["missing"] == 0
        for generation, question, sample, text in found["rows"]:
            known = self.model.setdefault((generation, question, sample), text)
            assert known == text, (generation, question, sample)
        assert len(found["rows"]) == found["due"]

    def _found(self) -> dict[str, Any]:
        grid = Grid(from_plain(json.loads(Path("study.json").read_text())), self.folder)
        rows, due = [], 0
        for generation in grid.jobs.generations(*study.CELLS[0]):
            folder = grid.folder(*study.CELLS[0], generation.id)
            part = shards.read_generation(folder, generation.samples)
            due += generation.samples * study.QUESTIONS
            drawn = pl.struct("run", "text", "tokens", "logprobs", "finish").struct.json_encode()
            columns = part.select(pl.lit(generation.id), "question", "sample", drawn)
            rows += columns.iter_rows()
        asked = {
            str(grid.folder(*study.CELLS[0], one.id)): one.samples for one in grid.jobs.generations(*study.CELLS[0])
        }
        lines = verify(Path("results").absolute()).damaged
        damaged = [line for line in lines for folder in asked if folder in line and not _is_beyond(line, asked[folder])]
        return {"rows": rows, "due": due, "damaged": damaged, "missing": study.missing(self.folder)}

    @invariant()
    def count(self) -> None:
        steps["rules"] += 1


def _is_beyond(line: str, samples: int) -> bool:
    """Whether the manifest of an earlier, larger study misses samples that are not asked for now."""
    missing = re.search(r"lists samples (\d+) to \d+ of .*, which are missing", line)
    return missing is not None and int(missing[1]) >= samples


def explore(examples: int, length: int, seed: int) -> dict[str, float]:
    """Play sequences of rules; how many steps, runs and faults there were, and seconds of processor time."""
    random.seed(seed)
    started = time.process_time()
    chosen = settings(
        max_examples=examples,
        stateful_step_count=length,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    run_state_machine_as_test(seeded(seed)(Store), settings=chosen)
    return {**steps, "cpu_seconds": time.process_time() - started}
