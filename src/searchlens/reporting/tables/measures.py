"""Tables of the measures that use every sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from searchlens.analysis.claims import DASH, EQUIVALENT, MEETING, Row, interval, located, number, percent
from searchlens.analysis.exponents import HARDLY
from searchlens.analysis.extrapolation import NEAR, SMALLEST
from searchlens.analysis.measures import DIFFERENCE, GUESS_NULL, WITHOUT_WRONG_KEY, WRONG_KEY
from searchlens.catalogue import table
from searchlens.config.measures import BEST
from searchlens.reporting.tables import table as fmt
from searchlens.reporting.tables.study import LEVEL, StudyContext, by_budget

BROKEN = "not interpretable"
BROKEN_NOTE = (
    "A dash in place of numbers: the health check calls a side of the pair not interpretable (table `health`)."
)
BRACKETS = f"Brackets: percentile bootstrap over questions {LEVEL}, both sides of a question together."
ESTIMATOR_NOTE = "Order-free: every curve is the exact mean over all choices of k samples of the pool."


@table("budget_equivalents", stage="study")
def budget_equivalents(context: StudyContext) -> fmt.Table:
    """How many samples of Base equal b samples of RL, under RL's default policy and under the best of Base."""
    data = context.measures["equivalents"]
    shown = data.filter(pl.col("policy").is_in([context.default_policy, BEST]))
    lines = by_budget(shown, ["pair", "benchmark", "policy"], lambda row: located(EQUIVALENT, row), context.broken)
    crossings = context.measures["crossings"]
    met = [
        {
            "pair": row["pair"],
            "benchmark": row["benchmark"],
            "equal": row["cost"],
            "samples of Base for one of RL": f"{row['exchange']:.2f}",
            "Base is level from b": BROKEN if _is_broken(row, context) else located(MEETING, row),
        }
        for row in crossings.rows(named=True)
    ]
    notes = [
        "N*: samples of Base that solve as many questions as b samples of RL; a column per b. Less than 1: one sample"
        " of Base solves more; more than n: RL solves more than Base with its whole pool of n; n or more: exactly"
        " as much, so that both are at the end of what was drawn.",
        "Best: at each N the policy of Base that solves most, chosen on the same questions, which makes its N* too"
        f" small. {ESTIMATOR_NOTE}",
        "Brackets: bootstrap over questions at the configured level, pointwise, wider where few of them decide; without"
        " an upper end where fewer than four are unsolved, as so many hard ones may be missing from a sample; or less,"
        " or more: where an end lies outside of what the pool can show. The CSV also has simultaneous bands,"
        " local exponents and ratios of tokens.",
        "Base is level from b: the number of samples of RL from which on RL solves no more questions than Base does"
        " with as many samples, or with as many tokens as RL generates on average, both under the default policy."
        " Brackets as above, with half a question to spare; the ratio of tokens is taken as known. An interval to n or"
        " more has no upper end that the pools can show, as where both sides solve nearly everything.",
    ]
    parts = [fmt.block(lines, "pair", "benchmark", title="Budget equivalents")]
    parts += [fmt.block(met, "pair", title="Where Base overtakes RL")] if met else []
    return fmt.Table(fmt.stacked(equivalents=data, crossings=crossings), parts, noted(notes, context))


def _is_broken(row: Row, context: StudyContext) -> bool:
    return (row["pair"], row["benchmark"]) in context.broken


@table("exponents", stage="study")
def exponents(context: StudyContext) -> fmt.Table:
    """Which exponents of N = alpha b^beta the samples allow, of each pair and of all pairs together."""
    data, lines = context.measures["exponents"], list[fmt.Line]()
    for row in data.sort("benchmark", "policy", maintain_order=True).rows(named=True):
        line = {name: row[name] for name in ("benchmark", "pair", "policy")}
        if _is_broken(row, context):
            lines.append(line | {"set of β": BROKEN})
            continue
        line["set of β"] = exponents_allowed(row)
        line["N up to"] = "–".join(str(pool) for pool in sorted({row["pool_min"], row["pool_max"]}))
        line["not tested"] = f"{100 * row['untested']:.0f}%"
        line["p"] = DASH if row["p"] is None else f"{row['p']:.3f}"
        line["misfit"] = f"{100 * row['misfit']:.2f}"
        line["at"] = (
            DASH
            if row["best_policy"] is None
            else f"{row['best_policy']}, α = {2 ** row['log2_alpha']:.2f}, β = {row['beta']:.2f}"
        )
        line["β, least error"] = f"{row['beta_l1']:.2f} [{row['beta_l1_lo']:.2f}, {row['beta_l1_hi']:.2f}]"
        lines.append(line)
    notes = [
        "Set: every β for which some α, and under `any` some policy of Base, is not rejected by the Anderson-Rubin test"
        f" at the configured level; N is continuous, without rounding. {ESTIMATOR_NOTE}",
        "N up to: the pool of the policy, under `any` of each. Where a law has more, it says only that RL solves no"
        " less than the whole pool.",
        "Empty: no power law that can be tested fits at this level, whatever β. Hardly: the best law has a p-value less"
        f" than {HARDLY} times that of rejection; the set is small because laws do not fit. A set as wide as the grid,"
        " 0 to 1.6, says that β is not identified. Misfit: how far the best law is off, mean over b in percentage"
        " points.",
        "Not tested: share of the laws of the grid, over all policies, of which fewer than two budgets b rest on enough"
        " questions, as where both sides solve nearly all of them. They are in no set; nothing rejects them either."
        " Not testable: that is so of all laws.",
        "p: largest p-value of any law, found at the policy, α and β beside it. Least error: of the mean over b, with"
        " percentiles over draws of questions that choose policy, α and β again.",
    ]
    return fmt.Table(data, [fmt.block(lines, "benchmark")], noted(notes, context))


