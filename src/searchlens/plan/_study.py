"""The pairs and cells of a study, and where the samples of a cell come from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from searchlens import benchmarks, catalogue
from searchlens.config import addons, project
from searchlens.config.model import ROLES, Config, PairSpec
from searchlens.config.sampled import BenchmarkSpec
from searchlens.engines.kind import EngineKind, engine_kind
from searchlens.errors import InputError, counted, unknown
from searchlens.store import layout, provenance
from searchlens.store.files import read_json
from searchlens.store.layout import Layout

PAPER_DEFAULT = "topp0.95_t1.0"
"""The paper's default policy, pi_0."""

SOURCES = ("recorded", "imported", "sampled")
"""From the least direct to the most direct."""


@dataclass(frozen=True)
class Import:
    """One imported pool of samples (``searchlens import``)."""

    pair: str
    role: str
    checkpoint: str
    benchmark: str
    policy: str
    """``pair``, ``role``, ``checkpoint``, ``benchmark``, ``policy``: what the samples are of."""
    id: str
    """Of their folder in the store."""
    samples: int
    """Samples per question."""
    grader: str
    """Of the benchmark."""
    questions: str
    """Path of the benchmark's questions."""
    part_of: str = ""
    """Family of the known benchmark of which the questions are a part, and whose terms hold for them; empty: none."""
    log: Mapping[str, Any] = field(default_factory=dict)
    """Where they came from: files, format, model, sampling parameters as found, and what was chosen or inferred."""

    @property
    def name(self) -> str:
        """``pair/benchmark/role/policy``."""
        return "/".join((self.pair, self.benchmark, self.role, self.policy))

    @classmethod
    def read(cls, path: Path) -> Import:
        """One registry file."""
        return cls(**read_json(path))


