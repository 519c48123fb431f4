"""A results folder as an object: the frames, questions and samples of a study, without its configuration files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from searchlens import catalogue
from searchlens.analysis.claims import percent
from searchlens.analysis.frames import pick
from searchlens.analysis.health import Health, cell_health
from searchlens.api import pages
from searchlens.api import samples as stored
from searchlens.benchmarks.prompter import Prompt, Prompter
from searchlens.config import addons
from searchlens.config.model import Config
from searchlens.config.sampled import BenchmarkSpec
from searchlens.errors import InputError, require_known
from searchlens.plan import Inputs, StudyCells
from searchlens.store import snapshots, traces
from searchlens.store.files import read_bytes
from searchlens.store.frames import made_by, read_frame
from searchlens.store.layout import Layout
from searchlens.store.ranges import Shard

UNBIASED = "unbiased"
"""The estimator of gaps: means over all subsets of the samples, which do not depend on their order."""


@dataclass(frozen=True)
class StudyQuestion:
    """A question of a benchmark.

    Attributes
    ----------
    index : int
        Position in the benchmark, from 0: column ``question`` of most frames.
    id : str
    text, gold : str
        Not part of the ``repr``, so that no question is shown by accident. ``gold`` is empty if checks decide.
    tags : mapping
        Such as level and subject.
    withheld : str
        Why ``searchlens show`` does not show texts of this benchmark; empty if it does.
    """

    index: int
    id: str
    text: str = field(repr=False)
    gold: str = field(repr=False)
    tags: Mapping[str, Any]
    withheld: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class Study:
    """The results of one study; made by ``searchlens.open``. Nothing is written, and no file is read before it is used.

    Attributes
    ----------
    results : Path
        The folder.
    root : Path
        Where relative paths of the configuration start: files of questions, recorded counts.
    config : Config
        The configuration of the newest run (config/README.md), such as ``config.study.pairs``.
    fingerprint : str
        Of the configuration, 12 hexadecimal digits.
    running : str
        What a run had still to do when these results were read, as a sentence; empty unless it goes on.

    Notes
    -----
    Every method that returns a frame returns a ``polars.DataFrame``; docs/columns.md has its columns. A file that is
    not there is an ``InputError`` that names the file and the stage that makes it. Where a checkpoint, pair or
    benchmark is left out, rows of all of them that are there follow one another.
    """

    results: Path
    root: Path
    config: Config
    fingerprint: str
    running: str = ""

    # ---- what there is

    @property
    def layout(self) -> Layout:
        """Paths of all files."""
        return Layout(self.results)

    @cached_property
    def _inputs(self) -> Inputs:
        present = [name for name in self.config.extensions if not name.endswith(".py") or (self.root / name).exists()]
        here = replace(self.config, results=str(self.results.absolute()), extensions=tuple(present))
        return _MovedInputs(StudyCells(here, self.root))

    @property
    def default_policy(self) -> str:
        """pi_0, under which RL is read."""
        return self._inputs.study.default_policy

    @property
    def benchmarks(self) -> dict[str, BenchmarkSpec]:
        """The benchmarks of the study with their configuration (config/README.md), imported ones last."""
        names = dict.fromkeys(name for _, name in self._inputs.study.cells)
        return {name: self._inputs.study.benchmark(name) for name in names}

    @property
    def sides(self) -> tuple[tuple[str, str, str, str], ...]:
        """(pair, benchmark, Base checkpoint, RL checkpoint) of every pair on every benchmark."""
        pairs = self._inputs.study.pairs
        return tuple((pair, b, pairs[pair]["base"], pairs[pair]["rl"]) for pair, b in self._inputs.study.pair_cells)

    @property
    def not_made(self) -> list[str]:
        """Tables and figures that could not be made, each with its error and its log."""
        return self._inputs.study.not_made

    def source(self, checkpoint: str, benchmark: str) -> str:
        """Where the samples of a cell come from: ``sampled``, ``imported``, or ``recorded`` (counts alone)."""
        named = self._inputs.study.source(*self._cell(checkpoint, benchmark))
        study = self.config.study
        may_be_recorded = study.recorded_counts and (study.sample == "all" or benchmark not in study.sample)
        sampled = self.layout.every(self.layout.manifest(checkpoint, benchmark, "pool-*"))
        return "recorded" if named == "sampled" and may_be_recorded and not sampled else named

    def health(self, checkpoint: str, benchmark: str) -> Health:
        """Whether a cell is interpretable, and why not (docs/troubleshooting.md)."""
        folder = self.layout.landscape(*self._cell(checkpoint, benchmark))
        return cell_health(folder, self.default_policy, self.config.health)

    @property
    def cells(self) -> pl.DataFrame:
        """One row for each checkpoint on each benchmark.

        Returns
        -------
        DataFrame
            checkpoint, benchmark, source, questions, policies, samples (of a question, most under any policy), health.
            The last four are null while the cell has no landscape.
        """
        columns = {"questions": pl.UInt32, "policies": pl.UInt32, "samples": pl.UInt32, "health": pl.String}
        schema = {"checkpoint": pl.String, "benchmark": pl.String, "source": pl.String, **columns}
        rows = []
        for cell in self._inputs.study.cells:
            found: tuple[object, ...] = (None,) * len(columns)
            if self.layout.landscape_frame(*cell, "classes").exists():
                classes = self.classes(*cell)
                counts = classes["question"].n_unique(), classes["policy"].n_unique(), classes["samples"].max()
                found = (*counts, self._level(*cell))
            rows.append((*cell, self.source(*cell), *found))
        return pl.DataFrame(rows, schema, orient="row")

    def _level(self, checkpoint: str, benchmark: str) -> str | None:
        known = self.layout.landscape_frame(checkpoint, benchmark, "health").exists()
        return self.health(checkpoint, benchmark).level if known else None

    @property
    def pairs(self) -> pl.DataFrame:
        """One row for each pair on each benchmark: pair, benchmark, base, rl (their checkpoints), health (the worse).

        ``health`` is null while a side has no landscape.
        """
        rows, order = [], (None, "not interpretable", "attention", "ok")
        for pair, benchmark, *sides in self.sides:
            levels = [self._level(side, benchmark) for side in sides]
            rows.append((pair, benchmark, *sides, min(levels, key=order.index)))
        return pl.DataFrame(rows, dict.fromkeys(("pair", "benchmark", "base", "rl", "health"), pl.String), orient="row")

    def gaps(self, budgets: Sequence[int] = (1, 16)) -> pl.DataFrame:
        """RL minus Base under the default policy, pass@k, at some budgets.

        Parameters
        ----------
        budgets : sequence of int
            Numbers of samples k. Those above the largest one of the study become it.

        Returns
        -------
        DataFrame
            pair, benchmark, budget, base, rl, rl_minus_base, lo, hi: proportions; the interval is a paired bootstrap
            over questions. A pair without a recovery analysis, or without Base samples of the default policy, has no
            rows.
        """
        if not isinstance(budgets, Sequence) or not all(isinstance(each, int) and each > 0 for each in budgets):
            raise InputError(f"budgets: {budgets!r}; allowed: a list of whole numbers, 1 or more")
        largest = max(self.config.budgets)
        wanted = list(dict.fromkeys(min(budget, largest) for budget in budgets))
        rows = pick(self.recovery(frame="same_policy"), metric="P", estimator=UNBIASED, policy=self.default_policy)
        chosen = rows.filter(pl.col("budget").is_in(wanted))
        return chosen.select("pair", "benchmark", "budget", "base", "rl", "rl_minus_base", "lo", "hi")

    # ---- frames

    def points(self, checkpoint: str | None = None, benchmark: str | None = None) -> pl.DataFrame:
        """Operating points, one row for each policy, budget, metric and estimator, after checkpoint and benchmark."""
        return self._landscape("points", checkpoint, benchmark)

    def hits(self, checkpoint: str | None = None, benchmark: str | None = None) -> pl.DataFrame:
        """What each question is at each operating point: solved or not (prefix), and with which probability."""
        return self._landscape("hits", checkpoint, benchmark)

    def classes(self, checkpoint: str | None = None, benchmark: str | None = None) -> pl.DataFrame:
        """How many samples gave each answer to each question, under each policy."""
        return self._landscape("classes", checkpoint, benchmark)

    def scores(self, checkpoint: str | None = None, benchmark: str | None = None) -> pl.DataFrame:
        """Graded samples, without their texts (``samples`` has both). Recorded cells have none."""
        return self._stacked(self.layout.scores, "score", checkpoint, benchmark)

    def agreement(self, checkpoint: str | None = None, benchmark: str | None = None) -> pl.DataFrame:
        """Samples that were judged by two graders."""
        return self._stacked(self.layout.agreement, "agreement", checkpoint, benchmark)

    def recovery(self, pair: str | None = None, benchmark: str | None = None, frame: str = "support") -> pl.DataFrame:
        """Is RL inside of Base's landscape? One of the frames of the recovery stage (``catalogue.RECOVERY_FRAMES``)."""
        require_known(frame, catalogue.RECOVERY_FRAMES, "frame")
        return self._stacked(lambda *cell: self.layout.recovery_frame(*cell, frame), "recovery", pair, benchmark)

    def paths(self, pair: str | None = None, benchmark: str | None = None) -> pl.DataFrame:
        """Operating points of Base that match RL's curve, budget by budget (frame ``path`` of ``recovery``)."""
        return self.recovery(pair, benchmark, "path")

    def measures(self, frame: str = "measures") -> pl.DataFrame:
        """One of the frames of the measures of all samples (``catalogue.MEASURE_FRAMES``, docs/measures.md)."""
        require_known(frame, catalogue.MEASURE_FRAMES, "frame")
        return read_frame(self.layout.measures_frame(frame), "measures")

    def boptr(self, frame: str) -> pl.DataFrame:
        """One of the frames of BOPTR (``catalogue.boptr_frames``)."""
        require_known(frame, catalogue.boptr_frames(), "frame")
        return read_frame(self.layout.boptr_frame(frame), "boptr")

    def table(self, name: str) -> pl.DataFrame:
        """The data of one table, its CSV file.

        Raises
        ------
        InputError
            There is no such table; the message lists those that are there.
        """
        path, tables = self.layout.table(str(name), "csv"), self.layout.tables()
        if path not in tables:
            declared = catalogue.declared("table")
            if not isinstance(name, str) or name not in declared:
                there = ", ".join(each.stem for each in tables)
                raise InputError(f"table {name!r} is unknown; in {path.parent} are: {there or '(none)'}")
            added = {table: stage for stage, each in addons.stages().items() for table in each.tables}
            stage = {"boptr": "transfer", **added}.get(declared[name].options["stage"], "tables")
            raise InputError(f"{path} was not made", made_by(stage))
        return pl.read_csv(read_bytes(path), infer_schema_length=None)

    def _landscape(self, frame: str, checkpoint: str | None, benchmark: str | None) -> pl.DataFrame:
        return self._stacked(
            lambda *cell: self.layout.landscape_frame(*cell, frame), "landscape", checkpoint, benchmark
        )

    def _stacked(
        self, path_of: Callable[[str, str], Path], stage: str, first: str | None, second: str | None
    ) -> pl.DataFrame:
        """The frames of one cell, or of all that are there, with what each is of in the first two columns."""
        of_pairs = stage == "recovery"
        known = self._inputs.study.pair_cells if of_pairs else self._inputs.study.cells
        named = {"pair" if of_pairs else "checkpoint": first, "benchmark": second}
        for position, (key, name) in enumerate(named.items()):
            if name is not None:
                require_known(name, {cell[position] for cell in known}, key)
        chosen = [cell for cell in known if first in (None, cell[0]) and second in (None, cell[1])]
        if not chosen:
            what = " and ".join(f"{key} {name}" for key, name in named.items() if name)
            raise InputError(f"this study has no cell of {what or 'any kind'}")
        there = [cell for cell in chosen if path_of(*cell).exists()] or chosen[:1]
        parts = []
        for cell in there if None in (first, second) else chosen:
            place = [pl.lit(value).alias(key) for key, value in zip(named, cell, strict=True)]
            parts.append(read_frame(path_of(*cell), stage).select(*place, pl.all()))
        return pl.concat(parts, how="diagonal")

    def _cell(self, checkpoint: str, benchmark: str) -> tuple[str, str]:
        require_known(checkpoint, {cell[0] for cell in self._inputs.study.cells}, "checkpoint")
        require_known(benchmark, {cell[1] for cell in self._inputs.study.cells if cell[0] == checkpoint}, "benchmark")
        return checkpoint, benchmark

    # ---- questions and samples

    def withheld(self, benchmark: str) -> str:
        """Why texts of a benchmark are not to be shown in plain text; empty if they may be."""
        require_known(benchmark, {name for _, name in self._inputs.study.cells}, "benchmark")
        terms = self._inputs.study.terms(benchmark)
        return f"{terms}: its terms ask that no example be shown in plain text" if terms else ""

    def questions(self, benchmark: str) -> tuple[StudyQuestion, ...]:
        """All questions of a benchmark, in order.

        Raises
        ------
        InputError
            Their file is not here; ``searchlens.open(results, root=...)`` says where relative paths start.
        """
        require_known(benchmark, {name for _, name in self._inputs.study.cells}, "benchmark")
        if absent := self._inputs.absent(benchmark):
            raise InputError(absent, _ROOT)
        try:
            found = self._inputs.questions(benchmark)
        except InputError as error:
            raise InputError(error.message, error.hint or _ROOT) from None
        reason = self.withheld(benchmark)
        return tuple(
            StudyQuestion(i, one.id, one.text, one.gold, dict(one.tags), reason) for i, one in enumerate(found)
        )

    def question(self, benchmark: str, which: int | str) -> StudyQuestion:
        """One question, by its position from 0 or by its id.

        Raises
        ------
        InputError
            There is no such question, or the file of the questions is not here.
        """
        known = self.questions(benchmark)
        found = [each for each in known if isinstance(which, int | str) and which in (each.index, each.id)]
        if found:
            return found[0]
        raise InputError(f"{benchmark} has no question {which!r}; it has {len(known)}: 0 to {len(known) - 1}, or an id")

    def prompts(self, checkpoint: str, benchmark: str, questions: Sequence[int | str]) -> list[Prompt]:
        """The prompts of some questions, as they were sent to a checkpoint.

        Parameters
        ----------
        checkpoint, benchmark : str
        questions : sequence of int or str
            Positions from 0, or ids.

        Returns
        -------
        list of Prompt
            Token ids, their texts, and which of them are special tokens; ``str`` of one marks these.

        Raises
        ------
        InputError
            The samples were imported or recorded, questions or tokenizer are not here, texts of the benchmark are
            withheld, or the tokenizer is another one now.
        """
        cell, inputs = self._cell(checkpoint, benchmark), self._inputs
        source = self.source(*cell)
        if reason := self.withheld(benchmark) or (f"its samples are {source}" if source != "sampled" else ""):
            raise InputError(f"prompts of {checkpoint} on {benchmark}: {reason}")
        addons.require("tokenizers")
        if not isinstance(questions, Sequence):
            raise InputError(f"questions: {questions!r}; allowed: a list of positions or ids")
        asked = [inputs.questions(benchmark)[self.question(benchmark, each).index] for each in questions]
        spec, folder = self.config.checkpoints[checkpoint], inputs.checkpoint_folder(checkpoint)
        if not (folder / "tokenizer.json").exists():
            raise InputError(f"its tokenizer is not on this machine: {folder} has no tokenizer.json", _ROOT)
        prompter = Prompter(folder, inputs.template(*cell), spec.stop_tokens, inputs.specials(checkpoint))
        first = next((found[0] for found in self.shards(*cell).values() if found), None)
        drawn = json.loads(first.sidecar.get("specials") or "{}") if first else {}
        known = {key: value for key, value in prompter.record.items() if key in {"prompt", "made"} & drawn.keys()}
        if not known.items() <= drawn.items():
            what = "tokenizer, chat template or worked examples"
            raise InputError(
                f"{what} of {checkpoint} ({folder}) are others than those that the samples were drawn with"
            )
        return prompter.shown(asked)

    def samples(
        self,
        checkpoint: str,
        benchmark: str,
        policy: str | None = None,
        question: int | str | Sequence[int | str] | None = None,
        *,
        tokens: bool = False,
    ) -> pl.DataFrame:
        """Texts of a cell with their verdicts; without a policy or a question, of all of them.

        Parameters
        ----------
        checkpoint, benchmark : str
        policy : str, optional
        question : int or str, or a sequence of them, optional
            Position from 0, or id. With it, only rows of these questions are read from the files.
        tokens : bool
            Also the lists ``token_ids``, ``logprobs`` and ``sampling_logprobs``, which are large.

        Returns
        -------
        DataFrame
            ``api.samples.SAMPLES``, and the lists. Verdicts are null if the cell was not graded yet; log-probabilities
            are null for imported samples without them.

        Raises
        ------
        InputError
            The cell has no samples here: it was recorded as counts, or its files were not copied. Or its scores are of
            other samples than those in the store.
        """
        return stored.read(self._place(checkpoint, benchmark), policy, question, tokens=tokens)

    def streams(self, checkpoint: str, benchmark: str) -> dict[str, tuple[str, int]]:
        """Policy to the id of its samples and how many of each question there are; empty for a recorded cell.

        The id is a hash of everything that decides the tokens, so that equal ids have equal samples.
        """
        return stored.streams(self._place(checkpoint, benchmark))

    def shards(self, checkpoint: str, benchmark: str) -> dict[str, list[Shard]]:
        """Policy to the files of its samples that the scores are of, in order; empty for a recorded cell.

        Their rows are sorted by question, in the order of the benchmark, then by sample.
        """
        return stored.files(self._place(checkpoint, benchmark))

    def traces(self, checkpoint: str, benchmark: str, policy: str) -> pl.DataFrame:
        """What the recorded searches of a policy did, run after run.

        Returns
        -------
        DataFrame
            ``store.columns.TRACES``; docs/columns.md says what a row is.

        Raises
        ------
        InputError
            There is no such policy, nothing was recorded of it, or a file is damaged.
        """
        of_policy = self.shards(checkpoint, benchmark)
        require_known(policy, of_policy, "policy")
        paths = [path for shard in of_policy[policy] if (path := self.layout.trace_of(shard.path)).exists()]
        if not paths:
            raise InputError(
                f"no search of {policy} on {checkpoint}/{benchmark} was recorded",
                "`searchlens trace` records the first runs",
            )
        return pl.concat([traces.read(path) for path in paths]).sort("question", "run", "row")

    def vocabulary(self, checkpoint: str) -> Path:
        """The file ``tokenizer.json`` of a checkpoint, whether or not it is there.

        Raises
        ------
        InputError
            The checkpoint is not one of the configuration, or not pinned.
        """
        require_known(checkpoint, self.config.checkpoints, "checkpoint")
        return self._inputs.checkpoint_folder(checkpoint) / "tokenizer.json"

    def asked(self, checkpoint: str, benchmark: str) -> str:
        """Hash of the questions that a cell was asked, without golds; empty if it is not known here."""
        hashes = stored.asked(self._place(checkpoint, benchmark))
        if not hashes and not self._inputs.absent(benchmark):
            with suppress(InputError):
                hashes = [self._inputs.asked_hash(benchmark)]
        return hashes[0] if len(hashes) == 1 else ""

    def _place(self, checkpoint: str, benchmark: str) -> stored.Place:
        cell = self._cell(checkpoint, benchmark)
        imports = [(item.policy, item.id, item.samples) for item in self._inputs.study.imported(*cell)]
        grader = self._inputs.study.benchmark(benchmark).grader
        return stored.Place(self.layout, *cell, self.source(*cell), grader, imports)

    # ---- faces

    def __repr__(self) -> str:
        pairs = dict.fromkeys(pair for pair, *_ in self.sides)
        names = dict.fromkeys(name for _, name in self._inputs.study.cells)
        return f"Study({str(self.results)!r}: pairs {', '.join(pairs)}; benchmarks {', '.join(names)})"

    def _repr_html_(self) -> str:
        has_gaps = self.layout.every(self.layout.recovery_frame("*", "*", "same_policy"))
        gaps = self.gaps() if has_gaps else pl.DataFrame(schema=["budget"])
        budgets = gaps["budget"].unique().sort().to_list()
        broken = set(self.pairs.filter(health=_BROKEN).select("pair", "benchmark").iter_rows())
        shown: dict[tuple[str, str], dict[int, str]] = {}
        for row in gaps.iter_rows(named=True):
            cell = (row["pair"], row["benchmark"])
            text = _BROKEN if cell in broken else percent(row["rl_minus_base"], row["lo"], row["hi"], "+")
            shown.setdefault(cell, {})[row["budget"]] = text
        return pages.rendered(
            "api/study.html.j2",
            results=self.results,
            fingerprint=self.fingerprint,
            heads=["pair", "benchmark", *(f"RL − Base at {budget}" for budget in budgets)],
            gaps=[[*cell, *(texts.get(budget, "") for budget in budgets)] for cell, texts in shown.items()],
            columns=self.cells.columns,
            cells=[["" if value is None else value for value in row] for row in self.cells.iter_rows()],
        )


