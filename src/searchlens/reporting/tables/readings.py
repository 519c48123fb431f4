"""Tables of the readings that use every sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from searchlens.analysis.claims import DASH, EQUIVALENT, MEETING, Row, interval, located, number, percent
from searchlens.analysis.exponents import HARDLY
from searchlens.analysis.extrapolation import NEAR, SMALLEST
from searchlens.analysis.measures import DIFFERENCE, GUESS_NULL, LUCK, WITHOUT_LUCK
from searchlens.catalogue import table
from searchlens.config.readings import BEST
from searchlens.reporting.tables import format as fmt
from searchlens.reporting.tables.study import LEVEL, StudyContext, broken_cells
from searchlens.reporting.tables.table import Part, Table

BROKEN = "not interpretable"
BROKEN_NOTE = (
    "A dash in place of numbers: the health check calls a side of the pair not interpretable (table `health`)."
)
BRACKETS = f"Brackets: percentile bootstrap over questions {LEVEL}, both sides of a question together."
READOUT_NOTE = "Order-free: every curve is the exact mean over all choices of k samples of the pool."


@table("budget_equivalents", stage="study")
def budget_equivalents(context: StudyContext) -> Table:
    """How many samples of Base equal b samples of RL, under RL's default policy and under the best of Base."""
    data = context.readings["equivalents"]
    shown = data.filter(pl.col("policy").is_in([context.default_policy, BEST]))
    broken = broken_cells(context)
    lines = []
    for names, rows in shown.group_by("pair", "benchmark", "policy", maintain_order=True):
        line = dict(zip(["pair", "benchmark", "policy"], map(str, names), strict=True))
        cells = {str(row["budget"]): located(EQUIVALENT, row) for row in rows.sort("budget").rows(named=True)}
        lines.append(line | (dict.fromkeys(cells, DASH) if names[:2] in broken else cells))
    keys = [(line["pair"], line["benchmark"]) for line in lines]
    crossings = context.readings["crossings"]
    met = [
        {
            "pair": row["pair"],
            "benchmark": row["benchmark"],
            "equal": row["cost"],
            "samples of Base for one of RL": f"{row['exchange']:.2f}",
            "Base is level from b": BROKEN if (row["pair"], row["benchmark"]) in broken else located(MEETING, row),
        }
        for row in crossings.rows(named=True)
    ]
    notes = [
        "N*: samples of Base that solve as many questions as b samples of RL; a column per b. Less than 1: one sample"
        " of Base solves more; more than n: RL solves more than Base with its whole pool of n; n or more: exactly"
        " as much, so that both are at the end of what was drawn.",
        "Best: at each N the policy of Base that solves most, chosen on the same questions, which makes its N* too"
        f" small. {READOUT_NOTE}",
        "Brackets: bootstrap over questions at the configured level, pointwise, wider where few of them decide; without"
        " an upper end where fewer than four are unsolved, as so many hard ones may be missing from a sample; or less,"
        " or more: where an end lies outside of what the pool can show. The CSV also has simultaneous bands,"
        " local exponents and ratios of tokens.",
        "Base is level from b: the number of samples of RL from which on RL solves no more questions than Base does"
        " with as many samples, or with as many tokens as RL generates on average, both under the default policy."
        " Brackets as above, with half a question to spare; the ratio of tokens is taken as known. An interval to n or"
        " more has no upper end that the pools can show, as where both sides solve nearly everything.",
    ]
    parts = [Part(fmt.text_frame(lines, missing=""), "Budget equivalents", fmt.changes(keys))]
    if met:
        pairs = [line["pair"] for line in met]
        parts.append(Part(fmt.text_frame(met, missing=""), "Where Base overtakes RL", fmt.changes(pairs)))
    return Table(fmt.stacked(equivalents=data, crossings=crossings), parts, noted(notes, context))