class StudyCells:
    """Pairs and cells of a validated configuration; relative paths start from ``root``."""

    def __init__(self, config: Config, root: Path = Path()) -> None:
        self.root = root
        self.layout = Layout(root / config.results)
        catalogue.use(config.extensions, root)
        self.config = config
        self.default_policy = config.default_policy or self._shared_policy()
        """pi_0, the policy of the RL target curve."""
        self.config = replace(config, default_policy=self.default_policy)

    def _shared_policy(self) -> str:
        """A policy that the RL side of every imported cell has; the paper's default where there is none."""
        sides: dict[tuple[str, str], set[str]] = {}
        for item in self.imports:
            if item.role == "rl":
                sides.setdefault((item.checkpoint, item.benchmark), set()).add(item.policy)
        shared = set.intersection(*sides.values()) if sides else set()
        return PAPER_DEFAULT if PAPER_DEFAULT in shared else min(shared, default=PAPER_DEFAULT)

    @cached_property
    def every_import(self) -> tuple[Import, ...]:
        """Everything that was imported into this results folder."""
        return tuple(Import.read(path) for path in self.layout.import_records())

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        """The imports that belong to this study (``study.imports``)."""
        study = self.config.study
        which = study.imports
        if which == "all":
            return self.every_import
        named = [i for i in self.every_import if i.pair in study.pairs or i.benchmark in study.benchmarks]
        return tuple(named) if which == "named" else ()

    @cached_property
    def pairs(self) -> dict[str, dict[str, str]]:
        """Pair name to its two checkpoints: the configured ones of this study, then imported ones."""
        specs = self.config.pairs
        configured = {name: {"base": specs[name].base, "rl": specs[name].rl} for name in self.config.study.pairs}
        for item in self.imports:
            configured.setdefault(item.pair, {})[item.role] = item.checkpoint
        return configured

    @cached_property
    def cells(self) -> tuple[tuple[str, str], ...]:
        """(checkpoint, benchmark) of this study, imports last."""
        pairs = [self.config.pairs[name] for name in self.config.study.pairs]
        names = self.config.study.benchmarks
        first = [(getattr(pair, r), b) for pair in pairs for r in ROLES for b in names if self._belongs(b, pair, r)]
        fitted = [b for b in names if self.config.benchmarks[b].role == "fitted"]
        repeats = [side for pair in pairs for batch in pair.batches.values() for side in batch.sides.values()]
        cells = dict.fromkeys([*first, *((checkpoint, b) for checkpoint in repeats for b in fitted)])
        cells.update(dict.fromkeys((item.checkpoint, item.benchmark) for item in self.imports))
        return tuple(cells)

    def _belongs(self, benchmark: str, pair: PairSpec, role: str) -> bool:
        """Whether one side of a pair has a cell on a benchmark; some roles of a benchmark concern Base alone."""
        part = self.config.benchmarks[benchmark].role
        if part == "rltrain":
            return role == "base" and pair.rltrain in (None, benchmark)
        return role == "base" or part != "descriptive"

    @cached_property
    def pair_cells(self) -> tuple[tuple[str, str], ...]:
        """(pair, benchmark) for which both checkpoints have a cell."""
        cells, order = set(self.cells), dict.fromkeys(benchmark for _, benchmark in self.cells)
        both = [(name, roles) for name, roles in self.pairs.items() if set(roles) == set(ROLES)]
        return tuple(
            (name, b) for name, roles in both for b in order if {(roles["base"], b), (roles["rl"], b)} <= cells
        )

    def imported(self, checkpoint: str, benchmark: str) -> tuple[Import, ...]:
        """Imported policies of one cell."""
        return tuple(i for i in self.imports if (i.checkpoint, i.benchmark) == (checkpoint, benchmark))

    def benchmark(self, name: str) -> BenchmarkSpec:
        """A benchmark, configured or imported; of the latter no samples are drawn. An InputError: unknown name."""
        if name in self.config.benchmarks:
            return self.config.benchmarks[name]
        for item in self.every_import:
            if item.benchmark == name:
                return BenchmarkSpec(path=item.questions, grader=item.grader, title=name, max_tokens=0)
        raise InputError(f"benchmark {unknown(name, self.config.benchmarks)}")

    def family(self, benchmark: str) -> str:
        """The family of a benchmark; of imported questions, that of the benchmark of which they are a part."""
        if benchmark in self.config.benchmarks:
            return str(self.config.benchmarks[benchmark].family)
        parts = (item.part_of for item in self.every_import if item.benchmark == benchmark)
        return next(filter(None, parts), benchmarks.OWN)

    def terms(self, benchmark: str) -> str:
        """Why rows of a benchmark are not to be shown, nor texts of models, which may quote them; empty if they may."""
        family = self.family(benchmark)
        return "" if family == benchmarks.OWN else benchmarks.known_benchmark(family).terms

    @property
    def unlike_sides(self) -> list[str]:
        """A sentence for each configured pair whose sides differ in more than their weights."""
        keys = ("engine", "dtype", "quantization", "kv_cache_dtype", "template", "examples")
        notices = []
        for pair in self.config.study.pairs:
            base, rl = (self.config.checkpoints[self.pairs[pair][role]] for role in ROLES)
            unlike = [key for key in keys if getattr(base, key) != getattr(rl, key)]
            has = [", ".join(f"{key} {str(getattr(side, key)).lower()}" for key in unlike) for side in (base, rl)]
            if unlike:
                notices.append(f"pair {pair}: Base has {has[0]}; RL has {has[1]}; part of a difference may be theirs")
        return notices

    # ---- where samples come from

    @cached_property
    def recorded_counts(self) -> dict[tuple[str, str], Path]:
        """Recorded counts by cell, read in place of samples unless ``study.sample`` names the benchmark."""
        study = self.config.study
        sampled = () if study.sample == "all" else study.sample
        cells = [
            cell for cell in self.cells if study.recorded_counts and cell[1] not in sampled and not self.imported(*cell)
        ]
        paths = {cell: self.counts_path(*cell) for cell in cells}
        return {cell: path for cell, path in paths.items() if path.exists()}

    def counts_path(self, checkpoint: str, benchmark: str) -> Path:
        return layout.recorded_counts(
            project.locate(self.config.study.recorded_counts or "", self.root), checkpoint, benchmark
        )

    @property
    def recorded_pairs(self) -> list[tuple[str, str]]:
        """(pair, benchmark) of which both sides are read from recorded counts."""
        sides = {(name, b): {(self.pairs[name][role], b) for role in ROLES} for name, b in self.pair_cells}
        return [cell for cell, both in sides.items() if both <= self.recorded_counts.keys()]

    def is_sampled(self, checkpoint: str, benchmark: str) -> bool:
        """Whether a cell is sampled in this run, rather than read from recorded counts."""
        names = self.config.study.sample
        return benchmark in names if names != "all" else (checkpoint, benchmark) not in self.recorded_counts

    def source(self, checkpoint: str, benchmark: str) -> str:
        """``sampled``, ``imported`` or ``recorded``, as figures state it."""
        if self.imported(checkpoint, benchmark):
            return "imported"
        return "sampled" if self.is_sampled(checkpoint, benchmark) else "recorded"

    def is_recorded(self, *, checkpoint: str | None = None, benchmark: str | None = None) -> bool:
        """Whether every cell of a checkpoint, or of a benchmark, is read from recorded counts: it need not be here."""
        if not self.recorded_counts:
            return False
        cells = [cell for cell in self.cells if checkpoint in (None, cell[0]) and benchmark in (None, cell[1])]
        return bool(cells) and all(cell in self.recorded_counts for cell in cells)

    def without_agreement(self, checkpoint: str, benchmark: str) -> str:
        """Why no samples of a cell are judged by math-verify, too; empty if some are."""
        grader = self.benchmark(benchmark).grader
        options = catalogue.declaration("grader", grader).options
        if options.get("recorded"):
            return f"the verdicts are those of the log ({grader})"
        if not options.get("mathematical"):
            return f"math-verify does not apply to the grader {grader}"
        if self.source(checkpoint, benchmark) == "recorded":
            return "no texts: read from recorded counts"
        return "" if self.config.study.agreement else "study.agreement is 0"

    @cached_property
    def agreement_cells(self) -> tuple[tuple[str, str], ...]:
        """(checkpoint, benchmark) of which some samples are judged by math-verify, too."""
        return tuple(cell for cell in self.cells if not self.without_agreement(*cell))

    def least_direct(self, cells: Iterable[tuple[str, str]]) -> str:
        """The least direct source of some cells."""
        sources = {self.source(*cell) for cell in cells}
        return next(name for name in SOURCES if name in sources)

    def pool_policies(self, benchmark: str) -> list[str]:
        """Names in the pool of a configured benchmark, in order, references left out."""
        return list(self.config.pools[self.config.benchmarks[benchmark].pool])

    def samples(self, benchmark: str, policy: str) -> int:
        """Samples per question wanted of a policy on a benchmark."""
        spec = self.config.benchmarks[benchmark]
        return int(spec.deeper.get(policy) or spec.samples or self.config.samples)

    def _reached(self, checkpoint: str, benchmark: str) -> dict[str, int]:
        """Samples per question by policy; empty for a recorded cell, of which only the estimates know."""
        if self.source(checkpoint, benchmark) == "recorded":
            return {}
        is_drawn = checkpoint in self.config.checkpoints and benchmark in self.config.benchmarks
        drawn = {name: self.samples(benchmark, name) for name in self.pool_policies(benchmark)} if is_drawn else {}
        return drawn | {item.policy: item.samples for item in self.imported(checkpoint, benchmark)}

    @property
    def without_budgets(self) -> list[str]:
        """Sentences on benchmarks whose samples do not reach the largest budget."""
        budgets, said = self.config.budgets, dict[str, None]()
        for cell in self.cells:
            if few := [n for n in self._reached(*cell).values() if n < budgets[-1]]:
                above = ", ".join(str(budget) for budget in budgets if budget > max(few))
                said[f"{cell[1]}: policies with at most {max(few)} samples per question are not read at {above}"] = None
        return list(said)

    # ---- BOPTR and the comparison of policies

    def read_budgets(self, benchmark: str) -> list[int]:
        """Budgets at which a benchmark is read: B, then doubled as far as the deepest policy has samples."""
        budgets, configured = list(self.config.budgets), self.config.benchmarks.get(benchmark)
        deepest = max(configured.deeper.values(), default=0) if configured else 0
        while 2 * budgets[-1] <= deepest:
            budgets.append(2 * budgets[-1])
        return budgets

    @cached_property
    def anchor(self) -> tuple[str, str]:
        """(pair, benchmark) on which the rule is fitted: by default the first; empty names if the study has none."""
        anchor, specs = self.config.boptr.anchor, self.config.benchmarks
        pairs = (name for name, roles in self.pairs.items() if set(roles) == set(ROLES) and self.is_fitted(name))
        benchmarks = (
            name
            for name in self.config.study.benchmarks
            if specs[name].role == "fitted" and specs[name].regime != "none"
        )
        return anchor.pair or next(pairs, ""), anchor.benchmark or next(benchmarks, "")

    def is_fitted(self, pair: str) -> bool:
        """Whether parameters of BOPTR are fitted to a pair, rather than only applied to it."""
        return pair not in self.config.pairs or self.config.pairs[pair].group != "new"

    @cached_property
    def without_boptr(self) -> str:
        """Why this study has no BOPTR stage; empty if it has one."""
        pair, benchmark = self.anchor
        if not pair:
            return "it needs an anchor, but the study has no pair of group upper or lower with both sides"
        if not benchmark:
            return "it needs an anchor, but the study has no benchmark of role fitted with a regime other than none"
        if (pair, benchmark) not in self.pair_cells:
            return f"the anchor {pair}/{benchmark} (boptr.anchor) is not among the study's pairs and benchmarks"
        budgets = self.config.budgets
        if len(budgets) < 2 or budgets != tuple(2**i for i in range(len(budgets))):
            return f"BOPTR needs budgets that are powers of two, 1, 2, 4, ...; budgets are {list(budgets)}"
        base, rl = (self._reached(self.pairs[pair][role], benchmark) for role in ROLES)
        default, most = self.default_policy, max(base.values(), default=budgets[-1])
        if (few := min(most, rl.get(default, most))) < budgets[-1]:
            under = "" if most < budgets[-1] else f" under {default}"
            return f"{benchmark} has {counted(few, 'sample')}{under}, the largest budget is {budgets[-1]}"
        return ""

    def cohort_plan(self) -> dict[str, Any]:
        """The study as ``boptr.cohort.CohortPlan`` takes it: pairs with a Base side, benchmarks with a regime."""
        configured = self.config.benchmarks
        chosen = [name for name in self.config.study.benchmarks if configured[name].regime != "none"]
        pair, benchmark = self.anchor
        return {
            "anchor_model": pair,
            "anchor_benchmark": benchmark,
            "models": {name: self._cohort_model(name) for name, roles in self.pairs.items() if "base" in roles},
            "benchmarks": {
                name: {key: getattr(configured[name], key) for key in ("regime", "role", "title")} for name in chosen
            },
            "default_policy": self.default_policy,
            "budgets": list(self.config.budgets),
            "sources": {
                name: self.least_direct(cells)
                for name in chosen
                if (cells := [cell for cell in self.cells if cell[1] == name])
            },
        }

    def _cohort_model(self, name: str) -> dict[str, Any]:
        """A pair of the study; an imported one is of the upper cohort, of unknown size."""
        model: dict[str, Any] = {"rl": None, **self.pairs[name]}
        if name in self.config.study.pairs:
            pair = self.config.pairs[name]
            model |= {"group": pair.group, "parameters": pair.parameters, "rltrain": pair.rltrain}
            if pair.rltrain and pair.rltrain not in self.config.study.benchmarks:
                model["rltrain"] = ""
            model["batches"] = {key: batch.sides for key, batch in pair.batches.items()}
        return model

    # ---- figures and devices

    @property
    def drawn_cells(self) -> list[tuple[str, str]]:
        """(pair, benchmark) with figures of their own (``study.figures``)."""
        names = self.config.study.figures
        return [cell for cell in self.pair_cells if names == "all" or "/".join(cell) in names]

    @property
    def not_made(self) -> list[str]:
        """Tables and figures that could not be made, each with its error and its log."""
        jobs = [("tables",), ("overview",), *(("figures", *cell) for cell in self.drawn_cells)]
        jobs += [("transfer",)] * (not self.without_boptr) + [(name,) for name in addons.made(self)]
        found = [(job, *item) for job in jobs for item in provenance.failed(self.layout.failures(*job)).items()]
        where = {job: f" of {'/'.join(job[1:])}" * (len(job) > 1) for job in jobs}
        return [f"{what}{where[job]}: {why}; log: {layout.log(*job)}" for job, what, why in found]

    def engine(self, checkpoint: str) -> EngineKind:
        """What planning knows of the engine of a checkpoint."""
        return engine_kind(self.config.checkpoints[checkpoint])

    def gpus(self, checkpoint: str) -> int:
        """GPUs that a checkpoint's engine runs on."""
        return self.engine(checkpoint).gpus if self.config.checkpoints[checkpoint].device == "cuda" else 0
