"""Rows of the tables: each from counts and loops alone, the RL information that each one reads, and its pool."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from itertools import product
from math import log, sqrt

import numpy as np
import pytest
from scipy.stats import rankdata

from searchlens.boptr.cohort import Cohort
from searchlens.boptr.frontier import FRONTIER_ROWS
from searchlens.boptr.offsets import V5B_ROWS
from searchlens.boptr.regimes import TWO_REGIMES
from searchlens.boptr.rows import ROWS, At, Curve, Prediction, Row, mech
from searchlens.boptr.rule import Exponents, Path, Reason, Rule, attempt
from searchlens.boptr.variants import VARIANT_ROWS
from searchlens.boptr.view import sample_view
from searchlens_lab.simulate import Design, paper_design, simulate
from small_cohort import lacking, part_of_paper

ROW = {row.key: row for row in ROWS}
ANCHOR, SMALL, NEW = "qwen25_7b", "qwen25_1.5b", "orz_7b"
FITTED = (ANCHOR, "qwen25_14b", SMALL, "qwen25_0.5b", "llama31_8b")
MATH, AIME, GPQA, AMC = "math500", "aime", "gpqa", "amc23"
DEFAULT = "topp0.95_t1.0"
TEMPERATURES = ("temp_0.3", "temp_0.7")
AR = (*TEMPERATURES, "topp0.8_t0.9", "topk20_t0.7", "minp0.1_t0.9", DEFAULT)
BUDGETS = (1, 2, 4, 8, 16)
QUESTIONS = 40
BETA = {MATH: 0.6, AIME: 0.0, GPQA: 1.0, AMC: 0.6}
Cell = tuple[str, str]
Step = tuple[str, int] | None
"""Policy and budget, or nothing where the budget is left out."""


def design() -> Design:
    """Five fitted pairs and a new one on the anchor's Base; searches on the anchor's math and GPQA."""
    searches = {
        d: {n: paper_design().searches[d][n] for n in ("entropy_tree_b4", "mcts16_temp_0.7")} for d in (MATH, GPQA)
    }
    part = part_of_paper((*FITTED, NEW), (*BETA, "rltrain"), AR, QUESTIONS, searches=searches)
    return replace(part, benchmarks=part.benchmarks | {AIME: replace(part.benchmarks[AIME], level=-4.0)})


@cache
def drawn(seed: int) -> Cohort:
    """Simulated; no model has a pure temperature on AIME."""
    whole = simulate(design(), seed, "first_k")
    return lacking(whole, [cell for cell in whole.landscapes if cell[1] == AIME], TEMPERATURES)


def cells(cohort: Cohort) -> list[Cell]:
    return list(product(cohort.plan.models, BETA))


# ---- the rule in plain loops over counts


class Plain:
    """Every row of the tables, from the counts of solved questions; paper's exponents and default options.

    An instance lives as long as the tests, so its methods may keep their results.
    """

    def __init__(self, cohort: Cohort) -> None:
        self.cohort = cohort
        self.fitted = [name for name, model in cohort.plan.models.items() if model.group != "new"]

    @cache  # noqa: B019
    def base(self, cell: Cell, metric: str = "P") -> dict[str, list[int]]:
        landscape = self.cohort.base(*cell)
        return {
            name: [int(landscape.credit[metric][landscape.points[name, n]].sum()) for n in BUDGETS]
            for name in dict.fromkeys(name for name, _ in landscape.points)
        }

    def pool(self, cell: Cell, pool: str) -> list[str]:
        return [name for name in self.base(cell) if pool == "full" or name in AR]

    def rl(self, cell: Cell) -> list[int]:
        landscape = self.cohort.rl(*cell)
        return [int(landscape.credit["P"][landscape.points[DEFAULT, n]].sum()) for n in BUDGETS]

    # -- scales

    def fit(self, cell: Cell, pool: str, betas: Iterable[float]) -> tuple[float, str, list[int]]:
        """ln alpha, policy and path of the smallest error; ties as the paper's numbers want them."""
        base, target, names = self.base(cell), self.rl(cell), self.pool(cell, pool)
        found: dict[int, list[tuple[float, int, str]]] = {}
        for beta, k, name in product(betas, range(-10, 21), names):
            path = [nearest(k / 5 + beta * b) for b in range(5)]
            error = sum(abs(base[name][n] - rl) for n, rl in zip(path, target, strict=True))
            found.setdefault(error, []).append((beta, k, name))

        def order(fit: tuple[float, int, str]) -> tuple[float, ...]:
            beta, k, name = fit
            curve = np.interp([k / 5 + beta * b for b in range(5)], range(5), base[name])
            second = round(float(np.abs(curve - target).sum()), 6)
            return second, round(abs(beta - BETA[cell[1]]), 9), -k, names.index(name), beta

        beta, k, name = min(found[min(found)], key=order)
        return log(2) * k / 5, name, [nearest(k / 5 + beta * b) for b in range(5)]

    @cache  # noqa: B019
    def log_alpha(self, cell: Cell) -> float:
        return self.fit(cell, "ar", [BETA[cell[1]]])[0]

    @cache  # noqa: B019
    def smooth(self, cell: Cell, pool: str) -> list[Step]:
        _, name, path = self.fit(cell, pool, [tenth / 10 for tenth in range(13)])
        return [(name, n) for n in path]

    def mu(self, benchmark: str) -> float:
        if BETA[benchmark] == BETA[MATH]:
            return sum(self.log_alpha((m, MATH)) for m in self.fitted) / len(self.fitted)
        return {AIME: log(2), GPQA: 0.0}[benchmark]

    def delta(self, model: str) -> float:
        return self.log_alpha((model, MATH)) - self.mu(MATH)

    # -- the selector

    def coordinates(self, cell: Cell, name: str, n: int) -> list[float]:
        P, Q = self.base(cell), self.base(cell, "Q")
        pool = self.pool(cell, "ar")
        i = pool.index(name)
        ranked = ([P[p][n] for p in pool], [P[p][n] - Q[p][n] for p in pool], [Q[p][n] for p in pool])
        ranks = [(rankdata(values)[i] - 1) / (len(pool) - 1) for values in ranked]
        landscape = self.cohort.base(*cell)
        cost = [log(landscape.tokens[p]) for p in pool]
        return [*ranks, 0.0, (cost[i] - min(cost)) / (max(cost) - min(cost))]

    @cache  # noqa: B019
    def prototype(self) -> list[float]:
        path = [step for step in self.smooth((ANCHOR, MATH), "ar") if step is not None]
        along = [self.coordinates((ANCHOR, MATH), *step) for step in path]
        return [sum(column) / len(along) for column in zip(*along, strict=True)]

    def rule(self, cell: Cell, log_alpha: float, beta: float | None = None) -> list[Step]:
        """N-hat, then pi-hat along it."""
        slope = BETA[cell[1]] if beta is None else beta
        path = [nearest(log_alpha / log(2) + slope * b) for b in range(5)]
        landscape = self.cohort.base(*cell)
        loss = {}
        for name in sorted(self.pool(cell, "ar")):
            loss[name] = 0.01 * landscape.tokens[name] / max(landscape.tokens[p] for p in AR)
            for n in path:
                pairs = zip((1, 1, 1, 0.5, 0.2), self.coordinates(cell, name, n), self.prototype(), strict=True)
                loss[name] += sqrt(sum(weight * (r - mean) ** 2 for weight, r, mean in pairs))
        chosen = min(loss, key=lambda name: round(loss[name], 5))
        return [(chosen, n) for n in path]

    # -- rows that carry a path over

    def carried(self, path: list[Step], cell: Cell, *, skip: bool) -> list[Step] | str:
        known = [step is not None and step[0] in self.base(cell) for step in path]
        if all(known) or (skip and any(known)):
            return [step if have else None for step, have in zip(path, known, strict=True)]
        return "policy_missing"

    def nearest_points(self, cell: Cell, pool: str, budgets: Callable[[int], Iterable[int]]) -> list[Step]:
        """At each b the nearest point; ties to the smaller budget, then the order of the pool."""
        base, names = self.base(cell), self.pool(cell, pool)
        path: list[Step] = []
        for b, rl in enumerate(self.rl(cell)):
            options = [(abs(base[name][n] - rl), n, i) for n in budgets(b) for i, name in enumerate(names)]
            _, n, i = min(options)
            path.append((names[i], n))
        return path

    def others(self, cell: Cell) -> list[str]:
        return [m for m in self.fitted if m != cell[0]]

    # -- all rows

    def predict(self, key: str, cell: Cell, pool: str) -> list[Step] | list[float] | str:  # noqa: PLR0912
        model, benchmark = cell
        anchor, base = (ANCHOR, MATH), self.base(cell)
        same = range(5)
        known = [name for name in TEMPERATURES if name in base]
        match key:
            case "H1":
                return [(known[0], n) for n in same] if known else "policy_missing"
            case "low temp":
                return [(max(known, key=lambda p: base[p][0]), n) for n in same] if known else "policy_missing"
            case "H2":
                return [(DEFAULT, n) for n in same]
            case "H3":
                return self.carried(self.nearest_points(anchor, pool, lambda b: range(5)), cell, skip=True)
            case "H4":
                return self.rule(cell, self.log_alpha(anchor), BETA[MATH])
            case "H5":
                return self.rule(cell, self.mu(benchmark) + self.delta(ANCHOR))
            case "H6":
                return self.nearest_points(cell, pool, lambda b: range(5))
            case "ORACLE-1D":
                return self.nearest_points(cell, pool, lambda b: [b])
            case "H7" | "V1":
                return self.smooth(cell, pool)
            case "V2":
                return self.carried(self.smooth((ANCHOR, benchmark), pool), cell, skip=False)
            case "V2-δ0" | "A2":
                return self.rule(cell, self.mu(benchmark))
            case "V3":
                return self.rule(cell, self.mu(benchmark) + self.delta(model))
            case "A1":
                path = self.rule(cell, self.mu(benchmark) + self.delta(model))
                return [(DEFAULT, step[1]) for step in path if step is not None]
            case "A3":
                return self.rule(cell, 0.0, 1.0)
            case "cell-fit":
                return self.rule(cell, 0.0 if benchmark == GPQA else self.log_alpha(cell))
            case "B0":
                return self.rule(cell, self.log_alpha(anchor) if BETA[benchmark] == 0.6 else self.mu(benchmark))
            case "mean RL":
                return mean([self.rl((m, benchmark)) for m in self.others(cell)])
            case "Base+gain":
                gains = [
                    [rl - own for rl, own in zip(self.rl(there), self.base(there)[DEFAULT], strict=True)]
                    for there in ((m, benchmark) for m in self.others(cell))
                ]
                raised = [own + gain for own, gain in zip(base[DEFAULT], mean(gains), strict=True)]
                return [min(max(value, 0), QUESTIONS) for value in raised]
        raise AssertionError(f"no plain {key}")

    def error(self, cell: Cell, prediction: list[Step] | list[float]) -> float:
        """mech_P, question by question, over the budgets that are not left out."""
        base, rl = self.cohort.base(*cell), self.cohort.rl(*cell)
        gaps = []
        for b, step in zip(BUDGETS, prediction, strict=True):
            target = sum(float(hit) for hit in rl.credit["P"][rl.points[DEFAULT, b]])
            if isinstance(step, tuple):
                row = base.credit["P"][base.points[step[0], BUDGETS[step[1]]]]
                gaps.append(abs(sum(float(hit) for hit in row) - target) / QUESTIONS)
            elif step is not None:
                gaps.append(abs(step - target) / QUESTIONS)
        return 100 * sum(gaps) / len(gaps)


