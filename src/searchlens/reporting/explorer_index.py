"""``index.json``: what a study has, and in which file.

The page learns from it alone which files there are. A file that it names can be had from the page's source; what is not
there is not named. docs/explorer.md says what the keys mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from searchlens import __version__, catalogue
from searchlens.api import pages
from searchlens.api.study import Study
from searchlens.config.sampled import BenchmarkSpec
from searchlens.engines.base import Sampling
from searchlens.reporting import captions, explorer_sentences
from searchlens.reporting.explorer_sentences import SIDES, if_here
from searchlens.reporting.figures import palette
from searchlens.search import kinds
from searchlens.search.kinds import PolicyByName
from searchlens.search.policy import FILTERS, PENALTIES, ROLES, Stated
from searchlens.store import provenance
from searchlens.store.columns import ESTIMATORS
from searchlens.store.frames import readable
from searchlens.store.ranges import Shard

_WORDS = {"min_p": "min-p", "typical_p": "typical", "top_k": "top-k", "top_p": "top-p"}
_NEUTRAL = asdict(Sampling())


def described(names: Iterable[str], configured: PolicyByName) -> list[dict[str, Any]]:
    """One entry for each policy, in the order of display."""
    entries = []
    ordered = kinds.ordered(names, configured)
    looks = palette.search_looks([name for name in ordered if kinds.is_search(name, configured)], configured)
    shades = palette.shades([name for name in ordered if name not in looks], configured)
    for name in ordered:
        policy, family = kinds.policy_of(name, configured), kinds.family(name, configured)
        controller = kinds.controller(name, configured)
        look = looks.get(name) or {"color": shades[name], "marker": palette.FAMILY_MARKERS[family]}
        entries.append(
            {
                "name": name,
                "title": _title(name, policy),
                "family": family,
                "family_title": family,
                "controller": None if controller == "autoregressive" else controller,
                "parameters": _parameters(policy) if policy else {},
                "colour": look["color"],
                "marker": look["marker"],
                "search": name in looks,
            }
        )
    return entries


def _title(name: str, policy: Stated | None) -> str:
    """What an autoregressive policy does, in words; of any other policy its name."""
    if policy is None or policy.controller.name != "autoregressive":
        return name
    local = asdict(policy.local)
    used = [key for key in (*FILTERS.values(), *PENALTIES.values()) if local[key] != _NEUTRAL[key]]
    words = [f"{_WORDS.get(key, key.replace('_', ' '))} {local[key]:g}" for key in used]
    return ", ".join([*words, f"temperature {local['temperature']:g}" if local["temperature"] else "greedy"])


def _parameters(policy: Stated) -> dict[str, Any]:
    """What differs from a plain draw from the model: of how a token is drawn, and of each component."""
    resolved = policy.resolved()
    local = {key: value for key, value in resolved["local"].items() if value != _NEUTRAL[key]}
    if policy.controller.name == "autoregressive":
        return local
    parts = [(role, key, value) for role in ROLES for key, value in resolved[role].items()]
    return local | {role if key == "name" else f"{role} {key}": value for role, key, value in parts}


VERSION = 1
RESULTS = "results"
"""Names of files of the results folder begin so."""
SHOWN = ("points", "hits", "classes", "votes")
"""Frames of a landscape that the page reads."""

SOLVED = {"rl_only": (False, True), "base_only": (True, False), "both": (True, True), "neither": (False, False)}
"""Kind of a question to whether Base and RL solve it."""

Record = dict[str, Any]


QUESTIONS_FILE = "questions/{}.parquet"
"""Name of the questions of a benchmark."""
ANSWERS_FILE, PROMPTS_FILE = "answers/{}/{}{}.parquet", "prompts/{}/{}{}.json"
"""Names of the answers and of the prompts of a checkpoint on a benchmark, and of which part of them; without a part, of
the questions of the excerpt."""
ONE_QUESTION = "/{policy}/{question}"
"""Part of the answers to one question under one policy: the page fills it in, as in the next one."""
ONE_PROMPT = "/{question}"
EXCERPT_FILE = "samples/{}/{}.parquet"
"""Name of some samples of a checkpoint on a benchmark."""
PIECES_FILE = "pieces/{}.json"
"""Name of the texts of tokens of a checkpoint."""
SCORED_FILE = "scored/{}/{}.parquet"
"""Name of what both sides of a pair say of the tokens of an excerpt; a server has all scored texts."""


def name_of(study: Study, path: Path) -> str:
    """The name under which the page asks for a file of the results folder."""
    return f"{RESULTS}/{path.relative_to(study.results).as_posix()}"


@dataclass(frozen=True)
class Index:
    """Makes the index of a study."""

    study: Study
    has: Callable[[str], bool]
    """Whether the source of the page has a file of this name."""
    by_ranges: bool
    """The source gives files of the results folder by ranges, so that shards are named."""
    left_out: Sequence[str] = ()
    """Sentences on what the source does not have."""

    def made(self) -> Record:
        """The index as plain JSON types."""
        study = self.study
        cells = self.cells()
        configured = kinds.from_specs(study.config.policies)
        sides = [cell[role] for cell in cells for role in SIDES]
        entries = described(dict.fromkeys(name for side in sides for name in side["policies"]), configured)
        shown = {entry["family"] for entry in entries}
        pairs = {pair: (base, rl) for pair, _, base, rl in study.sides}
        tables = self._tables()
        return {
            "version": VERSION,
            "source": "range" if self.by_ranges else "inlined",
            "title": ", ".join(dict.fromkeys(cell["pair"] for cell in cells)) or study.results.name,
            "made": {
                "searchlens": __version__,
                "commit": provenance.commit(),
                "when": provenance.now(),
                "fingerprint": study.fingerprint,
            },
            "running": study.running,
            "left_out": list(self.left_out),
            "default_policy": study.default_policy,
            "budgets": list(study.config.budgets),
            "confidence": study.config.landscape.confidence,
            "estimates": [*reversed(ESTIMATORS)],
            "tolerance": study.config.recovery.epsilon,
            "references": list(study.config.references),
            "metrics": [
                {"name": name, "title": each.options.get("title", name)}
                | {key: bool(each.options.get(key)) for key in ("drawn", "hits", "compared")}
                for name, each in catalogue.declared("metric").items()
            ],
            "base_colour": palette.BASE_COLOUR,
            "rl_colour": palette.RL_COLOUR,
            "families": [
                {"name": name, "title": name, "colour": colour, "marker": palette.FAMILY_MARKERS[name]}
                for name, colour in palette.FAMILY_COLOURS.items()
                if name in shown
            ],
            "policies": entries,
            "checkpoints": self._checkpoints(pairs),
            "pairs": [{"name": name, "title": name, "base": base, "rl": rl} for name, (base, rl) in pairs.items()],
            "benchmarks": [self._benchmark(name, spec) for name, spec in study.benchmarks.items()],
            "cells": cells,
            "pieces": {
                side["checkpoint"]: name for side in sides if self.has(name := PIECES_FILE.format(side["checkpoint"]))
            },
            "studies": self._studies(),
            "tables": tables,
            "origins": self._origins(tables),
        }

    # ---- names

    def _checkpoints(self, pairs: Mapping[str, tuple[str, str]]) -> Record:
        found: Record = {}
        for pair, names in pairs.items():
            spec = self.study.config.pairs.get(pair)
            for role, name in zip(SIDES, names, strict=True):
                title = f"{SIDES[role]} {pair}" if len(pairs) > 1 else SIDES[role]
                parameters = spec.parameters if spec else None
                found.setdefault(name, {"title": title, "parameters": parameters, "side": role, "pair": pair})
        return found

    def _benchmark(self, name: str, spec: BenchmarkSpec) -> Record:
        grader = catalogue.declared("grader").get(spec.grader)
        return {
            "name": name,
            "title": spec.title or name,
            "questions": self._questions(name),
            "withheld": self.study.withheld(name),
            "role": spec.role,
            "regime": spec.regime,
            "grader": spec.grader,
            "votes": grader is None or bool(grader.options.get("votes", True)),
            "file": self._kept(QUESTIONS_FILE.format(name)),
        }

    def _questions(self, name: str) -> int | None:
        """Number of questions: as the landscapes have it, because the questions themselves may not be here."""
        layout = self.study.layout
        there = layout.every(layout.landscape_frame("*", name, "points"))
        if not there:
            return None
        with readable(there[0], "landscape") as content:
            return int(pl.read_parquet(content, columns=["questions"], n_rows=1).item())

    # ---- cells

    def cells(self) -> list[Record]:
        """Every pair on every benchmark, in the order of the study."""
        return [self._cell(*side) for side in self.study.sides]

    def _cell(self, pair: str, benchmark: str, base: str, rl: str) -> Record:
        study, checkpoints = self.study, {"base": base, "rl": rl}
        sides = checkpoints.items()
        health = if_here(lambda: {role: study.health(name, benchmark) for role, name in sides}) or {}
        found = explorer_sentences.headline(study, pair, benchmark)
        frames = {frame: study.layout.recovery_frame(pair, benchmark, frame) for frame in catalogue.RECOVERY_FRAMES}
        frames["bounds"] = study.layout.likelihood_frame(pair, benchmark, "bounds")
        if (section := study.config.study.likelihood) and section.tokens:
            frames["scored"] = study.layout.likelihood_frame(pair, benchmark, "texts")
        excerpt = self._kept(SCORED_FILE.format(pair, benchmark))
        title = study.benchmarks[benchmark].title or benchmark
        levels = [explorer_sentences.STATES[each.level] for each in health.values()]
        return {
            "pair": pair,
            "benchmark": benchmark,
            "sentences": explorer_sentences.cell_sentences(study, found, health, title),
            "health": {
                "state": next((state for state in ("bad", "warn") if state in levels), "ok" if levels else "warn"),
                "sentences": [f"{SIDES[role]}: {each.reason or each.shares}." for role, each in health.items()],
            },
            "headline": {} if "bad" in levels else found.to_dict(),
            "solved": self._solved(benchmark, base, rl),
            **{role: self._side(checkpoint, benchmark) for role, checkpoint in sides},
            "files": self._existing(frames) | ({"scored": excerpt} if excerpt else {}),
            "figures": [path.stem for path in study.layout.every(study.layout.figure(pair, benchmark, "*", "svg"))],
        }

    def _solved(self, benchmark: str, base: str, rl: str) -> Record:
        """How many questions each side solves: with any sample under any of its policies."""
        sides = if_here(lambda: [solvers(self.study, each, benchmark) for each in (base, rl)])
        if sides is None:
            return {}
        both = sides[0].join(sides[1], on="question", how="full", suffix="_rl", coalesce=True)
        both = both.with_columns(pl.col("solved", "solved_rl").fill_null(value=False))
        return {name: both.filter(solved=first, solved_rl=second).height for name, (first, second) in SOLVED.items()}

    def _side(self, checkpoint: str, benchmark: str) -> Record:
        study = self.study
        frames = {frame: study.layout.landscape_frame(checkpoint, benchmark, frame) for frame in SHOWN}
        classes = if_here(study.classes, checkpoint, benchmark)
        samples: dict[str, int] = {}
        if classes is not None:
            most = classes.group_by("policy", maintain_order=True).agg(pl.col("samples").max())
            samples = dict(most.iter_rows())
        side: Record = {
            "checkpoint": checkpoint,
            "source": study.source(checkpoint, benchmark),
            "policies": list(samples),
            "samples": samples,
            "without_texts": self._without_texts(checkpoint, benchmark),
            "files": self._existing({**frames, "scores": study.layout.scores(checkpoint, benchmark)}),
        }
        cell = (checkpoint, benchmark)
        if answers := self._kept(ANSWERS_FILE.format(*cell, ONE_QUESTION if self.by_ranges else "")):
            side["files"]["answers"] = answers
        if sent := self._kept(PROMPTS_FILE.format(*cell, ONE_PROMPT if self.by_ranges else "")):
            side["files"]["prompts"] = sent
        if excerpt := self._kept(EXCERPT_FILE.format(*cell)):
            side["excerpt"] = excerpt
        if not side["without_texts"]:
            shards = if_here(study.shards, *cell) or {}
            side["traces"] = {
                policy: names
                for policy, paths in traces_of(study, shards).items()
                if (names := [name for path in paths if self.has(name := name_of(study, path))])
            }
            if self.by_ranges:
                side |= self._shards(*cell, shards)
        return side

    def _without_texts(self, checkpoint: str, benchmark: str) -> str:
        """Why no text of a cell can be read; empty if there are some."""
        if self.study.source(checkpoint, benchmark) == "recorded":
            return "These samples were recorded as counts: how many gave each answer, without texts."
        if withheld := self.study.withheld(benchmark):
            return f"{withheld[0].upper()}{withheld[1:]}."
        return ""

    def _shards(self, checkpoint: str, benchmark: str, shards: Mapping[str, Sequence[Shard]]) -> Record:
        """The shards of every policy, and what scorers of other tools said of imported samples."""
        study = self.study
        shown = {
            policy: [
                {"path": name_of(study, each.path), "samples": [each.start, each.stop]}
                | {"questions": each.sidecar["rows"] // (each.stop - each.start), "rows": each.sidecar["rows"]}
                for each in parts
            ]
            for policy, parts in shards.items()
        }
        recorded = {
            policy: study.layout.recorded(checkpoint, benchmark, parts[0].path.parent.name)
            for policy, parts in shards.items()
            if parts
        }
        return {"shards": shown, "recorded": self._existing(recorded)}

    # ---- the study

    def _studies(self) -> Record:
        layout = self.study.layout
        measures = {frame: layout.measures_frame(frame) for frame in catalogue.MEASURE_FRAMES}
        boptr = {frame: layout.boptr_frame(frame) for frame in catalogue.boptr_frames()}
        return {**self._existing(measures), "boptr": self._existing(boptr)}

    def _tables(self) -> list[Record]:
        layout = self.study.layout
        return [
            {
                "name": path.stem,
                "title": captions.readable(path.stem),
                "caption": captions.plain(captions.source("table", path.stem)),
                "csv": name,
                "notes": _notes(layout.table(path.stem, "md")),
            }
            for path in layout.tables()
            if (name := self._kept(name_of(self.study, path)))
        ]

    def _origins(self, tables: Iterable[Record]) -> Record:
        costs = [("costs", table["csv"]) for table in tables if table["name"] == "udf_cost"]
        return {**dict(costs), "rows": if_here(lambda: self.study.table("provenance").to_dicts()) or []}

    # ---- files

    def _kept(self, name: str) -> str | None:
        return name if self.has(name) else None

    def _existing(self, paths: Mapping[str, Path]) -> dict[str, str]:
        """Key to the name of its file, where there is one."""
        named = {key: name_of(self.study, path) for key, path in paths.items() if path.exists()}
        return {key: name for key, name in named.items() if self.has(name)}


def traces_of(study: Study, shards: Mapping[str, Sequence[Shard]]) -> dict[str, list[Path]]:
    """Policy to the records of its searches, where there are some."""
    named = {policy: [study.layout.trace_of(shard.path) for shard in parts] for policy, parts in shards.items()}
    found = {policy: [path for path in paths if path.exists()] for policy, paths in named.items()}
    return {policy: paths for policy, paths in found.items() if paths}


def solvers(study: Study, checkpoint: str, benchmark: str) -> pl.DataFrame:
    """Which questions a checkpoint solves, with any sample under any policy: question, solved, and counts right and
    samples.
    """
    classes = study.classes(checkpoint, benchmark)
    counts = classes.group_by("question").agg(pl.col("correct").sum().alias("right"), pl.col("samples").sum())
    return counts.select("question", (pl.col("right") > 0).alias("solved"), "right", "samples").sort("question")


def _notes(path: Path) -> list[str]:
    """The sentences under a table."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [line.removeprefix("- ") for line in lines if line.startswith("- ")]


def headline_html(study: Study) -> str:
    """The sentences on every pair on every benchmark, in the order of the study.

    Cells that are not interpretable come first, since they say why the others may be, too.
    """
    titles = {name: spec.title or name for name, spec in study.benchmarks.items()}
    cells = Index(study, frozenset().__contains__, by_ranges=False).cells()
    cells.sort(key=lambda cell: cell["health"]["state"] != "bad")
    return pages.rendered("reporting/headline.html.j2", cells=cells, titles=titles)
