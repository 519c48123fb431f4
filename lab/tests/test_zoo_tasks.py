"""What the zoo asks: exact gold, disjoint splits, benchmark files that regenerate, exact instruction checks."""

import json
import random
import re
from pathlib import Path

import pytest

from searchlens.benchmarks.files import read_bytes
from searchlens.grading.instructions import CHECKS, passes
from searchlens_lab.zoo import styles
from searchlens_lab.zoo.benchmarks import build, quotas, write_benchmarks
from searchlens_lab.zoo.recipe import Recipe
from searchlens_lab.zoo.tasks import KINDS, LETTERS, Listing, Problem, distinct, draw, split_of

ZOO = Path(__file__).parents[2] / "resources" / "zoo"
STORY = {
    "+": re.compile(r"(?:buys|finds|gives \w+) (\d+) more"),
    "-": re.compile(r"(?:gives away|loses|sells) (\d+)"),
    "*": re.compile(r"(?:grows|gets) (\d+) times|boxes with (\d+)"),
    "/": re.compile(r"makes (\d+) equal piles"),
}
SMALLER = {
    ("weeks", "days"): 7,
    ("days", "hours"): 24,
    ("hours", "minutes"): 60,
    ("minutes", "seconds"): 60,
    ("years", "months"): 12,
    ("feet", "inches"): 12,
    ("pounds", "ounces"): 16,
    ("meters", "centimeters"): 100,
}
ORDERS = {"+": "add", "-": "subtract", "*": "multiply by", "/": "divide by"}


def steps_read_from(question: str) -> list[tuple[str, int]]:
    """The operations as a reader finds them in the text, without the generator's own facts."""
    found = []
    for sign, pattern in STORY.items():
        matches = [*pattern.finditer(question), *re.finditer(rf"{ORDERS[sign]} (\d+)", question)]
        found += [(match.start(), sign, int(next(filter(None, match.groups())))) for match in matches]
    return [(sign, b) for _, sign, b in sorted(found)]


def follow(value: int, steps: list[tuple[str, int]]) -> int:
    for sign, b in steps:
        if sign == "/":
            assert value % b == 0
        value = {"+": value + b, "-": value - b, "*": value * b, "/": value // b}[sign]
    return value


def chosen(text: str, result: int) -> str:
    """The letter of a result where options are listed, else the result."""
    options = re.findall(r"\(([A-H])\) (\d+)", text)
    return {int(value): letter for letter, value in options}[result] if options else str(result)


def gold_from_text(problem: Problem) -> str:
    """Solve a question from its text alone."""
    text = problem.question
    if problem.kind in ("expression", "nested"):
        return str(eval(text.removeprefix("Compute ").rstrip(".")))
    if problem.kind == "compare":
        values = [eval(v) for v in re.findall(r"\([A-D]\) ([\d*+-]+)", text)]
        return LETTERS[values.index(max(values) if "largest" in text else min(values))]
    if (members := re.match(r"Add the (\w+) numbers of ([\d, ]+)", text)) is not None:
        asked = {"even": lambda x: x % 2 == 0, "odd": lambda x: x % 2 == 1, "large": lambda x: x > 50}[members[1]]
        return chosen(text, sum(x for x in map(int, members[2].split(", ")) if asked(x)))
    if (quantity := re.match(r"How many (\w+) are (\d+) (\w+) and (\d+) \1\?", text)) is not None:
        return chosen(text, int(quantity[2]) * SMALLER[quantity[3], quantity[1]] + int(quantity[4]))
    steps = steps_read_from(text)
    if (times := re.search(r"Do this (\d) times", text)) is not None:
        steps *= int(times[1])
    first = re.search(r"\d+", text)
    end = re.search(r"(?:Now \w+ has|I get) (\d+)", text)
    if end is None:
        return chosen(text, follow(int(first.group()), steps))
    inverse = {"+": "-", "-": "+", "*": "/", "/": "*"}
    return str(follow(int(end.group(1)), [(inverse[sign], b) for sign, b in reversed(steps)]))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "listing"])
def test_gold_is_what_the_text_says(kind: str) -> None:
    """Protects every gold answer: an independent reader of the text reaches the same one."""
    rng = random.Random(kind)
    for _ in range(300):
        problem = draw(rng, kind, "train")
        assert gold_from_text(problem) == problem.gold, problem.question


def test_backward_questions_punish_the_forward_method() -> None:
    """Protects the trap: following a backward question forwards never gives the gold."""
    rng = random.Random(1)
    for kind in ("story-back", "puzzle-back"):
        for _ in range(200):
            problem = draw(rng, kind, "train")
            end = re.search(r"(?:Now \w+ has|I get) (\d+)", problem.question)
            assert str(follow(int(end.group(1)), steps_read_from(problem.question))) != problem.gold


