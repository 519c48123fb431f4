"""A pool of samples that was read: its rows in runs that are merged, checked, and given out in pieces."""

from __future__ import annotations

import hashlib
import heapq
import json
import shutil
import tempfile
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from searchlens.benchmarks import Question, asked_hash
from searchlens.engines.base import Sampling
from searchlens.errors import InputError
from searchlens.formats.readers.logged import LoggedSample, Stream, Verdict
from searchlens.search.policy import Policy, parse
from searchlens.store.files import digest
from searchlens.store.shards import SAMPLES

MEMORY = 96 * 2**20
"""Bytes of texts that are held before a run is written, and about those of a piece that is read."""

ROW = pl.Schema(
    {
        "number": pl.UInt32(),
        **{name: SAMPLES[name] for name in ("sample", "text", "tokens", "logprobs", "n_tokens", "mean_logprob")},
        **{name: SAMPLES[name] for name in ("finish", "details")},
        **dict.fromkeys(("verdicts", "place"), pl.String()),
    }
)
"""One sample. ``number`` numbers the questions in the order of their first samples; ``verdicts`` and
``details`` are JSON or null."""

Positions = npt.NDArray[np.int64]

Rank = Callable[[int], Any]
"""What the questions are ordered by: number of a question to anything that can be compared."""