@table("joint_exponents", stage="study")
def joint_exponents(context: StudyContext) -> fmt.Table:
    """Which exponents the joined pairs of a benchmark may have in common, and all but one."""
    data, lines = context.measures["joint_exponents"], []
    for row in data.rows(named=True):
        line = {"benchmark": row["benchmark"], "policy": row["policy"], "pairs": str(row["pairs"])}
        is_broken = any((pair, row["benchmark"]) in context.broken for pair in row["joined"])
        common = BROKEN if is_broken else exponents_allowed({**row, "hardly": False})
        lines.append(line | {"left out": row["left_out"] or "", "common β": common})
    joined = data.filter(pl.col("left_out").is_null())["joined"].explode().unique(maintain_order=True)
    notes = [
        "Common β: rejected by no pair at its share of the level (Bonferroni), which holds although pairs share"
        " questions and some share a Base. Empty: there is no such exponent. N up to the pool of each policy, as in"
        " table `exponents` of single pairs.",
        f"Joined (option `measures.joint_pairs`): {', '.join(joined) or 'none'}.",
    ]
    return fmt.Table(data, [fmt.block(lines, "benchmark", "policy")], noted(notes, context))


def exponents_allowed(row: Row) -> str:
    """The set of exponents of a row of frame ``exponents``, such as ``0.94 to 0.96``."""
    if not row["testable"]:
        return "not testable"
    if row["empty"]:
        return "empty"
    return f"{row['beta_lo']:.2f} to {row['beta_hi']:.2f}" + (", hardly" if row["hardly"] else "")


def noted(notes: Sequence[str], context: StudyContext) -> list[str]:
    """Notes, with the one about dashes where there are any."""
    return [*notes, *([BROKEN_NOTE] if context.broken else [])]


# ---- what the field asks for


_SUPPORT = {"kept": 0, "shrunk": 0, "expanded": 0, "out": 0, "SRR": 3, "NDR": 3, "SDS": 3, "NSCR": 3}
"""Heading, in small letters its column, to decimal places."""


@table("support", stage="study")
def support(context: StudyContext) -> fmt.Table:
    """Which questions RL keeps, loses and adds of those that Base solves at all, under the default policy."""
    data, lines = context.measures["support"], list[fmt.Line]()
    for row in data.rows(named=True):
        line = {"pair": row["pair"], "benchmark": row["benchmark"]}
        line["samples"] = f"{row['base_samples']}, {row['rl_samples']}"
        if _is_broken(row, context):
            lines.append(line | {"kept": BROKEN})
            continue
        for name, digits in _SUPPORT.items():
            line[name] = interval(row[name.lower()], row[f"{name.lower()}_lo"], row[f"{name.lower()}_hi"], digits)
        line["by chance"] = f"{row['shrunk_null']:.1f}, {row['expanded_null']:.1f}"
        significant = f"{row['shrunk_significant']}, {row['expanded_significant']}"
        lines.append(line | {"significant": f"{significant} ({row['significant_null']:.1f})"})
    notes = [
        "Questions in the support of both sides (kept), of Base alone (shrunk), of RL alone (expanded), of neither"
        " (out): those with a right sample, of so many samples of Base and of RL; option `measures.support_right`. A"
        " question with a small chance of a right answer enters and leaves at random, and a larger pool finds more.",
        "Expanded: a sample of Base solves such a question with a chance of at least 0, at most base_epsilon of the CSV"
        " (95%, each question by itself). Table `bounds` has more, where texts were scored under both sides.",
        "By chance: shrunk and expanded questions to expect if both sides were alike on every question. Significant:"
        " those whose right samples differ by Fisher's exact test, in parentheses how many of both to expect by"
        " chance. The frame `support_changes` has each with its p.",
        "SRR: kept of Base's; NDR: expanded of RL's; SDS: their harmonic mean; NSCR: expanded less shrunk, of all"
        f" three. A dash: a ratio of nothing. {BRACKETS}",
    ]
    return fmt.Table(data, [fmt.block(lines, "benchmark")], noted(notes, context))


