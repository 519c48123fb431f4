"""What the figures of a pair and of a study are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import polars as pl

from searchlens.analysis.frames import pick
from searchlens.catalogue import titles
from searchlens.config.general import General
from searchlens.config.recovery import RecoveryOptions
from searchlens.search.kinds import PolicyByName
from searchlens.store.frames import read_frame

Source = Literal["sampled", "imported", "recorded", "simulated"]


@dataclass(frozen=True, kw_only=True)
class Labels:
    """What a figure says about one pair on one benchmark, and what it has to know of the configuration."""

    pair: str
    benchmark: str
    """``pair``, ``benchmark``: names for people."""
    questions: int
    """Number of questions in the benchmark."""
    metric: str = "P"
    """A metric that is declared as ``drawn``."""
    source: Source = "sampled"
    """Where the samples come from; the figure says it unless they were sampled in this study."""
    estimator: str = "unbiased"
    options: RecoveryOptions = field(default_factory=RecoveryOptions)
    general: General = field(default_factory=General)
    """``options``, ``general``: what the legends state: tolerance, support region, policy of the target curve, level of
    intervals."""
    policies: PolicyByName = field(default_factory=dict)
    """The configured policies by name. Any other name must spell its policy, or counts as a search of unknown kind."""
    parameters: float | None = None
    """Number of parameters of either model of the pair; None if it is unknown."""
    warning: str = ""
    """Why the comparison is not interpretable; empty if it is."""

    @property
    def subject(self) -> str:
        """Pair, benchmark, number of questions and metric: the second line of a title."""
        return f"{self.pair}, {self.benchmark} ({self.questions} questions), {self.measure}"

    def titled(self, finding: str) -> str:
        """A title: what the figure finds, then what it is about."""
        return f"{finding}\n{self.subject}"

    @property
    def measure(self) -> str:
        """Title of the metric; that only the first samples were read is said."""
        name = titles("metric")[self.metric]
        return name if self.estimator == "unbiased" else f"{name} of the first k samples"

    @property
    def band(self) -> str:
        """For example ``95% band``."""
        return f"{self.general.confidence:.0%} band"

    @property
    def curve(self) -> dict[str, str | int]:
        """The columns that choose the curves to draw: metric and estimator."""
        return {"metric": self.metric, "estimator": self.estimator}


@dataclass(frozen=True)
class Curves:
    """One pair on one benchmark: its labels, and ``points`` of its two landscapes."""

    labels: Labels
    base: pl.DataFrame
    rl: pl.DataFrame


@dataclass(frozen=True, kw_only=True)
class PairContext(Curves):
    """What the figures of one pair on one benchmark are made from (``docs/columns.md`` describes the frames)."""

    prefill: pl.DataFrame
    """Tokens that were computed but not generated, one row per model and policy: model (``Base`` or ``RL``), policy,
    prompt (tokens per question), again (tokens of prompts and prefixes computed again, per generated token). A policy
    without a record has no row."""
    same_policy: pl.DataFrame
    counts: pl.DataFrame
    support: pl.DataFrame
    near_match: pl.DataFrame
    path: pl.DataFrame
    """``same_policy``, ``counts``, ``support``, ``near_match``, ``path``: the recovery stage's files of these names."""

    @classmethod
    def read(cls, drawn: Curves, prefill: pl.DataFrame, recovery: Path) -> PairContext:
        """With the frames of a recovery folder."""
        names = ("same_policy", "counts", "support", "near_match", "path")
        frames = {name: read_frame(recovery / f"{name}.parquet", "recovery") for name in names}
        return cls(drawn.labels, drawn.base, drawn.rl, prefill=prefill, **frames)

    def with_metric(self, metric: str) -> PairContext:
        """The same for a figure of another metric; of one of an extension there may be no means over all choices."""
        has_means = pick(self.support, metric=metric, estimator="unbiased").height > 0
        estimator = self.labels.estimator if has_means else "first_k"
        return replace(self, labels=replace(self.labels, metric=metric, estimator=estimator))


@dataclass(frozen=True)
class StudyContext:
    """What the figures of a study are made from."""

    cells: Sequence[Curves]
    """Every pair on every benchmark, in the order of the panels."""
    measures: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    """``catalogue.MEASURE_FRAMES``, and ``handover`` if Base continued texts; titles of benchmarks as in the labels."""

    @property
    def labels(self) -> Labels:
        """The labels of the first cell, for what all cells share: metric, default policy and level of intervals."""
        return self.cells[0].labels

    def sized(self, benchmark: str, *, narrow: bool) -> str:
        """The title of a panel: a benchmark with its questions, and the samples of each under the default policy."""
        support = pick(self.measures["support"], benchmark=benchmark)
        samples = " or ".join(map(str, sorted({*support["base_samples"], *support["rl_samples"]})))
        questions = " or ".join(map(str, support["questions"].unique().sort()))
        counts = f"{questions} questions,{chr(10) if narrow else ' '}{samples} samples"
        return f"{benchmark}\n{counts}" if support.height else benchmark

    @property
    def said_source(self) -> str:
        """Where samples come from that were not drawn in this study, as the end of a title; empty if all were."""
        named: dict[str, dict[str, None]] = {}
        for cell in self.cells:
            named.setdefault(cell.labels.source, {})[cell.labels.benchmark] = None
        said = {source: names for source, names in named.items() if source != "sampled"}
        if len(named) == 1:
            return "".join(f", from {source} samples" for source in said)
        return "".join(f"; {', '.join(names)} from {source} samples" for source, names in said.items())

    @property
    def broken(self) -> set[tuple[str, str]]:
        """Pair and benchmark of the cells that are not interpretable."""
        return {(cell.labels.pair, cell.labels.benchmark) for cell in self.cells if cell.labels.warning}
