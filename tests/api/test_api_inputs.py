"""What ``searchlens.compare`` and ``searchlens.open`` accept: pools of different lengths, and nothing that is wrong."""

import json
import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import searchlens
from conftest import Patch, Raw
from searchlens import catalogue
from searchlens.analysis.pool import missed
from searchlens.errors import InputError
from small_results import DEFAULT, finish

ONE = [[True, False], [False, False]]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"draws": "100"}, "draws: '100'; allowed: a whole number, 100 or more"),
        ({"draws": 100.5}, "draws: 100.5; allowed"),
        ({"seed": None}, "seed: None; allowed: a whole number, 0 or more"),
        ({"confidence": "95%"}, "confidence: '95%'; allowed: a number above 0 and below 1"),
        ({"confidence": float("nan")}, "confidence: nan"),
        ({"samples": (4, [4, "x"])}, r"samples: \[4, 'x'\]; allowed: numbers"),
        ({"wrong_key": 3}, "wrong_key: 3; allowed: a pair, of base and of rl"),
        ({"tokens": ("a", "b")}, r"tokens\[0\]: 'a'; allowed: numbers"),
        ({"tokens": (1, float("nan"))}, r"tokens\[1\]: nan; allowed: numbers from 0 on with a mean above 0"),
        ({"tokens": ([[1, 2], [3, float("nan")]], 1)}, r"tokens\[0\]: .*allowed: numbers"),
        ({"choices": "four"}, "choices: 'four'"),
    ],
)
def test_a_wrong_argument_is_one_line_that_names_it(options: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why) as caught:
        searchlens.compare(ONE, ONE, **options)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("base", [{1: ONE}, {"best": ONE}, {"any": ONE}, {"": ONE}])
def test_policies_of_base_have_names_of_their_own(base: dict[Any, Any]) -> None:
    with pytest.raises(InputError, match=r"base has policies: .* allowed: one or more names"):
        searchlens.compare(base, ONE, draws=100)


@pytest.mark.parametrize("samples", [0, 2.5, "2", True, [2, 2, 2], (2, 2, 2), {2: 2}, np.array([[2, 2]]), -1, 10**9])
def test_wrong_numbers_of_samples_are_refused(samples: Any) -> None:
    with pytest.raises(InputError, match="samples"):
        searchlens.compare([1, 0], [1, 0], samples=samples, draws=100)


WRONG = (
    *(None, "x", "", b"1", 3, -1, 0, 1.5, float("nan"), float("inf"), 10**30, True, 1j, object(), Fraction(1, 2)),
    *([], {}, (), set(), [[]], [None], [[None, 1]], ["a", "b"], [1, [2]], [[1], [2, 3], "x"], {"a": 1}, {1: ONE}),
    *(np.array([2, 0]), np.array(3), np.zeros((0, 2)), np.ones((2, 2, 2)), np.array(["a"]), np.array([[np.nan, 0]])),
    *(np.array([2**63], np.uint64), np.datetime64("2020"), pl.Series([1, 0]), pl.DataFrame({"a": [1]}), ONE, [1, 0]),
    *((ONE, ONE), ([1, 0], [0, 1]), (2, 2), (None, None), (ONE, None), [[True], [True, False]], range(2), iter([1])),
)
ARGUMENTS = ("base", "rl", "samples", "classes", "tokens", "choices", "wrong_key", "confidence", "draws", "seed")


@pytest.mark.long
def test_no_value_of_any_argument_is_another_error_than_input_error() -> None:
    """Some of these values are right in some places: then there is an answer, in JSON without NaN."""
    chosen = random.Random(7)
    right: dict[str, Any] = {"base": ONE, "rl": ONE, "draws": 100}
    trials = [{name: value} for name in ARGUMENTS for value in WRONG]
    trials += [{name: chosen.choice(WRONG) for name in chosen.sample(ARGUMENTS, 2)} for _ in range(300)]
    counted = [{"base": [1, 0], "rl": [1, 2], "samples": 2, **trial} for trial in trials]
    for trial in [*trials, *counted]:
        given = {**right, **trial}
        try:
            found = searchlens.compare(given.pop("base"), given.pop("rl"), **given)
        except InputError as error:
            assert "\n" not in error.message, trial
        else:
            json.dumps(found.to_dict(), allow_nan=False)


RAGGED = [[1, 0, 0], [0, 0, 0, 0, 1, 1], [1, 1, 1, 1], [0, 0, 0]]
FULL = [[1, 1, 0, 0], [0, 1, 1, 1], [1, 1, 1, 1], [0, 0, 0, 1]]


def test_ragged_answers_give_unbiased_curves_up_to_the_smallest_pool() -> None:
    found = searchlens.compare(RAGGED, FULL, draws=100)
    curve = found.pass_at_k.filter(side="Base").sort("k")
    assert curve["k"].to_list() == [1, 2]
    for k, value in curve.select("k", "value").iter_rows():
        by_hand = [1 - missed(len(row), [k])[sum(row), 0] for row in RAGGED]
        assert value == pytest.approx(np.mean(by_hand))
    assert found.base_samples == 3
    assert found.equivalents["pool"].unique().to_list() == [3]