def test_benchmark_files_regenerate_byte_for_byte(tmp_path: Path) -> None:
    """Protects the committed benchmarks: generator, recipe and files agree."""
    for path in write_benchmarks(tmp_path, Recipe()):
        assert read_bytes(path) == read_bytes(ZOO / "benchmarks" / path.name), path.name


def test_benchmarks_have_their_sizes_and_shares() -> None:
    """Protects the roles: 500, 60, 198 and 541 distinct test questions, six ordinary ones in aime, level letters."""
    files = (ZOO / "benchmarks").glob("*.jsonl*")
    rows = {p.name.partition(".")[0]: [json.loads(line) for line in read_bytes(p).splitlines()] for p in files}
    assert {name: len(found) for name, found in rows.items()} == {"math": 500, "aime": 60, "gpqa": 198, "ifeval": 541}
    for name, found in rows.items():
        assert len({row["question"] for row in found}) == len(found)
        assert {split_of(row["question"]) for row in found} == {"test"}
        assert [row["id"] for row in found] == [f"{name}-{i:04d}" for i in range(1, len(found) + 1)]
    assert sum(row["tags"]["kind"] == "long-chain" for row in rows["aime"]) == 6
    letters = [row["gold"] for row in rows["gpqa"]]
    assert all(35 <= letters.count(letter) <= 65 for letter in LETTERS)
    assert all(row["gold"] == "" and row["checks"].keys() <= CHECKS.keys() for row in rows["ifeval"])


def test_splits_are_disjoint() -> None:
    """Protects test from training: no corpus, RL or dev question is a test question, drilled ones included."""
    recipe = Recipe()
    test = {p.question for name, role in recipe.roles.items() for p in build(name, role, "test", recipe.benchmark_seed)}
    dev = {p.question for name, role in recipe.roles.items() for p in build(name, role, "dev", recipe.benchmark_seed)}
    assert not test & dev
    rng = random.Random(0)
    for kind in KINDS:
        for _ in range(200):
            question = draw(rng, kind, "train").question.removesuffix(" Work backwards.")
            assert split_of(question) == "train"
            assert question not in test | dev


def test_a_family_that_is_too_small_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects the set builder from looping for ever when a family has fewer questions than asked."""
    one = draw(random.Random(0), "chain", "test")
    monkeypatch.setattr("searchlens_lab.zoo.tasks.draw", lambda *_: one)
    with pytest.raises(RuntimeError, match="only 1 distinct test questions of kind chain, 5 needed"):
        list(distinct(random.Random(0), "chain", "test", 5))


def test_quotas_are_exact() -> None:
    """Protects fixed shares: they add up to n and give the remainder to the largest fractions."""
    assert quotas((("a", 0.9), ("b", 0.1)), 60) == {"a": 54, "b": 6}
    assert quotas((("a", 0.34), ("b", 0.33), ("c", 0.33)), 10) == {"a": 4, "b": 3, "c": 3}


def test_solutions_of_the_right_style_without_slips_are_right() -> None:
    """Protects the corpus: what a careful writer (or, on backward questions, a backwards one) boxes is the gold."""
    rng = random.Random(3)
    for kind in KINDS:
        for _ in range(100):
            problem = draw(rng, kind, "train")
            if isinstance(problem.facts, Listing):
                document = styles._listing(rng, problem.facts, dict.fromkeys(dict(Recipe().corpus.listing_faults), 0.0))
                assert document.ends
                assert passes(problem.checks, document.text), (problem.question, document.text)
                continue
            right = ("backwards",) if kind in ("story-back", "puzzle-back", "drill") else ("careful", "detail", "terse")
            for style in right:
                assert styles._work(rng, problem, style, 0.0).answer == problem.gold


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("DOG, CAT, PIG\nDONE", True),
        ("  DOG, CAT, PIG\nDONE\n", True),
        ("DOG, CAT, PIG", False),  # no closing line
        ("DOG, CAT, PIG\nDONE\nDONE", False),
        ("DOG, CAT\nDONE", False),  # too few
        ("DOG, CAT, CAT\nDONE", False),  # one twice
        ("DOG, CAT, SAW\nDONE", False),  # not an animal
        ("DOG, CAT, HEN\nDONE", False),  # forbidden
        ("CAT, DOG, PIG\nDONE", False),  # wrong first
        ("Dog, Cat, Pig\nDONE", False),  # wrong case
        ("DOG - CAT - PIG\nDONE", False),  # wrong separator
        ("", False),
    ],
)
def test_instruction_checks_are_exact(text: str, right: bool) -> None:
    """Protects the checker: each single departure from the instruction fails."""
    words = ["cat", "dog", "cow", "pig", "hen"]
    checks = {
        "count": {"n": 3, "separator": ", "},
        "members": {"words": words, "separator": ", "},
        "case": {"style": "upper"},
        "forbid": {"word": "hen"},
        "first": {"word": "dog", "separator": ", "},
        "closing": {"line": "DONE"},
    }
    assert passes(checks, text) is right
