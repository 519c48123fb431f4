"""Bounds, importance sampling and splitting, on language models whose texts are all enumerated."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from searchlens.analysis.bounds import BOUNDS, FEWEST, Precision, bounds
from searchlens.analysis.handover import HANDOVER, curve, splits
from searchlens.analysis.uncertainty import clopper_pearson
from searchlens.config.policies import Sampling
from searchlens.engines.base import PLAIN
from searchlens.store.columns import BEGINNINGS
from searchlens_lab.equivalence.explicit import ToyModel, enumerate_texts

EXACT = Precision(0.0, "float32")
PROMPT, LONGEST = (1, 2), 4
SIDES = ("base", "rl")


class Question:
    """A question, the texts of both sides with their probabilities, and which of them are right."""

    def __init__(self, seed: int, sampling: Sampling = PLAIN, right: int = 5) -> None:
        models = {side: ToyModel.random(2 * seed + i, vocab_size=4) for i, side in enumerate(SIDES)}
        found = {side: enumerate_texts(model, PROMPT, LONGEST, sampling=sampling) for side, model in models.items()}
        self.texts = sorted(set(found["base"]) | set(found["rl"]))
        self.p = {side: np.array([found[side].get(text, 0.0) for text in self.texts]) for side in SIDES}
        self.right = np.array([sum(text) % right == 1 for text in self.texts])

    @property
    def chance(self) -> float:
        """Of one sample of Base to be right."""
        return float(self.p["base"] @ self.right)

    def drawn(self, rng: np.random.Generator, samples: int, question: int = 0) -> pl.DataFrame:
        """Texts of both sides, scored."""
        chosen = {side: rng.choice(len(self.texts), samples, p=self.p[side] / self.p[side].sum()) for side in SIDES}
        return pl.concat(self.scored(texts, side, question) for side, texts in chosen.items())

    def scored(self, chosen: np.ndarray, side: str, question: int = 0) -> pl.DataFrame:
        with np.errstate(divide="ignore"):
            logp = {f"logp_{name}": np.log(self.p[name][chosen]) for name in SIDES}
        columns = {"sample": np.arange(len(chosen)), "text": chosen, "right": self.right[chosen]}
        facts = {"question": question, "side": side, "whole_base": True, "whole_rl": True, "wrong_key": False}
        texts = pl.DataFrame(columns | logp, schema_overrides={"text": pl.UInt32})
        return texts.with_columns(**{name: pl.lit(value) for name, value in facts.items()})


def counted(texts: pl.DataFrame) -> pl.DataFrame:
    """The counts of the scored texts themselves."""
    sums = {
        f"{side}_{name}": pl.col("right").filter(pl.col("side") == side).pipe(count)
        for side in SIDES
        for name, count in (("samples", pl.Expr.len), ("right", pl.Expr.sum))
    }
    return (
        texts.group_by("question", maintain_order=True).agg(**sums).with_columns(id=pl.col("question").cast(pl.String))
    )


def one(texts: pl.DataFrame, precision: Precision = EXACT, **changes: Any) -> dict[str, Any]:
    (row,) = bounds(texts, counted(texts).with_columns(**changes), precision).rows(named=True)
    return row


@pytest.mark.parametrize("sampling", [Sampling(1.0), Sampling(0.9, top_p=0.8), Sampling(1.2, top_k=2)])
def test_all_texts_leave_nothing_open(sampling: Sampling) -> None:
    """Both bounds are the chance itself, also where filters drop texts; each text counts once."""
    question = Question(3, sampling)
    every = np.flatnonzero(question.p["base"])
    row = one(pl.concat(question.scored(np.repeat(every, 2), side) for side in SIDES))
    assert row["at_least"] == pytest.approx(question.chance)
    assert row["at_most"] == pytest.approx(question.chance)
    assert row["right_texts"] == question.right[every].sum()


def test_texts_of_rl_alone_bound_base() -> None:
    """Whoever drew a text: its probability under Base counts, and none of Base's samples is needed."""
    question = Question(4)
    solved = np.flatnonzero(question.right)[:3]
    wrong = np.flatnonzero(~question.right)[:1]
    texts = pl.concat([question.scored(solved, "rl"), question.scored(np.repeat(wrong, 3), "base")])
    row = one(texts)
    assert (row["base_right"], row["rl_right"]) == (0, 3)
    assert row["at_least"] == pytest.approx(question.p["base"][solved].sum())
    assert row["at_most"] == pytest.approx(min(1 - question.p["base"][wrong].sum(), 1 - 0.05 ** (1 / 3)))


