"""Section ``benchmarks``: sets of questions, how they are asked, sampled and graded, and their part in BOPTR."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from searchlens import benchmarks, catalogue
from searchlens.benchmarks import prompts
from searchlens.boptr.options import Regime, Role
from searchlens.config.base import Name, Section, Sha256, unknown
from searchlens.schemas.options import Positive, Seed

if TYPE_CHECKING:
    from searchlens.config.model import Config


class ExamplesSpec(Section):
    """Worked examples that every prompt of a benchmark shows before its question. Part of the generation id."""

    path: str
    """File relative to the study's folder, one JSON object per line with ``question`` and ``answer``, the answer
    written out as a model is to write it. No example that is shown may be a question of the benchmark."""
    count: Positive = 4
    """Examples in a prompt."""
    drawn: bool = False
    """false: the first ``count`` of the file, in every prompt. true: for each question ``count`` of its own, drawn by
    ``seed`` and the id of the question, never the question itself."""
    seed: Seed = 0
    """Seed of the draw; of use with ``drawn`` only."""


class BenchmarkSpec(Section):
    """A set of questions and how answers to them are graded."""

    family: str = "jsonl"
    """How the questions are read. jsonl: one question per line; or a known benchmark, in any layout in which it is
    distributed (``searchlens benchmarks`` lists them; docs/add-a-benchmark.md)."""
    path: str | list[str] | None = None
    """File relative to the study's folder, which may be compressed (``.gz``), or folder as on the hub; a list for a
    benchmark in several parts. Null: the family's dataset on the Hugging Face hub, at the commit in the lock file."""
    revision: str = "main"
    """Branch, tag or commit of the family's dataset that ``searchlens pin`` looks up."""
    sha256: Sha256 | None = None
    """Hash of the file's bytes, before they were compressed; of several files in a row. A file with another hash is
    refused; otherwise everything would be sampled again without notice."""
    check: bool = True
    """Refuse a known benchmark if its number of rows or its golds differ from the published ones, or if a question is
    there twice."""
    grader: Name
    """Name of a grader: one of docs/grading.md, such as ``math`` for boxed answers or ``choice`` for letters, or one
    that a file of ``extensions`` declares."""
    title: str = ""
    """Name in figures and tables; empty: the key."""
    questions: Positive | None = None
    """Use only the first N questions; null: all."""
    max_tokens: Positive
    """Largest number of tokens to generate per sample. Part of the generation id."""
    wording: str | None = None
    """Text that is put around a question, inside the template's turn (docs/templates.md): ``boxed``,
    ``boxed-letter``, ``answer-letter``, ``as-is`` or ``power-sampling``; null: the template's own for mathematics.
    Part of the generation id."""
    examples: ExamplesSpec | None = None
    """Worked examples in front of the question, the same for Base and RL; null: none. A checkpoint with
    ``examples: false`` is asked without them."""
    recipe_stops: bool = False
    """Also end an answer at the plain words at which the published recipe ends it, such as ``user``. For comparison
    with published numbers only, because every answer that uses such a word is cut; needs a mathematical grader. Part
    of the generation id."""
    pool: Name = "paper24"
    """Key of ``pools``: the policies under which both checkpoints of a pair are sampled."""
    searches: Name | None = None
    """Key of ``pools``: the searches under which Base is sampled as well; null: none."""
    samples: Positive | None = None
    """Samples per question on this benchmark; null: the general ``samples``."""
    deeper: dict[Name, Positive] = {}
    """Policies of the pool that get more samples per question, with their number; ``extension`` is read from them."""
    regime: Regime | Literal["none"] | None = None
    """g(d) of BOPTR, assigned before anything is evaluated. none: BOPTR leaves this benchmark out. Null: that of the
    known benchmark (``searchlens benchmarks``); for questions of your own math if the grader is mathematical, otherwise
    nonmath."""
    role: Role = "fitted"
    """Part in BOPTR. fitted: in the main tables; held_out: predicted with everything frozen; descriptive: only Base is
    sampled and shown; rltrain: questions of the RL-training split, only Base is sampled."""
    extension: list[Positive] | None = None
    """Budgets beyond the last of ``budgets``, each twice the one before; read from policies with enough samples. Null:
    as far as the largest number of samples in ``deeper`` reaches."""