@table("coverage", stage="study")
def coverage(context: StudyContext) -> fmt.Table:
    """How reliably questions are solved: Cover@τ, G-Pass@k, pass^k and the entropy of answers, of both sides."""
    reliable, spread = ("Cover@tau", "G-Pass@k", "mG-Pass@k"), ("entropy, Miller-Madow", "entropy")
    data = context.measures["measures"].filter(pl.col("measure").is_in(reliable + spread))
    is_spread = pl.col("measure").is_in(spread)
    notes = [
        "Cover@τ: questions of which at least a share τ of the samples is right. G-Pass@k at τ: at least τ k of k"
        " samples are right; at τ = 1 this is pass^k, all of them. mG-Pass@k: the mean of G-Pass@k over τ above 1/2. In"
        f" %, the difference RL − Base in percentage points. {ESTIMATOR_NOTE}",
        "Entropy of the answers to a question, samples without an answer as one of them, mean over questions in nats;"
        " Miller-Madow adds (K − 1) / 2n for K different answers. Few samples show too few answers.",
        BRACKETS,
    ]
    parts = [
        _by_measure(data.filter(~is_spread), context, percent, "Questions solved reliably"),
        _by_measure(data.filter(is_spread), context, interval, "Entropy of the answers"),
    ]
    return fmt.Table(data, parts, noted(notes, context))


@table("guessing", stage="study")
def guessing(context: StudyContext) -> fmt.Table:
    """What guessing alone would solve, and pass@k of both sides: corrected for options, or beside wrong keys."""
    measures = context.measures["measures"]
    cells = measures.select("pair", "benchmark").unique(maintain_order=True)
    names = (GUESS_NULL, WRONG_KEY, "pass@k", "guess-corrected pass@k", WITHOUT_WRONG_KEY)
    data = measures.filter(pl.col("measure").is_in(names))
    listed = data.filter(pl.col("measure").is_in((GUESS_NULL, WRONG_KEY))).select("pair", "benchmark", "k").unique()
    data = data.join(listed, on=["pair", "benchmark", "k"], how="semi", maintain_order="left")
    known = measures.filter(measure=WRONG_KEY).select("pair", "benchmark").unique()
    unknown = cells.join(known, on=["pair", "benchmark"], how="anti", maintain_order="left")
    parts = [_by_measure(data, context, percent)]
    if unknown.height:
        rows = unknown.with_columns(wrong_key=pl.lit("not recorded")).to_dicts()
        parts.append(fmt.part(rows, "Wrong-key rate unknown"))
    notes = [
        "Guess null, where questions list options: pass@k of even guessing, 1 −"
        " (1 − g)^k with g = 1 / options. Corrected: 1 − (share of k samples all wrong)"
        " / (1 − g)^k, unbiased if a sample either knows the answer or guesses evenly; it may be negative.",
        "Wrong-key rate: pass@k of the same samples if each question had the gold of another one, drawn by the seed of"
        " the study. Where it or the null is near pass@k, pass@k says little of what the models know.",
        "Corrected for it: 1 − (1 − pass@k) / (1 − rate), of means over questions. Assumed: knowing and wrong keys are"
        " independent, and the rate is alike on known and unknown questions; where models repeat what they know, too"
        " little is taken away.",
        "It needs answers: counts that were recorded without it lack them, and instructions have none.",
        BRACKETS,
    ]
    return fmt.Table(data, parts, noted(notes, context))


def _by_measure(data: pl.DataFrame, context: StudyContext, shown: Callable[..., str], title: str = "") -> fmt.Part:
    """A line per pair, benchmark, measure, k and τ, with a column for each side."""
    keys, lines = ["pair", "benchmark", "measure", "k", "tau"], []
    for names, rows in data.group_by(*keys, maintain_order=True):
        line = dict(zip([*keys[:-1], "τ"], ("" if name is None else str(name) for name in names), strict=True))
        for row in rows.rows(named=True):
            sign = "+" if row["side"] == DIFFERENCE else ""
            cell = DASH if names[:2] in context.broken else shown(row["value"], row["lo"], row["hi"], sign=sign)
            line[row["side"].replace("-", "−")] = cell
        lines.append(line)
    return fmt.block(lines, "pair", "benchmark", title=title)