def test_what_does_not_count() -> None:
    """Texts that Base would have ended elsewhere or cannot draw, and texts without a verdict."""
    question = Question(5)
    texts = question.scored(np.flatnonzero(question.right)[:4], "rl")
    base = question.scored(np.flatnonzero(~question.right)[:4], "base")
    place = pl.col("sample")
    flawed = texts.with_columns(
        whole_base=place != 0,
        logp_base=pl.when(place == 1).then(-np.inf).otherwise("logp_base"),
        right=pl.when(place == 2).then(None).otherwise("right"),
    )
    row, last = one(pl.concat([flawed, base])), float(np.exp(texts["logp_base"][3]))
    assert row["at_least"] == pytest.approx(last)
    assert row["right_texts"] == 1
    lowered = one(pl.concat([flawed, base]), Precision(0.5, "bfloat16"))
    assert lowered["at_least"] == pytest.approx(last * np.exp(-0.5))
    assert lowered["at_most"] >= row["at_most"]
    assert (lowered["spread"], lowered["dtype"]) == (0.5, "bfloat16")


def test_the_other_key_is_counted_if_it_was_judged() -> None:
    question = Question(6)
    texts = pl.concat(question.scored(np.arange(4), side) for side in SIDES)
    assert one(texts)["wrong_key"] == 0
    assert one(texts.with_columns(wrong_key=pl.col("text") == 2))["wrong_key"] == pytest.approx(question.p["base"][2])
    assert one(texts.with_columns(wrong_key=pl.lit(None, pl.Boolean)))["wrong_key"] is None


def test_bounds_and_intervals_cover_the_chance() -> None:
    """4,000 questions of 16 and 64 texts: lower bounds never fail, the rest as often as its level says."""
    rng, rows, chances = np.random.default_rng(0), [], []
    questions = [Question(seed, right=right) for seed in range(25) for right in (3, 5, 11, 17)]
    for samples in (16, 64):
        for _ in range(20):
            texts = pl.concat(question.drawn(rng, samples, i) for i, question in enumerate(questions))
            rows.append(bounds(texts, counted(texts), EXACT))
            chances += [question.chance for question in questions]
    found, chance = pl.concat(rows), np.array(chances)
    assert found.schema == BOUNDS
    assert (found["at_least"].to_numpy() <= chance + 1e-9).all()
    missed = (found["at_most"].to_numpy() < chance - 1e-9).reshape(-1, len(questions))
    assert missed.any(1).mean() <= 0.1, "at 95% for all questions together"
    assert found["effective"].min() >= FEWEST  # type: ignore[operator]
    lo, hi, value = (found[name].to_numpy() for name in ("lo", "hi", "estimate"))
    for part in (chance >= 0, chance < 0.1, chance > 0.5):
        assert ((lo <= chance) & (chance <= hi))[part].mean() > 0.95
    assert abs((value - chance).mean()) < 0.01
    alone = (found["base_right"] / found["base_samples"]).to_numpy()
    assert ((value - chance) ** 2).mean() < 0.7 * ((alone - chance) ** 2).mean()


def test_few_texts_give_no_estimate() -> None:
    row = one(Question(8).drawn(np.random.default_rng(0), 4))
    assert row["effective"] < FEWEST
    assert row["estimate"] is row["lo"] is row["hi"] is None


def test_clopper_pearson_at_its_edges() -> None:
    ends = clopper_pearson(np.array([0.0, 3.0, 8.0]), np.array([8.0, 8.0, 8.0]))
    np.testing.assert_allclose(ends.lo, [0, 0.0852334, 0.6305834], atol=1e-6)
    np.testing.assert_allclose(ends.hi, [0.3694166, 0.7551368, 1], atol=1e-6)


# ---- handover