@cache
def nearest(x: float) -> int:
    """round_B as the position of the budget nearest to 2^x in log2, halves up."""
    return min(range(5), key=lambda n: (round(abs(x - n), 9), -n))


def mean(curves: list[list[int]]) -> list[float]:
    return [sum(values) / len(curves) for values in zip(*curves, strict=True)]


def steps(path: Path, rule: Rule, cell: Cell) -> list[Step]:
    base = rule.view.base(*cell)
    gone = np.zeros(5, bool) if path.skip is None else path.skip[:, 0]
    chosen = zip(path.policy[:, 0], path.budget[:, 0], gone, strict=True)
    return [None if skipped else (base.policies[i], int(n)) for i, n, skipped in chosen]


def tried(row: Row, rule: Rule, at: At) -> Prediction | Reason:
    return attempt(row.predict, rule, at)


@cache
def plainly(seed: int) -> Plain:
    return Plain(drawn(seed))


@pytest.mark.parametrize("seed", [1, 2, 5])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_row_is_its_definition(row: Row, seed: int) -> None:
    cohort = drawn(seed)
    plain, rule = plainly(seed), Rule(sample_view(cohort))
    for pool, cell in product(row.pools, cells(cohort)):
        expected, found = plain.predict(row.key, cell, pool), tried(row, rule, At(*cell, pool))
        if isinstance(expected, str):
            assert found == Reason(expected), cell
            continue
        base, target = rule.view.base(*cell), rule.view.target(*cell)
        if isinstance(found, Path):
            assert steps(found, rule, cell) == expected, (cell, pool)
        else:
            np.testing.assert_allclose(found.counts[:, 0], np.array(expected, float), rtol=1e-6)
        error = mech(found, base, target, QUESTIONS, 1)
        assert error[0] == pytest.approx(plain.error(cell, expected), abs=1e-4)