def errors(config: Config) -> Iterator[str]:
    """Mistakes in this section."""
    for name, benchmark in config.benchmarks.items():
        where = f"benchmarks.{name}"
        yield from _question_errors(where, benchmark)
        yield from _answer_errors(where, benchmark)
        yield from _title_errors(where, benchmark.title)
        for key, pool in (("pool", benchmark.pool), ("searches", benchmark.searches)):
            if pool is not None and pool not in config.pools:
                yield unknown(f"{where}.{key}", pool, config.pools)
        if benchmark.role != "fitted" and benchmark.regime == "none":
            yield f"{where}.role: {benchmark.role} needs a regime: math, nonmath or floor"
        studied = name in config.study.benchmarks  # the others need not fit this study's budgets, samples and pools
        known = config.pools.get(benchmark.pool, []) if studied else config.policies
        for policy in benchmark.deeper:
            if policy not in known:
                yield unknown(f"{where}.deeper", policy, known)
        if studied:
            yield from _budget_errors(config, where, benchmark)


def with_regimes(config: Config) -> Config:
    """The configuration, in which every benchmark says its regime, the default included."""
    specs = {
        name: spec.model_copy(update={"regime": spec.regime or _default_regime(spec)})
        for name, spec in config.benchmarks.items()
    }
    return config.model_copy(update={"benchmarks": specs})


def _default_regime(benchmark: BenchmarkSpec) -> str:
    known = benchmarks.known_benchmarks().get(benchmark.family)
    if known and known.regime:
        return known.regime
    return "math" if benchmark.grader in catalogue.declared("grader", mathematical=True) else "nonmath"


_LONGEST_TITLE = 200
"""Characters."""


def _title_errors(where: str, title: str) -> Iterator[str]:
    """A title stands in one line of figures and tables; what is between two $ would be read as a formula there."""
    if len(title) > _LONGEST_TITLE or not title.isprintable() or title != title.strip():
        rule = f"must be one line of at most {_LONGEST_TITLE} characters, without blanks around it"
        yield f"{where}.title: {rule}, found {title[:40]!r}"
    elif title.count("$") > 1 or r"\$" in title:
        yield rf"{where}.title: may have one $ and no \$, because figures read formulas between two, found {title!r}"


def _question_errors(where: str, benchmark: BenchmarkSpec) -> Iterator[str]:
    known = benchmarks.known_benchmarks().get(benchmark.family)
    if benchmark.family not in benchmarks.family_names():
        yield unknown(f"{where}.family", benchmark.family, benchmarks.family_names())
    elif benchmark.path is None and (known is None or not known.splits):
        yield f"{where}.path: needed; only a known benchmark that is on the hub can be read without a file"
    elif benchmark.path is None and known and known.gated:
        yield (
            f"{where}.path: needed; {known.hub} is gated, and its terms forbid to show its rows in plain text;"
            " accept the terms, download the file and give its path"
        )
    elif isinstance(benchmark.path, list) and not benchmark.path:
        yield f"{where}.path: the list of files is empty"


def _answer_errors(where: str, benchmark: BenchmarkSpec) -> Iterator[str]:
    if benchmark.wording is not None and benchmark.wording not in (known := prompts.wordings()):
        yield unknown(f"{where}.wording", benchmark.wording, known)
    graders = [name for name, item in catalogue.declared("grader").items() if not item.options.get("recorded")]
    if benchmark.grader not in graders:
        yield unknown(f"{where}.grader", benchmark.grader, graders)
    if benchmark.examples and benchmark.examples.seed and not benchmark.examples.drawn:
        yield f"{where}.examples.seed: goes with drawn: true only; otherwise the first examples are shown"
    mathematical = catalogue.declared("grader", mathematical=True)
    if benchmark.recipe_stops and benchmark.grader not in mathematical:
        yield (
            f"{where}.recipe_stops: only with grader {', '.join(mathematical)} (found {benchmark.grader}), because the"
            " words occur in other answers"
        )


def _budget_errors(config: Config, where: str, benchmark: BenchmarkSpec) -> Iterator[str]:
    samples = benchmark.samples or config.samples
    for policy, more in benchmark.deeper.items():
        if more <= samples:
            yield f"{where}.deeper.{policy}: {more} must exceed the {samples} samples of the other policies"
    largest, given = max(config.budgets, default=0), benchmark.extension or []
    doubled = [largest * 2**i for i in range(1, len(given) + 1)]
    if given != doubled:
        yield f"{where}.extension: {given} must go on doubling from the last of budgets: {doubled}"