def test_what_needs_equal_pools_says_why_it_is_not_identified() -> None:
    found = searchlens.compare(RAGGED, FULL, draws=100)
    said = {each.measure: each.can for each in found.statements}
    for measure in ("support", "reliability", "entropy", "extrapolation"):
        assert said[measure] == "not identified: questions have 3 to 6 samples.", measure
    for measure in ("pass@k", "budget equivalents", "second run", "variance"):
        assert not said[measure].startswith("not identified"), measure
    assert found.support.is_empty() and found.extrapolated.is_empty()
    assert not found.measures["measure"].str.contains("Cover|entropy").any()
    json.dumps(found.to_dict(), allow_nan=False)
    assert "questions have 3 to 6" in str(found) + found._repr_html_()


def test_counts_with_an_array_of_samples_are_ragged_answers() -> None:
    base, rl = ([sum(row) for row in side] for side in (RAGGED, FULL))
    drawn = np.array([len(row) for row in RAGGED])
    counted = searchlens.compare(base, rl, samples=(drawn, 4), draws=100).to_dict()
    assert counted == searchlens.compare(RAGGED, FULL, draws=100).to_dict()
    assert (
        searchlens.compare(rl, rl, samples=[4] * 4, draws=100).to_dict()
        == searchlens.compare(FULL, FULL, draws=100).to_dict()
    )


def test_ragged_pools_have_wrong_key_tokens_and_policies() -> None:
    wrong_key = [[0] * len(row) for row in RAGGED]
    wrong_key[0][1] = 1
    more: dict[str, Any] = {
        "wrong_key": (wrong_key, FULL),
        "tokens": ([[10] * len(row) for row in RAGGED], 5),
        "draws": 100,
    }
    found = searchlens.compare(RAGGED, FULL, **more)
    assert found.measures.filter(measure="wrong_key", side="Base", k=1)["value"].item() == pytest.approx(1 / 12)
    assert found.equivalents["token_ratio"][0] == pytest.approx(2 * found.equivalents["n"][0])
    of_first: dict[str, Any] = {"wrong_key": ({"a": FULL, "b": None}, FULL)}
    several = searchlens.compare({"a": FULL, "b": RAGGED}, FULL, draws=100, **of_first)
    assert several.measures.filter(measure="wrong_key", side="Base", k=4)["value"].item() == 1
    assert {each.measure: each.can for each in several.statements}["support"].startswith("RL keeps")
    with pytest.raises(InputError, match=r"wrong_key\[0\] has shape \(4, 4\); allowed: \(4, 3 to 6\)"):
        searchlens.compare(RAGGED, FULL, wrong_key=(FULL, FULL), draws=100)


# ---- a study

CELL = ("toy-base", "sums")
ODD = (3, None, 1.5, [], {}, "x", float("nan"), np.array([1, 2]), [[1]], b"x")


@pytest.fixture
def study(raw: Raw, tmp_path: Path) -> searchlens.Study:
    return searchlens.open(finish(raw, tmp_path))


@pytest.mark.parametrize("options", [{"results": 3}, {"results": None}, {"root": 3}, {"config": 3}])
def test_open_wants_paths(options: dict[str, Any], study: searchlens.Study) -> None:
    with pytest.raises(InputError, match=f"{next(iter(options))}: "):
        searchlens.open(**{"results": study.results, **options})


CALLS: tuple[Callable[[searchlens.Study, Any], Any], ...] = (
    lambda study, odd: study.question(odd, 0),
    lambda study, odd: study.question("sums", odd),
    lambda study, odd: study.questions(odd),
    lambda study, odd: study.withheld(odd),
    lambda study, odd: study.points(odd, odd),
    lambda study, odd: study.recovery(frame=odd),
    lambda study, odd: study.measures(odd),
    lambda study, odd: study.boptr(odd),
    lambda study, odd: study.table(odd),
    lambda study, odd: study.gaps(odd),
    lambda study, odd: study.samples(*CELL, odd),
    lambda study, odd: study.samples(*CELL, DEFAULT, odd),
    lambda study, odd: study.samples(odd, odd),
    lambda study, odd: study.prompts(*CELL, odd),
    lambda study, odd: study.prompts(odd, odd, [0]),
    lambda study, odd: study.traces(*CELL, odd),
    lambda study, odd: study.shards(odd, "sums"),
    lambda study, odd: study.streams("toy-base", odd),
    lambda study, odd: study.source(odd, odd),
    lambda study, odd: study.health(odd, odd),
    lambda study, odd: study.vocabulary(odd),
    lambda study, odd: study.asked(odd, odd),
)


def test_no_argument_of_a_study_is_another_error_than_input_error(study: searchlens.Study) -> None:
    for number, call in enumerate(CALLS):
        for odd in ODD:
            try:
                call(study, odd)
            except InputError:
                continue
            except Exception as error:
                raise AssertionError(f"call {number} of {odd!r}") from error


def test_an_extension_that_needs_a_missing_library_is_named(raw: Raw, tmp_path: Path, monkeypatch: Patch) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import shtab\n")
    monkeypatch.setitem(__import__("sys").modules, "shtab", None)
    with pytest.raises(InputError, match=r"extension .*mine.py: shtab is not installed here"):
        catalogue.import_named(str(path))
    path.with_name("other.py").write_text("import no_such_module\n")
    with pytest.raises(InputError, match=r"extension .*other.py: no module 'no_such_module'"):
        catalogue.import_named(str(path.with_name("other.py")))


def test_wrong_key_that_solves_everything_leaves_the_difference_open() -> None:
    found = searchlens.compare(FULL, FULL, wrong_key=(np.ones((4, 4), bool),) * 2, draws=100)
    said = {each.measure: each.can for each in found.statements}["wrong_key"]
    assert said.endswith("Without them, RL − Base is unknown.")