# ---- which RL a row reads

EVERY = (*ROWS, *V5B_ROWS, *FRONTIER_ROWS, TWO_REGIMES, *VARIANT_ROWS)
ON_ANCHOR = {(model, MATH) for model in FITTED}
SELECTING = {"A3", "cell-fit", "Z0-u", "Z0-N*", "V5b"}
"""Rows that say nothing of the selector, whose prototype is fitted on the anchor's pair."""


def declared(row: Row, cell: Cell) -> set[Cell]:
    """The RL cells that a row says it reads, with the paper's exponents."""
    model, benchmark = cell
    said = {
        "none": set(),
        "none for α": set(),
        "own cell": {cell},
        "anchor, anchor benchmark": {(ANCHOR, MATH)},
        "anchor, anchor benchmark; P and Q": {(ANCHOR, MATH)},
        "anchor, every benchmark": {(ANCHOR, benchmark)},
        "anchor; cohort through μ": ON_ANCHOR,
        "cohort through μ": ON_ANCHOR,
        "own pair on the anchor benchmark; cohort through μ": {*ON_ANCHOR, (model, MATH)},
        "own pair on the anchor benchmark; cohort through μ; P and Q": {*ON_ANCHOR, (model, MATH)},
        "as V3": {*ON_ANCHOR, (model, MATH)},
        "other models, same benchmark": {(m, benchmark) for m in FITTED if m != model},
        # Off math, the target has a share in mu.
        "other models' offsets; none of the target's": ON_ANCHOR
        - ({(model, MATH)} if BETA[benchmark] == 0.6 else set()),
    }
    return said[row.rl] | ({(ANCHOR, MATH)} if row.key in SELECTING else set())