@table("exponents", stage="study")
def exponents(context: StudyContext) -> Table:
    """Which exponents of N = alpha b^beta the samples allow, of each pair and of all pairs together."""
    data, broken = context.readings["exponents"], broken_cells(context)
    pairs = [
        {"benchmark": row["benchmark"], "pair": row["pair"], "policy": row["policy"], "set of β": BROKEN}
        if (row["pair"], row["benchmark"]) in broken
        else {
            "benchmark": row["benchmark"],
            "pair": row["pair"],
            "policy": row["policy"],
            "set of β": exponents_allowed(row),
            "N up to": "–".join(str(pool) for pool in sorted({row["pool_min"], row["pool_max"]})),
            "not tested": f"{100 * row['untested']:.0f}%",
            "p": DASH if row["p"] is None else f"{row['p']:.3f}",
            "misfit": f"{100 * row['misfit']:.2f}",
            "at": _best(row),
            "β, least error": f"{row['beta_l1']:.2f} [{row['beta_l1_lo']:.2f}, {row['beta_l1_hi']:.2f}]",
        }
        for row in data.sort("benchmark", "policy", maintain_order=True).rows(named=True)
    ]
    notes = [
        "Set: every β for which some α, and under `any` some policy of Base, is not rejected by the Anderson-Rubin test"
        f" at the configured level; N is continuous, without rounding. {READOUT_NOTE}",
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
    rules = fmt.changes([line["benchmark"] for line in pairs])
    return Table(data, [Part(fmt.text_frame(pairs, missing=""), rule_before=rules)], noted(notes, context))


def _best(row: Row) -> str:
    if row["best_policy"] is None:
        return DASH
    return f"{row['best_policy']}, α = {2 ** row['log2_alpha']:.2f}, β = {row['beta']:.2f}"


@table("joint_exponents", stage="study")
def joint_exponents(context: StudyContext) -> Table:
    """Which exponents the joined pairs of a benchmark may have in common, and all but one."""
    data = context.readings["joint_exponents"]
    broken = broken_cells(context)
    lines = [
        {
            "benchmark": row["benchmark"],
            "policy": row["policy"],
            "pairs": str(row["pairs"]),
            "left out": row["left_out"] or "",
            "common β": _common(row, {pair for pair, benchmark in broken if benchmark == row["benchmark"]}),
        }
        for row in data.rows(named=True)
    ]
    notes = [
        "Common β: rejected by no pair at its share of the level (Bonferroni), which holds although pairs share"
        " questions and some share a Base. Empty: there is no such exponent. N up to the pool of each policy, as in"
        " table `exponents` of single pairs.",
        f"Joined (option `readings.joint_pairs`): {_joined(data)}.",
    ]
    keys = [(line["benchmark"], line["policy"]) for line in lines]
    return Table(data, [Part(fmt.text_frame(lines, missing=""), rule_before=fmt.changes(keys))], noted(notes, context))


def _joined(data: pl.DataFrame) -> str:
    names = data.filter(pl.col("left_out").is_null())["joined"].explode().unique(maintain_order=True)
    return ", ".join(names.to_list()) or "none"


def _common(row: Row, broken: set[str]) -> str:
    if broken & set(row["joined"]):
        return BROKEN
    if not row["testable"]:
        return "not testable"
    return "empty" if row["empty"] else f"{row['beta_lo']:.2f} to {row['beta_hi']:.2f}"


def exponents_allowed(row: Row) -> str:
    """The set of exponents of a row of frame ``exponents``, such as ``0.94 to 0.96``."""
    if not row["testable"]:
        return "not testable"
    if row["empty"]:
        return "empty"
    return f"{row['beta_lo']:.2f} to {row['beta_hi']:.2f}" + (", hardly" if row["hardly"] else "")


def noted(notes: Sequence[str], context: StudyContext) -> list[str]:
    """Notes, with the one about dashes where there are any."""
    return [*notes, *([BROKEN_NOTE] if broken_cells(context) else [])]


# ---- what the field asks for


@table("support", stage="study")
def support(context: StudyContext) -> Table:
    """Which questions RL keeps, loses and adds of those that Base solves at all, under the default policy."""
    data, broken = context.readings["support"], broken_cells(context)
    lines = []
    for row in data.rows(named=True):
        line = {name: row[name] for name in ("pair", "benchmark")}
        line["samples"] = f"{row['base_samples']}, {row['rl_samples']}"
        if (row["pair"], row["benchmark"]) in broken:
            lines.append(line | {"kept": BROKEN})
            continue
        line |= {name: _ends(row, name, 0) for name in ("kept", "shrunk", "expanded", "out")}
        line |= {name.upper(): _ends(row, name, 3) for name in ("srr", "ndr", "sds", "nscr")}
        line["by chance"] = f"{row['shrunk_null']:.1f}, {row['expanded_null']:.1f}"
        line["significant"] = (
            f"{row['shrunk_significant']}, {row['expanded_significant']} ({row['significant_null']:.1f})"
        )
        lines.append(line)
    notes = [
        "Questions in the support of both sides (kept), of Base alone (shrunk), of RL alone (expanded), of neither"
        " (out): those with a right sample, of so many samples of Base and of RL; option `readings.support_right`. A"
        " question with a small chance of a right answer enters and leaves at random, and a larger pool finds more.",
        "By chance: shrunk and expanded questions to expect if both sides were alike on every question. Significant:"
        " those whose right samples differ by Fisher's exact test, in parentheses how many of both to expect by"
        " chance. The frame `support_changes` has each with its p.",
        "SRR: kept of Base's; NDR: expanded of RL's; SDS: their harmonic mean; NSCR: expanded less shrunk, of all"
        f" three. A dash: a ratio of nothing. {BRACKETS}",
    ]
    keys = [line["benchmark"] for line in lines]
    return Table(data, [Part(fmt.text_frame(lines, missing=""), rule_before=fmt.changes(keys))], noted(notes, context))


def _ends(row: Row, name: str, digits: int) -> str:
    return interval(row[name], row[f"{name}_lo"], row[f"{name}_hi"], digits)


@table("coverage", stage="study")
def coverage(context: StudyContext) -> Table:
    """How reliably questions are solved: Cover@τ, G-Pass@k, pass^k and the entropy of answers, of both sides."""
    names = ("Cover@tau", "G-Pass@k", "mG-Pass@k", "entropy, Miller-Madow", "entropy")
    data = context.readings["measures"].filter(pl.col("measure").is_in(names))
    shares = data.filter(~pl.col("measure").str.starts_with("entropy"))
    entropies = data.filter(pl.col("measure").str.starts_with("entropy"))
    notes = [
        "Cover@τ: questions of which at least a share τ of the samples is right. G-Pass@k at τ: at least τ k of k"
        " samples are right; at τ = 1 this is pass^k, all of them. mG-Pass@k: the mean of G-Pass@k over τ above 1/2. In"
        f" %, the difference RL − Base in percentage points. {READOUT_NOTE}",
        "Entropy of the answers to a question, samples without an answer as one of them, mean over questions in nats;"
        " Miller-Madow adds (K − 1) / 2n for K different answers. Few samples show too few answers.",
        BRACKETS,
    ]
    parts = [
        _by_measure(shares, context, percent, "Questions solved reliably"),
        _by_measure(entropies, context, interval, "Entropy of the answers"),
    ]
    return Table(data, parts, noted(notes, context))


@table("guessing", stage="study")
def guessing(context: StudyContext) -> Table:
    """What guessing alone would solve, and pass@k of both sides: corrected for options, or beside luck."""
    measures = context.readings["measures"]
    cells = measures.select("pair", "benchmark").unique(maintain_order=True)
    names = (GUESS_NULL, LUCK, "pass@k", "guess-corrected pass@k", WITHOUT_LUCK)
    data = measures.filter(pl.col("measure").is_in(names))
    listed = data.filter(pl.col("measure").is_in((GUESS_NULL, LUCK))).select("pair", "benchmark", "k").unique()
    data = data.join(listed, on=["pair", "benchmark", "k"], how="semi", maintain_order="left")
    known = measures.filter(measure=LUCK).select("pair", "benchmark").unique()
    unknown = cells.join(known, on=["pair", "benchmark"], how="anti", maintain_order="left")
    parts = [_by_measure(data, context, percent)]
    if unknown.height:
        parts.append(Part(fmt.text_frame(unknown.with_columns(luck=pl.lit("not recorded")).to_dicts()), "Luck unknown"))
    notes = [
        "Guess null, where questions list options: pass@k of even guessing, 1 −"
        " (1 − g)^k with g = 1 / options. Corrected: 1 − (share of k samples all wrong)"
        " / (1 − g)^k, unbiased if a sample either knows the answer or guesses evenly; it may be negative.",
        "Luck: pass@k of the same samples if each question had the gold of another one, drawn by the seed of the study."
        " Where it or the null is near pass@k, pass@k says little of what the models know.",
        "Luck-corrected: 1 − (1 − pass@k) / (1 − luck), of means over questions. Assumed: knowing and luck are"
        " independent, and luck is alike on known and unknown questions; where models repeat what they know, too little"
        " is taken away.",
        "Luck needs answers: readouts that were recorded without it lack them, and instructions have none.",
        BRACKETS,
    ]
    return Table(data, parts, noted(notes, context))


def _by_measure(data: pl.DataFrame, context: StudyContext, shown: Callable[..., str], title: str = "") -> Part:
    """A line per pair, benchmark, measure, k and τ, with a column for each side."""
    broken, keys = broken_cells(context), ["pair", "benchmark", "measure", "k", "tau"]
    lines = []
    for names, rows in data.group_by(*keys, maintain_order=True):
        line = dict(zip(keys, ("" if name is None else str(name) for name in names), strict=True))
        signs = {row["side"]: "+" if row["side"] == DIFFERENCE else "" for row in rows.rows(named=True)}
        cells = {
            row["side"].replace("-", "−"): shown(row["value"], row["lo"], row["hi"], sign=signs[row["side"]])
            for row in rows.rows(named=True)
        }
        lines.append(line | (dict.fromkeys(cells, DASH) if names[:2] in broken else cells))
    frame = fmt.text_frame(lines, missing="").rename({"tau": "τ"}, strict=False)
    return Part(frame, title, fmt.changes([(line["pair"], line["benchmark"]) for line in lines]))


@table("variance", stage="study")
def variance(context: StudyContext) -> Table:
    """What the uncertainty of pass@1 is made of: questions, decoding, seeds; and who would win a second run."""
    data, broken = context.readings["variance"], broken_cells(context)
    again = context.readings["measures"].filter(measure="P(RL beats Base)")
    wins = {(row["pair"], row["benchmark"]): row for row in again.rows(named=True)}
    lines = []
    for row in data.rows(named=True):
        key = (row["pair"], row["benchmark"])
        line = {"pair": key[0], "benchmark": key[1], "side": row["side"]}
        if key in broken:
            lines.append(line | {"questions": BROKEN})
            continue
        line |= {"questions": f"{row['questions']}", "samples": f"{row['samples']}"}
        line |= {"sd, questions": _deviation(row, "questions_part"), "sd, decoding": _deviation(row, "decoding")}
        line["sd, seeds"] = "no data" if row["seeds"] is None else number(100 * row["seeds"] ** 0.5)
        line["sd, training runs"] = "no data"
        win = wins.get(key)
        line["P(RL beats Base)"] = interval(win["value"], win["lo"], win["hi"], 3) if win else DASH
        lines.append(line)
    notes = [
        "Standard deviation of pass@1 in percentage points, as if one source alone were at work. Questions: other"
        " questions of the same kind; decoding: other samples, as many per question; seeds: what runs with other seeds"
        " differ beyond decoding, 0.00 if not at all. More questions reduce the first two, more samples the second.",
        "Training runs: a pair has one Base and one RL: the table cannot say what another training would give.",
        "P(RL beats Base): probability that RL solves more questions if both answer the same ones once more.",
        BRACKETS,
    ]
    keys = [(line["pair"], line["benchmark"]) for line in lines]
    return Table(data, [Part(fmt.text_frame(lines, missing=""), rule_before=fmt.changes(keys))], noted(notes, context))


def _deviation(row: Row, name: str) -> str:
    """A variance of proportions as a standard deviation in percentage points."""
    value, lo, hi = (
        None if row[f"{name}{end}"] is None else 100 * row[f"{name}{end}"] ** 0.5 for end in ("", "_lo", "_hi")
    )
    return interval(value, lo, hi)


@table("extrapolation", stage="study")
def extrapolation(context: StudyContext) -> Table:
    """pass@k beyond the samples: how often such a prediction is right, and the prediction where it may be printed."""
    data, broken = context.readings["extrapolated"], broken_cells(context)
    rows = [row for row in data.rows(named=True) if (row["pair"], row["benchmark"]) not in broken]
    keys = ["benchmark", "model"]
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
        for names, part in tried.group_by(*keys, maintain_order=True)
    ]
    shown = [
        {
            "pair": row["pair"],
            "benchmark": row["benchmark"],
            "side": row["side"],
            "model": row["model"],
            "from": str(row["samples"]),
            "k": str(row["k"]),
            "pass@k": percent(row["value"], row["lo"], row["hi"]),
            "measured coverage": number(row["coverage"]),
        }
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
    parts = [
        Part(
            fmt.text_frame(measured),
            "Measured on the samples at hand",
            fmt.changes([line["benchmark"] for line in measured]),
        ),
        Part(fmt.text_frame(shown), "pass@k at four times the samples"),
    ]
    return Table(data, parts, noted(notes, context))


def _printed(rows: pl.DataFrame) -> str:
    """Whether extrapolations of one model on one benchmark are printed; if not, why."""
    if rows["trusted"].any():
        return "printed"
    if not (rows["samples"] >= SMALLEST).any():
        return f"not printed: fewer than {SMALLEST} samples"
    return f"not printed: measured coverage {rows['coverage'][0]:.2f}"