@table("variance", stage="study")
def variance(context: StudyContext) -> fmt.Table:
    """What the uncertainty of pass@1 is made of: questions, decoding, seeds; and who would win a second run."""
    data, lines = context.measures["variance"], list[fmt.Line]()
    again = context.measures["measures"].filter(measure="P(RL beats Base)")
    wins = {(row["pair"], row["benchmark"]): row for row in again.rows(named=True)}
    for row in data.rows(named=True):
        line = {name: row[name] for name in ("pair", "benchmark", "side")}
        if _is_broken(row, context):
            lines.append(line | {"questions": BROKEN})
            continue
        line |= {"questions": f"{row['questions']}", "samples": f"{row['samples']}"}
        line |= {"sd, questions": _deviation(row, "questions_part"), "sd, decoding": _deviation(row, "decoding")}
        line["sd, seeds"] = "no data" if row["seeds"] is None else number(100 * row["seeds"] ** 0.5)
        line["sd, training runs"] = "no data"
        win = wins.get((row["pair"], row["benchmark"]), {"value": None, "lo": None, "hi": None})
        lines.append(line | {"P(RL beats Base)": interval(win["value"], win["lo"], win["hi"], 3)})
    notes = [
        "Standard deviation of pass@1 in percentage points, as if one source alone were at work. Questions: other"
        " questions of the same kind; decoding: other samples, as many per question; seeds: what runs with other seeds"
        " differ beyond decoding, 0.00 if not at all. More questions reduce the first two, more samples the second.",
        "Training runs: a pair has one Base and one RL: the table cannot say what another training would give.",
        "P(RL beats Base): probability that RL solves more questions if both answer the same ones once more.",
        BRACKETS,
    ]
    return fmt.Table(data, [fmt.block(lines, "pair", "benchmark")], noted(notes, context))


def _deviation(row: Row, name: str) -> str:
    """A variance of proportions as a standard deviation in percentage points."""
    ends = (row[f"{name}{end}"] for end in ("", "_lo", "_hi"))
    value, lo, hi = (None if end is None else 100 * end**0.5 for end in ends)
    return interval(value, lo, hi)


@table("extrapolation", stage="study")
def extrapolation(context: StudyContext) -> fmt.Table:
    """pass@k beyond the samples: how often such a prediction is right, and the prediction where it may be printed."""
    data = context.measures["extrapolated"]
    rows = [row for row in data.rows(named=True) if not _is_broken(row, context)]
    tried = pl.DataFrame(rows, data.schema).filter(pl.col("value").is_not_null())
    measured = [
        {
            "benchmark": str(names[0]),
            "model": str(names[1]),
            "trials": str(part["trials"].sum()),
            "error": percent(float(np.mean(part["trial_error"].drop_nulls().to_numpy())), sign="+"),
            "coverage": number(part["coverage"][0]),
            "": _printed(part),
        }
        for names, part in tried.group_by("benchmark", "model", maintain_order=True)
    ]
    shown = [
        {name: row[name] for name in ("pair", "benchmark", "side", "model")}
        | {"from": str(row["samples"]), "k": str(row["k"])}
        | {"pass@k": percent(row["value"], row["lo"], row["hi"]), "measured coverage": number(row["coverage"])}
        for row in rows
        if row["trusted"]
    ]
    notes = [
        "Models: the chance of a right answer is Beta-distributed over questions, or 0 for a share of them and Beta for"
        " the others; fitted to the counts of right samples by maximum likelihood.",
        "A trial draws questions with replacement and a quarter of the samples of each, and predicts what share of the"
        " questions all samples solve. Error: predicted less found, mean, percentage points. Coverage: share of the"
        f" intervals {LEVEL} that contain it. An extrapolation is printed only where that is within {NEAR} of the"
        f" level, and from at least {SMALLEST} samples: from fewer, trials pass that predict nothing.",
        "That pass@n is predicted well from n/4 does not show that pass@4n is predicted well from n.",
    ]
    changes = fmt.changes([line["benchmark"] for line in measured])
    parts = [
        fmt.part(measured, "Measured on the samples at hand", changes),
        fmt.part(shown, "pass@k at four times the samples"),
    ]
    return fmt.Table(data, parts, noted(notes, context))


def _printed(rows: pl.DataFrame) -> str:
    """Whether extrapolations of one model on one benchmark are printed; if not, why."""
    if rows["trusted"].any():
        return "printed"
    if not (rows["samples"] >= SMALLEST).any():
        return f"not printed: fewer than {SMALLEST} samples"
    return f"not printed: measured coverage {rows['coverage'][0]:.2f}"