def changed(cohort: Cohort, rl: Iterable[Cell], how: str) -> Cohort:
    """The cohort with other RL in some cells: everything solved, nothing, or not sampled."""
    landscapes = dict(cohort.landscapes)
    for model, benchmark in rl:
        place = f"{model}-rl", benchmark
        found = landscapes.pop(place)
        if how != "absent":
            credit = {metric: np.full_like(part, float(how == "all")) for metric, part in found.credit.items()}
            landscapes[place] = replace(found, credit=credit)
        elif (model, benchmark) == (ANCHOR, MATH):
            landscapes[place] = replace(found, points={("temp_0.7", 1): 0})
    return Cohort(cohort.plan, landscapes)


@cache
def rule_on(rl: frozenset[Cell], how: str, exponents: Exponents = "paper") -> Rule:
    return Rule(sample_view(changed(drawn(1), rl, how)), exponents=exponents)


def same(one: Prediction | Reason, other: Prediction | Reason) -> bool:
    """The same points, or the same curve."""
    if isinstance(one, Reason) or isinstance(other, Reason):
        return one == other
    ours, theirs = (list(p.paths) if hasattr(p, "paths") else [p] for p in (one, other))
    for mine, yours in zip(ours, theirs, strict=True):
        if isinstance(mine, Path) and isinstance(yours, Path):
            if not (np.array_equal(mine.policy, yours.policy) and np.array_equal(mine.budget, yours.budget)):
                return False
        elif not (isinstance(mine, Curve) and isinstance(yours, Curve) and np.array_equal(mine.counts, yours.counts)):
            return False
    return True


