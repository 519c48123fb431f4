"""How RL training moves the exponent: N(b) = alpha b^beta fitted to the dev curve of every measured RL step of the zoo.

The curves are math on dev under the default policy; the candidates are the measured Base policies. Step 0 is Base
itself. A record says how many questions a step solved but not which ones, so a bootstrap over questions is not
possible. Three sets of exponents show how well a fit determines beta: those with the same error as the best fit, with
an error at most one question larger, and with an error at most :data:`NOISE` larger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from searchlens.analysis.frames import pick
from searchlens.boptr import fit
from searchlens.config.boptr import DEFAULTS
from searchlens.errors import InputError
from searchlens.reporting.boptr.regimes import EXACT_COLOUR, STEP, TIED_COLOUR
from searchlens.reporting.figures import palette, style
from searchlens.zoo import read_record, record_file
from searchlens_lab.zoo.card import Records
from searchlens_lab.zoo.cohort import COHORT
from searchlens_lab.zoo.evaluate import BUDGETS, DEFAULT

NOISE = 0.5
"""Percentage points: a typical bootstrap standard deviation of a fitted path's error. On the test split of math, which
has as many questions as dev, it is 0.36 to 0.72 for every pair but ``control`` (the study's ``identified_set``)."""
FROZEN = DEFAULTS.beta["math"]
"""The paper's frozen exponent of math."""

SETS = ("same", "within_question", "within_noise")

STEPS = pl.Schema(
    {
        "pair": pl.String(),
        "step": pl.Int64(),
        "total": pl.Int64(),
        **{f"rl_{b}": pl.Float64() for b in BUDGETS},
        **dict.fromkeys(("alpha", "beta"), pl.Float64()),
        **dict.fromkeys(("policy", "path"), pl.String()),
        **dict.fromkeys(("error", "error_frozen"), pl.Float64()),
        **dict.fromkeys(SETS, pl.List(pl.Float64())),
    }
)
"""One row per pair and RL step.

``step`` counts the pair's own RL steps, 0 is Base; ``total`` adds the steps of the pair from whose RL model it starts.
``rl_1`` to ``rl_16`` are per cent of questions solved. ``alpha`` to ``error`` are the R1 fit (one Base policy for all
budgets) with its path N(1)/.../N(16). ``error``, and ``error_frozen`` of the best fit at :data:`FROZEN`, are means over
budgets in percentage points. ``SETS`` are the exponents of the grid whose best fit has the same error, an error at most
one question larger (mean over budgets), and an error at most :data:`NOISE` larger.
"""


def fit_steps(folder: Path) -> pl.DataFrame:
    """Fit every RL step that was measured on dev.

    Returns ``STEPS``, pairs in the cohort's order. Row 0 of a pair is Base fitted to itself (before the demonstrations
    of ``control``); a pair that starts from another pair's RL model has no such row. Raises InputError if no pair has
    dev records of both sides, or a pair that has them has no record of its RL.

    Grids, rounding and ties are the defaults of :class:`~searchlens.config.boptr.BoptrOptions`: among fits of equal
    error, the smallest error interpolated between budgets wins, then the exponent nearest to the frozen one. Where RL
    is above all of Base, every exponent fits equally badly, and ``beta`` means nothing.
    """
    models = Records(folder).models
    if not models:
        raise InputError(
            f"{folder / 'records'}: no pair has dev records of both sides", "--output names the folder of a cohort"
        )
    rows: list[dict[str, Any]] = []
    for name, (base, rl) in models.items():
        start = COHORT[name].start
        before = _length(folder, start) if start else 0
        policies = {policy: _solved(cell) for policy, cell in base["numbers"]["math"].items() if policy != "greedy"}
        final = rl["numbers"]["math"][DEFAULT]
        questions = final["questions"]
        curves = {int(step): _counts(percent, questions) for step, percent in rl["steps"].items()}
        curves |= {_length(folder, name): _solved(final)} | ({} if start else {0: policies[DEFAULT]})
        for step, curve in sorted(curves.items()):
            rows.append({"pair": name, "step": step, "total": before + step, **_fit(policies, curve, questions)})
    return pl.DataFrame(rows, STEPS)


def _length(folder: Path, pair: str) -> int:
    """Number of steps of a pair's RL."""
    record = read_record(folder, f"rl-{pair}")
    if not record:
        raise InputError(
            f"{record_file(folder, f'rl-{pair}')} is missing: it holds the number of RL steps",
            "a complete cohort has one for every pair",
        )
    return int(record["curve"][-1]["step"])


def _counts(percent: Mapping[str, float], questions: int) -> list[int]:
    """Questions solved at each budget; two decimals of a per cent give exact counts up to 5,000 questions."""
    return [round(percent[str(b)] * questions / 100) for b in BUDGETS]


def _solved(cell: Mapping[str, Any]) -> list[int]:
    return [cell["solved"][str(b)] for b in BUDGETS]


def _fit(policies: Mapping[str, Sequence[int]], curve: Sequence[int], questions: int) -> dict[str, Any]:
    """The columns of one RL curve, from counts of solved questions."""
    base, target = np.array(list(policies.values()), float)[:, :, None], np.array(curve, float)[:, None]
    lattice = fit.lattice(fit.ALPHAS, fit.BETAS, len(BUDGETS))
    best = fit.fit_locked(base, target, lattice, FROZEN)
    betas, least = fit.best_by_beta(base, target, lattice)
    excess = least[:, 0] - least.min()
    margins = (0, 1, NOISE * questions / 100)
    return {
        **{f"rl_{b}": 100 * count / questions for b, count in zip(BUDGETS, curve, strict=True)},
        "alpha": float(best.alpha[0]),
        "beta": float(best.beta[0]),
        "policy": list(policies)[int(best.policy[0])],
        "path": "/".join(str(BUDGETS[n]) for n in best.path[:, 0]),
        "error": 100 * float(best.error[0]) / questions,
        "error_frozen": 100 * float(least[np.isclose(betas, FROZEN), 0][0]) / questions,
        **{name: betas[excess <= margin + fit.SAME].tolist() for name, margin in zip(SETS, margins, strict=True)},
    }


def csv_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """The table with the exponents of a set as one string, separated by spaces."""
    return frame.with_columns(pl.col(*SETS).list.eval(pl.element().cast(pl.String)).list.join(" "))


# ---- figure

WIDTH = 9.0  # of the boxes that show a step's sets, in RL steps


@style.styled()
def draw(frame: pl.DataFrame) -> Figure:
    """Draw dev pass@1 and pass@16 along the RL steps of ``anchor`` and then ``overtrained``, and beta with its sets.

    ``frame``: ``STEPS``. The other pairs' exponents are thin lines, without the steps that every exponent fits equally
    well. Raises InputError if one of the two pairs is missing.
    """
    missing = {"anchor", "overtrained"} - set(frame["pair"])
    if missing:
        raise InputError(f"no steps of {', '.join(sorted(missing))}", "the figure follows anchor and then overtrained")
    title = "RL and over-training, step by step\nmath on dev, anchor and then overtrained"
    figure = style.new_figure(style.PAGE, 3.3, title, "sampled")
    left, right = figure.subplots(1, 2)
    trajectory = frame.filter(pl.col("pair").is_in(["anchor", "overtrained"])).sort("total")
    _curves(left, trajectory)
    _exponents(right, trajectory, frame.filter(~pl.col("pair").is_in(["anchor", "overtrained"])))
    end = max(pick(frame, pair="anchor")["total"])
    for axes in (left, right):
        axes.axvline(end, color=palette.MUTED, linewidth=0.7, linestyle=(0, (1, 2)), zorder=1.5)
        axes.set_xlim(-10, max(trajectory["total"]) + 10)
        axes.set_xlabel("RL steps from Base")
        for x, name, side in ((end - 3, "anchor", "right"), (end + 3, "overtrained", "left")):
            axes.annotate(name, (x, 1), xycoords=("data", "axes fraction"), ha=side, va="top", color=palette.MUTED)
    return figure


def _curves(axes: Axes, rows: pl.DataFrame) -> None:
    for b, marker in ((BUDGETS[0], "o"), (BUDGETS[-1], "s")):
        values = rows[f"rl_{b}"].to_list()
        axes.axhline(values[0], color=palette.BASE_COLOUR, linestyle=(0, (5, 1.5)), zorder=2, gid=f"base-{b}")
        axes.plot(rows["total"], values, color=palette.RL_COLOUR, marker=marker, markersize=3, zorder=3, gid=f"rl-{b}")
    axes.set_ylabel("questions solved (%)")
    axes.set_ylim(0, 104)
    handles = [
        Line2D([], [], color=palette.RL_COLOUR, marker=marker, markersize=3, label=f"RL, b = {b}")
        for b, marker in ((BUDGETS[-1], "s"), (BUDGETS[0], "o"))
    ]
    handles.append(Line2D([], [], color=palette.BASE_COLOUR, linestyle=(0, (5, 1.5)), label="Base at the same b"))
    axes.legend(handles=handles, loc="lower right")


def _exponents(axes: Axes, rows: pl.DataFrame, others: pl.DataFrame) -> None:
    for name, colour in (("within_noise", TIED_COLOUR), ("same", EXACT_COLOUR)):
        for total, beta in rows.select("total", name).explode(name).iter_rows():
            axes.bar(total, STEP, WIDTH, beta - STEP / 2, color=colour, linewidth=0, zorder=1, gid=name)
    determined = others.filter(pl.col("same").list.len() < len(fit.BETAS))
    for (name,), curve in determined.group_by("pair", maintain_order=True):
        axes.plot(curve["total"], curve["beta"], color=palette.CURVE_COLOUR, linewidth=0.6, zorder=2.5, gid=str(name))
    axes.plot(rows["total"], rows["beta"], color="black", marker="o", markersize=3, zorder=4, gid="fit")
    axes.axhline(FROZEN, color=palette.RL_COLOUR, zorder=2, gid="frozen")
    axes.set_ylabel("\N{GREEK SMALL LETTER BETA}")
    axes.set_ylim(-STEP, fit.BETAS[-1] + 3 * STEP)
    handles = [
        Line2D([], [], color="black", marker="o", markersize=3, label="best fit"),
        Patch(color=EXACT_COLOUR, label="same error"),
        Patch(color=TIED_COLOUR, label=f"error within {NOISE} points"),
        Line2D([], [], color=palette.RL_COLOUR, label="frozen exponent"),
        Line2D([], [], color=palette.CURVE_COLOUR, linewidth=0.6, label="other pairs"),
    ]
    axes.legend(handles=handles, loc="upper right", bbox_to_anchor=(1, 0.95))