def begun(rows: list[dict[str, Any]]) -> pl.DataFrame:
    whole = {"sample": 0, "unit": "tokens", "at": 2.0, "length": 2, "whole": False, "logp_base": 0.0, "prefix": [1, 2]}
    schema = BEGINNINGS | {"right": pl.UInt32(), "continuations": pl.UInt32()}
    return pl.DataFrame([whole | {"continuations": 8} | row for row in rows], schema)


def test_the_curve_compares_kinds_on_common_questions() -> None:
    """Question 1 has no wrong text of RL; question 2 is solved by none of Base's samples."""
    kinds = {
        0: {"rl_right": 4, "rl_wrong": 2, "base_right": 6},
        1: {"rl_right": 8, "base_right": 8},
        2: {"rl_right": 2},
    }
    rows = [{"question": q, "kind": k, "right": n} for q, each in kinds.items() for k, n in each.items()]
    rows.append({"question": 0, "kind": "rl_right", "right": 2, "sample": 1})
    counts = pl.DataFrame({"question": [0, 1, 2, 3], "base_samples": 10, "base_right": [1, 5, 0, 9]})
    found = curve(begun(rows), counts, draws=200)
    assert found.schema == HANDOVER
    values = {(row["among"], row["kind"]): row for row in found.rows(named=True)}
    assert values["all", "rl_right"]["value"] == pytest.approx((3 / 8 + 1 + 2 / 8) / 3)
    assert (values["all", "rl_right"]["questions"], values["all", "rl_right"]["texts"]) == (3, 4)
    assert values["all", "alone"]["value"] == pytest.approx((0.1 + 0.5 + 0) / 3)
    assert values["common", "rl_right"]["value"] == pytest.approx(3 / 8)
    assert values["common", "alone"]["value"] == pytest.approx(0.1)
    assert values["common", "rl_right"]["lo"] is None, "one question has no interval"
    assert values["expanded", "rl_right"]["value"] == pytest.approx(2 / 8)
    assert values["expanded", "alone"]["value"] == 0
    assert ("expanded", "base_right") not in values


def test_splitting_covers_the_chance() -> None:
    """Exact if every beginning is there; else the limits hold what is outside, and the part is below the whole."""
    rng, covered, gaps = np.random.default_rng(1), [], []
    for seed in range(200):
        question = Question(seed, right=5)
        p, right = question.p["base"], question.right
        groups: dict[tuple[int, ...], list[int]] = {}
        for place, text in enumerate(question.texts):
            groups.setdefault(text[:2], []).append(place)
        known = list(groups)[: len(groups) if seed % 2 else 3]
        rows = []
        for prefix in known:
            mass = p[groups[prefix]].sum()
            share = float(p[groups[prefix]] @ right[groups[prefix]] / mass)
            of = {"question": 0, "kind": "rl_right", "prefix": list(prefix), "logp_base": np.log(mass)}
            is_whole = len(groups[prefix]) == 1
            count = 8 * int(share) if is_whole else rng.binomial(8, share)
            rows.append(of | {"whole": is_whole, "right": count})
        (row,) = splits(begun(rows), 0.0).rows(named=True)
        assert row["beginnings"] == len(known)
        assert row["reached"] == pytest.approx(sum(p[groups[prefix]].sum() for prefix in known))
        covered.append(row["lo"] <= question.chance <= row["hi"])
        if seed % 2:
            gaps.append(row["through"] - question.chance)
    assert np.mean(covered) >= 0.95
    assert abs(np.mean(gaps)) < 0.015


def test_equal_beginnings_count_once() -> None:
    rows = [
        {"question": 0, "kind": kind, "right": n, "logp_base": np.log(0.5)}
        for kind, n in (("rl_right", 8), ("base_right", 0))
    ]
    (row,) = splits(begun(rows), 0.1).rows(named=True)
    assert (row["beginnings"], row["reached"], row["through"]) == (1, 0.5, 0.25)
    ends = clopper_pearson(np.array([8.0]), np.array([16.0]))
    assert row["lo"] == pytest.approx(0.5 * np.exp(-0.1) * ends.lo[0])
    assert row["hi"] == pytest.approx(0.5 * np.exp(-0.1) * ends.hi[0] + 1 - 0.5 * np.exp(-0.1))