def questions_asked(row: Row) -> list[At]:
    return [At(*cell, pool) for pool in row.pools for cell in cells(drawn(1))]


@pytest.mark.parametrize("how", ["all", "none", "absent"])
@pytest.mark.parametrize("row", EVERY, ids=lambda row: row.key)
def test_row_reads_no_rl_that_it_does_not_declare(row: Row, how: str) -> None:
    """All other RL of the study, the cell's own among it, may be anything or missing: nothing moves."""
    whole = rule_on(frozenset(), how)
    for at in questions_asked(row):
        rest = frozenset(cells(drawn(1))) - declared(row, at.cell)
        assert same(tried(row, whole, at), tried(row, rule_on(rest, how), at)), at


@pytest.mark.parametrize("row", EVERY, ids=lambda row: row.key)
def test_row_reads_the_rl_that_it_declares(row: Row) -> None:
    whole = rule_on(frozenset(), "all")
    moved = [
        at
        for at in questions_asked(row)
        for how in ("all", "none")
        if not same(tried(row, whole, at), tried(row, rule_on(frozenset(declared(row, at.cell)), how), at))
    ]
    nothing = row.rl == "none" or not any(declared(row, at.cell) for at in questions_asked(row))
    undefined = all(isinstance(tried(row, whole, at), Reason) for at in questions_asked(row))
    assert bool(moved) != (nothing or undefined)


def test_rows_fitted_to_their_target_are_oracles() -> None:
    cells_off = set(product((SMALL, NEW), (AIME, GPQA, AMC)))
    for row in EVERY:
        assert {cell for cell in cells_off if cell in declared(row, cell)} == (
            cells_off if row.kind == "oracle" else set()
        )


@pytest.mark.parametrize("row", EVERY, ids=lambda row: row.key)
def test_held_out_benchmarks_and_new_models_fit_nothing(row: Row) -> None:
    """Nor the cohort's own exponents. Their RL reaches only the rows that say so."""
    plan = drawn(1).plan
    held = {(model, benchmark) for model, benchmark in cells(drawn(1)) if benchmark == AMC or model == NEW}
    assert plan.benchmarks[AMC].role == "held_out" and plan.models[NEW].group == "new"
    whole = rule_on(frozenset(), "none", "own")
    for at in questions_asked(row):
        rest = frozenset(held - declared(row, at.cell))
        assert same(tried(row, whole, at), tried(row, rule_on(rest, "none", "own"), at)), at


# ---- pools