class Spill:
    """Rows of several pools, which are read in the order of ``rank``; that of a number never changes.

    Rows are collected until they fill the memory that is allowed, then sorted and written as a run. All runs of a pool
    are read side by side, a piece of each at a time, from the disk as they are needed. They are temporary files, in
    the folder of the system for these.
    """

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._folder: Path | None = None
        self._rows: defaultdict[Hashable, list[tuple[Any, ...]]] = defaultdict(list)
        self._sizes: Counter[Hashable] = Counter()
        self._runs: dict[Hashable, list[Path]] = {}
        self._held = 0

    def add(self, pool: Hashable, row: tuple[Any, ...], size: int) -> None:
        """Add a row (the columns of ``ROW``) of about ``size`` bytes."""
        self._rows[pool].append(row)
        self._sizes[pool] += size
        self._held += size
        if self._held > MEMORY:
            largest = max(self._sizes, key=self._sizes.__getitem__)
            self._held -= self._sizes.pop(largest)
            self._write(largest, self._sorted(self._rows.pop(largest)))

    def read(self, pool: Hashable, positions: Positions) -> Iterator[pl.DataFrame]:
        """The rows of a pool in pieces of whole questions, by rank, then by sample; ``positions`` of questions, by
        number, are in the order of the ranks.
        """
        tables = [pa.ipc.open_file(pa.memory_map(str(path))).read_all() for path in self._runs.get(pool, [])]
        runs = [pl.DataFrame(pl.from_arrow(table)) for table in tables]
        if self._rows.get(pool):
            runs.append(self._sorted(self._rows[pool]))
        places = [positions[run["number"].to_numpy()] for run in runs]
        ends = np.cumsum(np.bincount(np.concatenate([np.empty(0, np.int64), *places])))
        size = sum(run.estimated_size() for run in runs)
        start = done = 0
        while start < len(ends):
            most = done + MEMORY / 4 / size * ends[-1]  # rows of such a size on average
            stop = max(start + 1, int(np.searchsorted(ends, most, "right")))
            edges = (np.searchsorted(each, (start, stop)) for each in places)
            part = pl.concat([run[first:last] for run, (first, last) in zip(runs, edges, strict=True)])
            if part.height:
                yield self._ordered(part)
            start, done = stop, ends[stop - 1]

    def close(self) -> None:
        """Delete the temporary files."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _write(self, pool: Hashable, rows: pl.DataFrame) -> None:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="searchlens-"))
        path = self._folder / f"{sum(map(len, self._runs.values())):05d}.arrow"
        rows.write_ipc(path, compression="uncompressed")  # so that it can be mapped
        self._runs.setdefault(pool, []).append(path)

    def _sorted(self, rows: Sequence[tuple[Any, ...]]) -> pl.DataFrame:
        columns = dict(zip(ROW.names(), zip(*rows, strict=True), strict=True))
        series = [pl.Series(name, columns[name], dtype=kind, strict=False) for name, kind in ROW.items()]
        return self._ordered(pl.DataFrame(series))

    def _ordered(self, rows: pl.DataFrame) -> pl.DataFrame:
        numbers = sorted(rows["number"].unique().to_list(), key=self._rank)
        order = pl.col("number").replace_strict(numbers, range(len(numbers)), return_dtype=pl.UInt32)
        return rows.sort(order, "sample", maintain_order=True)


EXAMINED = 1000
"""Samples of a pool whose texts are looked at before anything is stored."""

_ENOUGH = 2000
"""Fewest characters of the texts of a stream that can be equal by no chance to those of another one."""

_WRAP = 2**64


@dataclass(frozen=True, order=True)
class Examined:
    """A sample that is looked at before anything is stored. They are chosen by the hash of their content."""

    key: int
    number: int
    sample: int
    text: str
    finish: str
    verdicts: Mapping[str, Verdict]


class Tally:
    """Counts of one pool."""

    def __init__(self) -> None:
        self.samples: dict[int, array[int]] = {}
        """Number of a question to the numbers of its samples, as they came."""
        self.failed: dict[int, array[int]] = {}
        """The same, of failed requests."""
        self.ends: Counter[str] = Counter()
        self.inferred = 0
        """Ends that were inferred from the limit of tokens."""
        self.with_tokens = 0
        self.with_logprobs = 0
        self.with_text = 0
        self.count = 0
        self.scorers: dict[str, None] = {}
        self._content = 0
        self._texts: dict[int, list[int]] = {}
        self._examined: list[tuple[int, int, Examined]] = []

    def add(
        self, number: int, question: str, sample: LoggedSample, text: str, finish: str, n_tokens: int | None
    ) -> None:
        """Count one sample of a question."""
        self.count += 1
        self.samples.setdefault(number, array("L")).append(sample.sample)
        self.ends[finish] += 1
        self.with_tokens += n_tokens is not None
        self.with_logprobs += sample.logprobs is not None
        self.with_text += sample.text is not None
        if sample.verdicts:
            self.scorers |= dict.fromkeys(sample.verdicts)
        if finish == "failed":
            self.failed.setdefault(number, array("L")).append(sample.sample)
        else:
            sums = self._texts.setdefault(sample.sample, [0, 0, 0])
            sums[0] = (sums[0] + hash((number, text))) % _WRAP
            sums[1] += 1
            sums[2] += len(text)
        rest = f"{question}\0{sample.sample}\0{finish}\0{sample.tokens}\0{sample.logprobs}\0"
        key = int.from_bytes(hashlib.sha256((rest + text).encode("utf-8", "surrogatepass")).digest(), "big")
        self._content = (self._content + key) % (1 << 256)
        if len(self._examined) < EXAMINED or -key > self._examined[0][0]:
            one = Examined(key, number, sample.sample, text, finish, sample.verdicts)
            add = heapq.heappush if len(self._examined) < EXAMINED else heapq.heapreplace
            add(self._examined, (-key, self.count, one))

    @property
    def content(self) -> str:
        """Hash of all samples, whatever their order: 64 hexadecimal digits."""
        return f"{self._content:064x}"

    @property
    def examined(self) -> list[Examined]:
        """At most ``EXAMINED`` samples, the same ones for the same samples in any order."""
        return sorted(one for _, _, one in self._examined)

    @property
    def equal_samples(self) -> tuple[int, int] | None:
        """Two samples that have equal texts in all questions, which are no two draws; None if there are none."""
        seen: dict[tuple[int, int], int] = {}
        for sample in sorted(self._texts):
            total, count, characters = self._texts[sample]
            if characters >= _ENOUGH and count == len(self.samples):
                first = seen.setdefault((total, characters), sample)
                if first != sample:
                    return first, sample
        return None

    def repeated(self) -> Iterator[tuple[int, int]]:
        """(question, sample) that came more than once."""
        for number, samples in self.samples.items():
            values, counts = np.unique(np.asarray(samples), return_counts=True)
            yield from ((number, int(value)) for value in values[counts > 1])

    def usable(self, number: int) -> int:
        """Samples of a question that did not fail."""
        return len(self.samples.get(number, ())) - len(self.failed.get(number, ()))


_DECIDING = ("top_p", "top_k", "min_p", "repetition_penalty")
"""Parameters that a server fills from the model's ``generation_config.json`` where a request does not give them."""

