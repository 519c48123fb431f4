"""Do the fits converge to a planted law as the number of questions grows?

    python validation/convergence.py    # writes docs/convergence.csv

Cohorts of mode ``planted`` (four fitted benchmarks, seven models), every benchmark with the same number of questions.
Fits are compared with the planted law: the path N(b), the policy, delta_m, and alpha, of which the data identify only
the interval with the same path. Errors of fitted paths are taken in the population.

Most of the 24 policies predict the same curve as another one within a fraction of a percentage point, which no feasible
number of questions can distinguish. The pool ``three`` has policies that differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from searchlens.boptr import fit
from searchlens.boptr.rows import At, Prediction, calibrated, smooth
from searchlens.boptr.rule import Exponents, Rule
from searchlens.boptr.rule import Path as BudgetPath
from searchlens.boptr.view import sample_view
from searchlens.config.boptr import BoptrOptions
from searchlens_lab.simulate import PAPER24, Truth, fitted_design, simulate

SEEDS = range(20_000, 20_010)
"""One for each cohort."""
QUESTIONS = {"paper24": (50, 200, 800, 3200), "three": (50, 200, 800, 3200, 12800)}
POOLS = {"paper24": PAPER24, "three": ("temp_0.3", "topp0.8_t0.9", "topp0.95_t1.0")}
Row = dict[str, Any]


def at_planted_beta(rule: Rule, at: At) -> Prediction:
    """The cell's own alpha and policy at the regime's exponent, which is the planted one."""
    best = rule.scale(*at.cell, float(rule.beta(at.benchmark)[0]))
    return BudgetPath(np.broadcast_to(best.policy, best.path.shape), best.path, best.alpha, best.beta)


FITS: Mapping[str, tuple[Exponents, Callable[[Rule, At], Prediction]]] = {
    "V1": ("paper", smooth),
    "V1 at β_g": ("paper", at_planted_beta),
    "V3": ("paper", calibrated),
    "V3, own exponents": ("own", calibrated),
}


def one_cohort(truth: Truth, seed: int) -> Iterator[Row]:
    """Each fit in each cell, compared with what was planted."""
    rule = Rule(sample_view(simulate(truth.design, seed, "first_k")), BoptrOptions(estimator="first_k"))
    rules: dict[Exponents, Rule] = {"paper": rule, "own": rule.with_constants("own")}
    for place, law in truth.record()["planted"]["cells"].items():
        at = At(*place.split("/"))
        about = {"benchmark": at.benchmark, "own_beta": float(rules["own"].beta(at.benchmark)[0])}
        if at.cell == (at.model, truth.design.anchor_benchmark):
            about["delta_error"] = abs(float(np.asarray(rule.delta(at.model))[0]) - truth.design.models[at.model].delta)
        for name, (exponents, predict) in FITS.items():
            fitted = predict(rules[exponents], at)
            assert isinstance(fitted, BudgetPath)
            yield about | {"fit": name} | compared(fitted, rule, truth, at, law)


def compared(fitted: BudgetPath, rule: Rule, truth: Truth, at: At, law: Row) -> Row:
    """A fitted path compared with the planted one."""
    base, budgets = rule.view.base(*at.cell), truth.design.budgets
    assert base is not None and fitted.alpha is not None and fitted.beta is not None
    path = [budgets[n] for n in fitted.budget[:, 0]]
    right = np.array(path) == [law["path"][str(b)] for b in budgets]
    names = [base.policies[i] for i in fitted.policy[:, 0]]
    alpha, beta = float(fitted.alpha[0]), float(fitted.beta[0])
    row: Row = {
        "N": float(right.mean()),
        "path": bool(right.all()),
        "policy": names[0] == law["policy"],
        "error": truth.mech_p(*at.cell, list(zip(names, path, strict=True))),
        "beta": abs(beta - law["beta"]) < fit.GUARD,
    }
    if row["path"] and row["beta"]:
        low, high = fit.identified_alpha(alpha, beta, len(budgets))
        row |= {"inside": low <= law["alpha"] < high, "alpha_error": abs(np.log2(alpha / law["alpha"]))}
    return row


def summary(rows: pl.DataFrame) -> pl.DataFrame:
    """Means over cells and seeds, for all benchmarks together (null) and for each.

    ``N``: share of (cell, b) with the planted N(b). ``path``, ``policy``, ``beta``: shares of cells. ``error``: true
    error of the fitted path, percentage points. ``inside``: share of cells with the right path and beta whose interval
    of alpha contains the planted one; ``alpha_error``: |log2 of the ratio of the two| there. ``delta_error``:
    |error of delta_m|, anchor benchmark. ``own_beta``: the cohort's own estimate of beta_g.
    """
    together = rows.with_columns(benchmark=pl.lit(None, pl.String))
    keys = ["pool", "questions", "fit", "benchmark"]
    shown = ("N", "path", "policy", "error", "beta", "inside", "alpha_error", "delta_error", "own_beta")
    means = [pl.col(name).mean() for name in shown]
    return pl.concat([rows, together]).group_by(keys).agg(*means, cells=pl.len()).sort(keys)


def main() -> None:
    """Run the cohorts and write the summary."""
    whole, rows = fitted_design("planted"), list[Row]()
    for pool, sizes in QUESTIONS.items():
        for questions in sizes:
            benchmarks = {name: replace(item, questions=questions) for name, item in whole.benchmarks.items()}
            design = replace(whole, benchmarks=benchmarks, policies=POOLS[pool])
            started, truth = time.monotonic(), Truth(design, 0)
            for seed in SEEDS:
                rows += [{"pool": pool, "questions": questions} | row for row in one_cohort(truth, seed)]
            print(f"{pool}, {questions} questions: {time.monotonic() - started:.0f} s", flush=True)
    table = summary(pl.DataFrame(rows, infer_schema_length=None))
    table.write_csv("docs/convergence.csv", float_precision=4)


if __name__ == "__main__":
    main()
