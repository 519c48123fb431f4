"""Does the study tell a law from its absence?

    python validation/nulls.py    # writes docs/nulls.csv

Four experiments on simulated cohorts:

* ``true pairing``: RL comes from its Base (modes ``transform``, ``planted``); p of the mismatched-pair null.
* ``unrelated``: RL models are exchangeable, whatever their Base; the same p has to be uniform.
* ``equal``: RL samples from Base's own distribution, so that "same policy, N = b" (H2) is the truth.
* ``planted``: the law is the truth, and H2 is wrong.

One record per experiment, case, row of the tables and quantity. Errors are in percentage points.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from scipy import stats

from searchlens.boptr.evaluate import Constants, Evaluation, Task, evaluate
from searchlens.boptr.inference import permutation_p
from searchlens.boptr.protocol import BASELINES, checklist, protocol_flags
from searchlens.boptr.rows import ROWS, Row
from searchlens.boptr.rule import Path as BudgetPath
from searchlens.boptr.study import contrasts, decided, mismatched
from searchlens.boptr.transfer import errors_frame
from searchlens.config.boptr import BoptrOptions
from searchlens_lab.simulate import Design, Mode, Truth, fitted_design, simulate, small_design

FIRST = 30_000
"""First seed."""
PAPER, OWN = Constants(), Constants("own")
TRUE_ROWS = ("H2", "H5", "V2", "V2-δ0", "V3", "Base+gain")
VERDICT_ROWS = ("H1", "H2", "H3", "H5", "H6", "H7", "V2", "V2-δ0", "V3", "A1", "A3", "mean RL", "Base+gain", "low temp")
Record = tuple[str, str, str, str, float, int]
MARKS = ("better than V3: ", "not distinguishable from V3: ")
"""Item (b) of the checklist names the rows that V3 does not beat after these words."""
COLUMNS = ("experiment", "case", "rule", "quantity", "value", "cohorts")


def rows_of(*keys: str) -> tuple[Row, ...]:
    """Rows of the tables by key."""
    return tuple(row for row in ROWS if row.key in keys)


def pairing_p(
    design: Design, seed: int, permutations: int, rows: Sequence[Row]
) -> dict[str, tuple[float, float, float]]:
    """Of every row: p of the true pairing, its mean error and the mean over the other pairings."""
    cohort = simulate(design, seed, "first_k")
    task = Task(PAPER, tuple(rows), tuple(cohort.plan.with_role("fitted")))
    _, means = mismatched(cohort, BoptrOptions(permutations=permutations, estimator="first_k"), task)
    return {row: (permutation_p(mean), float(mean[0]), float(mean[1:].mean())) for row, mean in means.items()}


# ---- RL comes from its Base


def true_pairing(cohorts: int) -> Iterator[Record]:
    """How small p becomes where the law holds, with six and with seven models to exchange."""
    rows = rows_of(*TRUE_ROWS)
    modes: tuple[Mode, ...] = ("transform", "planted")
    for mode in modes:
        six = fitted_design(mode)
        seven = replace(six, missing=frozenset())
        for case, design, permutations in (
            (f"{mode}, 6 models, all 720", six, 1000),
            (f"{mode}, 7 models, 1000 drawn", seven, 1000),
            (f"{mode}, 7 models, all 5040", seven, 5040),
        ):
            tests = [pairing_p(design, seed, permutations, rows) for seed in range(FIRST, FIRST + cohorts)]
            for row in tests[0]:
                p, error, mismatch = np.array([test[row] for test in tests]).T
                quantities = {
                    "largest p": p.max(),
                    "share p < .01": (p < 0.01).mean(),
                    "error": error.mean(),
                    "mismatched error": mismatch.mean(),
                }
                yield from (("true pairing", case, row, name, value, cohorts) for name, value in quantities.items())


# ---- RL has nothing to do with Base


def unrelated(cohorts: int) -> Iterator[Record]:
    """Whether p is uniform for five models on two benchmarks of 60 questions, six policies: 120 pairings.

    p has steps of 1/120; it is moved at random within a step to be continuous.
    """
    names = ("qwen25_7b", "qwen25_14b", "qwen25_1.5b", "qwen25_0.5b", "mistral7b_v01")
    part = fitted_design("unrelated").part(names, ("math500", "gpqa"), 60)
    design, rows = replace(part, policies=small_design().policies), rows_of("H2", "V1", "V2-δ0", "V3", "A3")
    tests = [pairing_p(design, seed, 120, rows) for seed in range(FIRST, FIRST + cohorts)]
    spread = np.random.default_rng(FIRST).random(cohorts) / 120
    for row in tests[0]:
        p = np.array([test[row][0] for test in tests])
        quantities = {"KS p": stats.kstest(p - spread, "uniform").pvalue, "mean p": p.mean()}
        for level, steps in ((0.01, 1), (0.05, 6), (0.1, 12)):
            count = int((p <= level).sum())
            low, high = stats.binom.ppf([0.025, 0.975], cohorts, steps / 120)
            quantities |= {
                f"share p <= {level}": count / cohorts,
                f"expected p <= {level}": steps / 120,
                f"lowest p <= {level}": low / cohorts,
                f"highest p <= {level}": high / cohorts,
            }
        yield from (("unrelated", "5 models, all 120", row, name, value, cohorts) for name, value in quantities.items())


# ---- RL is Base, or follows the law


def verdicts(mode: Mode, cohorts: int) -> Iterator[Record]:
    """What the study says where the truth is H2 (mode ``equal``), or the law (``planted``)."""
    truth, rows = Truth(fitted_design(mode), 0), rows_of(*VERDICT_ROWS)
    paths: list[dict[str, object]] = []
    contests: list[pl.DataFrame] = []
    details: list[str] = []
    for seed in range(FIRST, FIRST + cohorts):
        cohort = simulate(truth.design, seed, "first_k")
        options = BoptrOptions(draws=1000, reselect=0, seed=seed, estimator="first_k")
        fitted = tuple(cohort.plan.with_role("fitted"))
        evaluation = evaluate(cohort, options, [Task(constants, rows, fitted) for constants in (PAPER, OWN)])
        paths += chosen(evaluation, truth)
        questions = {benchmark: len(landscape.questions) for (_, benchmark), landscape in cohort.landscapes.items()}
        parts = [contrasts(evaluation, cohort.plan, constants, options, questions) for constants in (PAPER, OWN)]
        contests.append(decided(pl.concat(parts), options.confidence))
        rule, row_by_key = evaluation.rules[PAPER], {row.key: row for row in rows}
        errors = errors_frame(evaluation, cohort.plan, row_by_key, options.confidence)
        details.append(checklist(rule, errors, protocol_flags(rule), contests[-1])["detail"][1])
    table = pl.DataFrame(paths).group_by("case", "rule", maintain_order=True).mean()
    for mean in table.iter_rows(named=True):
        yield from ((mode, mean["case"], mean["rule"], name, mean[name], cohorts) for name in table.columns[2:])
    for case, row, verdict, share in (*verdict_shares(pl.concat(contests)), *unbeaten(details)):
        yield mode, case, row, verdict, share, cohorts


def chosen(evaluation: Evaluation, truth: Truth) -> Iterator[dict[str, object]]:
    """Every chosen path: its measured and its true error, and whether it is N = b under the default policy."""
    design = truth.design
    for key, score in evaluation.scores.items():
        path, base = score.prediction, evaluation.rules[key.constants].view.base(key.model, key.benchmark)
        if key.pool != "ar" or not isinstance(path, BudgetPath):
            continue
        assert base is not None
        names = [base.policies[i] for i in path.policy[:, 0]]
        steps = [design.budgets[n] for n in path.budget[:, 0]]
        yield {
            "case": f"exponents {key.constants.exponents}",
            "rule": key.row,
            "error": score.error,
            "corrected": float(score.corrected[0]),
            "true error": truth.mech_p(key.model, key.benchmark, list(zip(names, steps, strict=True))),
            "share N = b": float(np.mean(np.array(steps) == design.budgets)),
            "share whole path N = b": float(steps == list(design.budgets)),
            "share default policy": float(np.mean([name == design.default_policy for name in names])),
        }


def verdict_shares(contests: pl.DataFrame) -> Iterator[tuple[str, str, str, float]]:
    """How often each contrast had each verdict."""
    judged = contests.filter(pl.col("verdict").is_not_null(), second="V3", scope="cohort")
    for (exponents, row), part in judged.group_by("exponents", "first", maintain_order=True):
        for verdict in ("first lower", "second lower", "not distinguishable"):
            share = part.select((pl.col("verdict") == verdict).mean()).item()
            yield f"exponents {exponents}", f"{row} against V3", verdict, share


def unbeaten(details: Sequence[str]) -> Iterator[tuple[str, str, str, float]]:
    """How often item (b) of the checklist names each baseline or rival that V3 is not shown to beat."""
    named = [
        {name for part in detail.split("; ") if part.startswith(MARKS) for name in part.partition(": ")[2].split(", ")}
        for detail in details
    ]
    for row in BASELINES:
        yield "checklist (b)", row, "V3 not shown to be better", float(np.mean([row in names for names in named]))


def main() -> None:
    """Run the experiments and write one table."""
    rows: list[Record] = []
    for name, part in (
        ("true pairing", true_pairing(10)),
        ("unrelated", unrelated(500)),
        ("equal", verdicts("equal", 10)),
        ("planted", verdicts("planted", 10)),
    ):
        started = time.monotonic()
        rows += part
        print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)
    pl.DataFrame(rows, COLUMNS, orient="row").write_csv("docs/nulls.csv", float_precision=4)


if __name__ == "__main__":
    main()