_FLOATS = ("temperature", "top_p", "min_p", "typical_p", "repetition_penalty", "frequency_penalty", "presence_penalty")


@dataclass(frozen=True)
class Proposal:
    """What the parameters of a log say of its policy."""

    name: str
    """Canonical name, ``Policy.name``; empty if the log does not say enough."""
    unstated: tuple[str, ...] = ()
    """Parameters that the log does not give, although they decide what is drawn."""
    why: str = ""
    """Why there is no name; empty if there is one."""

    def __str__(self) -> str:
        if not self.name:
            return self.why
        return f"{self.name} (not stated: {', '.join(self.unstated)})" if self.unstated else self.name


def proposed(asked: Mapping[str, Any], name: str = "") -> Proposal:
    """The policy of sampling parameters as the log has them, or the one that the log names.

    >>> print(proposed({"temperature": 0.6, "top_p": 0.95, "top_k": -1}))
    topp0.95_t0.6 (not stated: min_p, repetition_penalty)
    >>> print(proposed({"do_sample": False, "temperature": 1}))
    greedy
    """
    if name:
        return Proposal(name)
    given = {key: value for key, value in asked.items() if value is not None}
    if given.get("do_sample") is False or given.get("temperature") == 0:
        return Proposal("greedy")
    if "temperature" not in given:
        return Proposal("", why="the log does not say the temperature")
    try:
        numbers: dict[str, Any] = {key: float(given[key]) for key in _FLOATS if key in given}
        if "top_k" in given:  # -1 keeps everything, as min_p 0 does
            numbers["top_k"] = max(0, int(given["top_k"]))
        policy = parse(Policy(Sampling(**numbers)).name)  # checks every limit
    except (TypeError, ValueError, OverflowError) as error:
        return Proposal("", why=f"a sampling parameter of the log is no number: {error}")
    except InputError as error:
        return Proposal("", why=error.message)
    return Proposal(policy.name, tuple(key for key in _DECIDING if key not in given))


RECORDED = pl.Schema(
    {
        "question": pl.String(),
        "sample": pl.UInt32(),
        "scorer": pl.String(),
        "value": pl.Float64(),
        "answer": pl.String(),
    }
)
"""What the scorers of a harness said of each sample: a value in [0, 1] or null, and the answer that they took."""

