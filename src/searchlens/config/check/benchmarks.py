"""Section ``benchmarks``: sets of questions, how they are asked, sampled and graded, and their part in BOPTR."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from searchlens import benchmarks, catalogue
from searchlens.benchmarks import prompts
from searchlens.config.benchmarks import BenchmarkSpec
from searchlens.config.boptr import Regime
from searchlens.config.check.schema import unknown
from searchlens.config.model import Config


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
        known = config.pools.get(benchmark.pool, ()) if studied else tuple(config.policies)
        for policy in benchmark.deeper:
            if policy not in known:
                yield unknown(f"{where}.deeper", policy, known)
        if studied:
            yield from _budget_errors(config, where, benchmark)


def with_regimes(config: Config) -> Config:
    """The configuration, in which every benchmark says its regime, the default included."""
    specs = {
        name: replace(spec, regime=spec.regime or _default_regime(spec)) for name, spec in config.benchmarks.items()
    }
    return replace(config, benchmarks=specs)


def _default_regime(benchmark: BenchmarkSpec) -> Regime:
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
    elif isinstance(benchmark.path, tuple) and not benchmark.path:
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
    largest, given = max(config.budgets, default=0), list(benchmark.extension or ())
    doubled = [largest * 2**i for i in range(1, len(given) + 1)]
    if given != doubled:
        yield f"{where}.extension: {given} must go on doubling from the last of budgets: {doubled}"