_BROKEN = "not interpretable"
_ROOT = "put the file there; or say where relative paths start: searchlens.open(results, root=...)"


class _MovedInputs(Inputs):
    """Questions of a study whose folder may have been moved: those that came with imports lie inside of it."""

    def question_files(self, name: str) -> list[Path]:
        here = self.layout.imported_questions(name)
        return [here] if name not in self.config.benchmarks and here.exists() else super().question_files(name)


def open_study(
    results: str | os.PathLike[str] = "results", *, root: str | os.PathLike[str] | None = None, config: str = ""
) -> Study:
    """Open a results folder, made here or copied from elsewhere. It is public as ``searchlens.open``.

    Parameters
    ----------
    results : path
    root : path, optional
        Where relative paths of the configuration start, such as those of question files. By default the folder in which
        the study ran, as far as the place of ``results`` tells, or else the one above ``results``.
    config : str, optional
        Fingerprint of one of the configurations in the folder; by default the one that was written last.

    Returns
    -------
    Study

    Raises
    ------
    InputError
        There is no such folder, or it has no configuration.
    """
    for name, value in (("results", results), ("root", root or ""), ("config", config)):
        if not isinstance(value, str if name == "config" else str | os.PathLike):
            raise InputError(f"{name}: {value!r}; allowed: {'a fingerprint, text' if name == 'config' else 'a path'}")
    layout = Layout(Path(results))
    layout.require_results()
    written = layout.snapshots()
    if not written:
        raise InputError(
            f"{layout.snapshot('*').parent} has no configuration of a run",
            "copy it with the results; or write it with `searchlens snapshot`",
        )
    if config:
        require_known(config, {path.stem for path in written}, "configuration")
    chosen = layout.snapshot(config) if config else max(written, key=lambda path: (path.stat().st_mtime_ns, path.name))
    content = snapshots.read(chosen)
    start = Path(root) if root is not None else _start(layout.results, Path(content.results))
    return Study(layout.results, start, content, chosen.stem)


def _start(results: Path, named: Path) -> Path:
    """Where relative paths start, by the name that the configuration has for the results folder."""
    if named.is_absolute() or results.parts == named.parts:
        return Path()
    here, parts = results.absolute(), named.parts
    return Path(*here.parts[: -len(parts)]) if here.parts[-len(parts) :] == parts else here.parent