_VERDICTS = pl.List(pl.Struct({"scorer": pl.String(), "value": pl.Float64(), "answer": pl.String()}))


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The samples of one model under one policy on one benchmark, complete and consistent."""

    stream: Stream
    """Of the log."""
    role: str
    """``base`` or ``rl``; empty if neither the log nor the user says."""
    proposal: Proposal
    """What the log says of the policy."""
    policy: str
    """Its name: what the user says, or the proposal."""
    questions: tuple[Question, ...]
    samples: int
    """Samples of each question, numbered from 0; the smallest number, if they are unequal."""
    tally: Tally
    """Counts of everything that was read, dropped samples included."""
    failed: str = ""
    """``drop``, ``wrong`` or ``unequal`` where requests failed or samples are missing; empty if none do."""
    scorer: str = ""
    """Scorer of the log whose verdicts count in place of a grader's; empty if a grader judges."""
    _read: Callable[[], Iterator[pl.DataFrame]] = field(repr=False)
    """The rows (``ROW``), with ``number`` as the position of the question."""
    _places: Sequence[int] = field(repr=False)
    """Number of a question, as the tally has it, to its position in ``questions``; -1 for one that is left out."""

    @cached_property
    def id(self) -> str:
        """12 hexadecimal digits of a hash of the samples and of what was asked, whatever format they came in.

        Verdicts of the log are part of it only where they count (``scorer``).
        """
        content: dict[str, Any] = {
            "imported": self.tally.content,
            "questions": asked_hash(self.questions),
            "samples": self.samples,
            "failed": self.failed,
        }
        if self.scorer:  # hash of the verdicts that count, in the order of the samples
            recorded = hashlib.sha256(json.dumps(self.scorer).encode())
            for part in self.recorded():
                rows = part.filter(scorer=self.scorer).select("question", "sample", "value", "answer")
                recorded.update("".join(json.dumps(row) + "\n" for row in rows.iter_rows()).encode())
            content["recorded"] = recorded.hexdigest()
        return digest(content, 12)

    @property
    def has_texts(self) -> bool:
        """Whether there is a text to grade; otherwise only verdicts were kept."""
        return self.tally.with_text > 0

    @property
    def examined(self) -> list[Examined]:
        """Some of the samples, to be looked at before anything is stored."""
        return [one for one in self.tally.examined if self._places[one.number] >= 0]

    def question(self, number: int) -> Question:
        """The question that has a number in the tally."""
        return self.questions[self._places[number]]

    def frames(self) -> Iterator[pl.DataFrame]:
        """The samples in pieces (columns of ``shards.SAMPLES``), in the order of the benchmark, then by sample."""
        tally = self.tally
        whole = tally.count - tally.ends["failed"]
        has_tokens, has_logprobs = 0 < whole <= tally.with_tokens, 0 < whole <= tally.with_logprobs
        absent = [] if has_tokens else ["tokens"]
        absent += [] if has_logprobs else ["logprobs", "mean_logprob"]
        unknown = pl.lit(None)
        for part in self._parts():
            failed = pl.col("finish") == "failed"
            score = pl.when(failed).then(float("-inf")).otherwise("mean_logprob") if has_logprobs else unknown
            n_tokens = pl.col("n_tokens").fill_null(0) if has_tokens else unknown
            counts = {"n_tokens": n_tokens, "generated": n_tokens, "requests": pl.lit(1)}
            given = part.with_columns(
                pl.col("text").fill_null(""),
                pl.when(pl.col("finish") != "unknown").then("finish").alias("finish"),
                *(unknown.alias(name) for name in ("sampling_logprobs", *absent)),
                **{"run": pl.col("sample"), "score": score, **counts},
            )
            yield given.select(SAMPLES.names()).cast(SAMPLES)

    def recorded(self) -> Iterator[pl.DataFrame]:
        """The recorded verdicts in pieces (columns of ``RECORDED``), ordered like the samples."""
        if not self.tally.scorers:
            return
        for part in self._parts():
            said = part.filter(pl.col("verdicts").is_not_null()).select(
                "question", "sample", pl.col("verdicts").str.json_decode(_VERDICTS)
            )
            yield said.explode("verdicts").unnest("verdicts").cast(RECORDED)  # type: ignore[arg-type]

    def _parts(self) -> Iterator[pl.DataFrame]:
        ids = pl.Series([question.id for question in self.questions])
        for part in self._read():
            kept = part
            if self.failed in ("drop", "unequal"):  # the first that did not fail, numbered again from 0
                rank = (pl.col("sample").cum_count().over("number") - 1).cast(pl.UInt32)
                kept = part.filter(pl.col("finish") != "failed").with_columns(sample=rank)
            if self.failed == "drop":
                kept = kept.filter(pl.col("sample") < self.samples)
            if self.failed == "wrong":  # a sample that is missing is a failed request
                numbers = part.select(pl.col("number").unique(maintain_order=True))
                every = numbers.join(
                    pl.DataFrame({"sample": range(self.samples)}, {"sample": pl.UInt32()}), how="cross"
                )
                filled = every.join(part, on=["number", "sample"], how="left", maintain_order="left")
                kept = filled.with_columns(pl.col("finish").fill_null("failed"))
            yield kept.with_columns(question=ids.gather(kept["number"]))