def tempting(rl: str) -> Cohort:
    """RL of the anchor is a search policy's own curve: nothing else comes near in every question."""
    cohort = drawn(1)
    base, target = cohort.base(ANCHOR, rl), cohort.rl(ANCHOR, rl)
    credit = {metric: part.copy() for metric, part in target.credit.items()}
    for n in BUDGETS:
        hits = np.arange(QUESTIONS) < base.credit["P"][base.points["mcts16_temp_0.7", n]].sum()
        credit["P"][target.points[DEFAULT, n]] = hits
    return Cohort(cohort.plan, {**cohort.landscapes, (f"{ANCHOR}-rl", rl): replace(target, credit=credit)})


@pytest.mark.parametrize("benchmark", [MATH, GPQA])
def test_ar_rows_never_choose_a_policy_that_searches(benchmark: str) -> None:
    """Even where one of them is the RL curve itself; in the full pool the oracles do find it."""
    cohort = tempting(benchmark)
    for exponents in ("paper", "own"):
        rule = Rule(sample_view(cohort), exponents=exponents)  # type: ignore[arg-type]
        for row, cell in product(EVERY, cells(cohort)):
            found = tried(row, rule, At(*cell))
            for path in getattr(found, "paths", (found,)):
                if isinstance(path, Path):
                    assert {step[0] for step in steps(path, rule, cell) if step} <= set(AR), (row.key, cell)
    for key in ("H6", "H7", "V1", "V2", "ORACLE-1D"):
        found = ROW[key].predict(rule, At(ANCHOR, benchmark, "full"))
        base, target = rule.view.base(ANCHOR, benchmark), rule.view.target(ANCHOR, benchmark)
        assert isinstance(found, Path) and target is not None
        assert mech(found, base, target, QUESTIONS, 1)[0] == 0
        assert "mcts16_temp_0.7" in {step[0] for step in steps(found, rule, (ANCHOR, benchmark)) if step}


@pytest.mark.parametrize("row", EVERY, ids=lambda row: row.key)
def test_ar_rows_do_without_the_expanded_pool(row: Row) -> None:
    cohort = drawn(1)
    searched = [(f"{ANCHOR}-base", benchmark) for benchmark in (MATH, GPQA)]
    alone = Rule(sample_view(lacking(cohort, searched, set(cohort.landscapes[searched[0]].policies) - set(AR))))
    for cell in cells(cohort):
        ours, theirs = tried(row, rule_on(frozenset(), "all"), At(*cell)), tried(row, alone, At(*cell))
        assert same(ours, theirs), cell


def test_rows_that_search_the_pool_themselves_are_asked_for_both() -> None:
    """A rule's selector knows the AR pool alone, so a full-pool number of it would be the same one again."""
    both = {row.key for row in EVERY if row.pools == ("ar", "full")}
    assert both == {"H3", "H6", "H7", "V1", "V2", "ORACLE-1D", "per-budget oracle", "smooth path"}
    for row in EVERY:
        if row.key not in both and row.kind != "copy":
            for cell in cells(drawn(1)):
                rule = rule_on(frozenset(), "all")
                assert same(tried(row, rule, At(*cell)), tried(row, rule, At(*cell, "full")))


# ---- errors of predictions


@pytest.mark.parametrize("key", ["mean RL", "Base+gain"])
@pytest.mark.parametrize("model", [ANCHOR, SMALL])
def test_a_curve_without_a_path_is_the_sum_of_its_terms(key: str, model: str) -> None:
    """Shares of curves of checkpoints under the default policy, of which the noise of the row is computed."""
    cohort = drawn(3)
    found = ROW[key].predict(Rule(sample_view(cohort)), At(model, GPQA))
    assert sum(share for share, _ in found.terms) == pytest.approx(1)
    total = np.zeros(len(BUDGETS))
    for share, name in found.terms:
        landscape = cohort.landscapes[name, GPQA]
        total += share * landscape.values("P", DEFAULT, BUDGETS) * QUESTIONS
    assert found.counts[:, 0] == pytest.approx(np.clip(total, 0, QUESTIONS), abs=1e-4)
