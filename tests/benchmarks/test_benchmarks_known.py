"""Known benchmarks: every layout gives the same questions, golds mean what they say, and what is wrong is named.

All rows here are made up. Real files are loaded where SEARCHLENS_BENCHMARKS names a folder that has them.
"""

import csv
import gzip
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from searchlens import benchmarks, catalogue, grading
from searchlens.benchmarks import HubSplit, Question, known, known_benchmark
from searchlens.benchmarks.mathematics import gold_text
from searchlens.cli.study import listed, listing
from searchlens.config.sampled import BenchmarkSpec
from searchlens.errors import InputError

Rows = Sequence[Mapping[str, Any]]

SUMS = [("What is $1+1$?", "2"), ("What is half of one?", r"\frac{1}{2}")]


def as_lines(path: Path, rows: Rows) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def as_csv(path: Path, rows: Rows) -> None:
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def written(folder: Path, rows: Rows, name: str = "rows.jsonl") -> Path:
    write = {
        ".jsonl": as_lines,
        ".json": lambda path, rows: path.write_text(json.dumps(rows, indent=1)),
        ".parquet": lambda path, rows: parquet.write_table(pa.Table.from_pylist(list(rows)), path),
        ".csv": as_csv,
    }
    write[Path(name).suffix](folder / name, rows)
    return folder / name


def configured(family: str) -> BenchmarkSpec:
    return BenchmarkSpec(family=family, grader="math", max_tokens=1)


def read(path: Path, family: str) -> tuple[Question, ...]:
    return benchmarks.read([path], family=family, check=False).questions


MATH_LAYOUTS: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "MATH-500": lambda q, a: {"problem": q, "solution": "So.", "answer": a, "subject": "Algebra", "level": 2},
    "Qwen harness": lambda q, a: {"id": 60, "problem": q, "solution": "", "answer": a, "url": "", "question": q},
    "boxed solution": lambda q, a: {"problem": q, "solution": rf"$\boxed{{7}}$, no: \boxed{{{a}}} m", "type": "T"},
    "evalchemy": lambda q, a: {"id": "x", "problem": q, "reference_solution": "So.", "expected_answer": a},
    "math-ai": lambda q, a: {"question": q, "answer": a},
    "OlympiadBench": lambda q, a: {"question": q, "final_answer": [f"${a}$"], "context": None, "solution": ["So."]},
    "Open-Reasoner-Zero": lambda q, a: {"prompt": [{"from": "user", "value": q}], "final_answer": a},
    "power sampling": lambda q, a: {"prompt": q, "answer": a, "source": "math", "id": "t/1"},
    "SimpleRL v0": lambda q, a: {"input": f"<s>{q}", "answer": "the way", "gt_answer": a, "question": q, "target": a},
    "SimpleRL-Zoo": lambda q, a: {
        "prompt": [{"role": "user", "content": f"<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n"}],
        "reward_model": {"style": "rule", "ground_truth": a},
        "extra_info": {"index": 3, "question": q, "answer": "the way"},
    },
    "verl, qwen prompt": lambda q, a: {
        "prompt": [
            {
                "role": "user",
                "content": "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
                f"{q}\nPlease reason step by step, and put your final answer within \\boxed{{}}.<|im_end|>\n"
                "<|im_start|>assistant\n",
            }
        ],
        "reward_model": {"ground_truth": a},
    },
    "verl, abel prompt": lambda q, a: {
        "prompt": [{"role": "user", "content": f"Question:\n{q}\nAnswer:\nLet's think step by step.\n"}],
        "reward_model": {"ground_truth": a},
    },
}


@pytest.mark.parametrize("suffix", ["jsonl", "json", "parquet"])
@pytest.mark.parametrize("layout", MATH_LAYOUTS)
def test_every_math_layout_asks_the_same(tmp_path: Path, layout: str, suffix: str) -> None:
    """The same questions in another layout or format are the same benchmark: nothing is sampled again."""
    path = written(tmp_path, [MATH_LAYOUTS[layout](q, a) for q, a in SUMS], f"rows.{suffix}")
    questions = read(path, "math500")
    found = [(q.id, q.text, q.gold) for q in questions]
    assert found == [("math500-0001", *SUMS[0]), ("math500-0002", *SUMS[1])]


def test_json_lines_under_the_suffix_json_are_read(tmp_path: Path) -> None:
    as_lines(tmp_path / "rows.json", [{"problem": "?", "answer": "1"}])
    assert read(tmp_path / "rows.json", "math500")[0].gold == "1"


CHOICES = ["red", "green", "blue", "grey"]
CHOICE_LAYOUTS: dict[str, dict[str, Any]] = {
    "position": {"question": "Sky?", "choices": CHOICES, "answer": 2, "subject": "art"},
    "digit": {"question": "Sky?", "choices": CHOICES, "answer": "2", "subject": "art"},
    "letter": {"question": "Sky?", "options": CHOICES, "answer": "C", "topic": "art", "id": 0},
    "few-shot": {"question": "Sky?", "choices": CHOICES, "answer": 2, "subject": "art", "input_formatted": "Q: A: Q:"},
}


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("layout", CHOICE_LAYOUTS)
def test_every_choice_layout_asks_the_same_in_the_published_order(tmp_path: Path, layout: str, suffix: str) -> None:
    question = read(written(tmp_path, [CHOICE_LAYOUTS[layout]], f"rows.{suffix}"), "mmlu_stem")[0]
    assert (question.text, question.gold) == ("Sky?\n\nA) red\nB) green\nC) blue\nD) grey", "C")
    assert question.tags["subject"] == "art"


def test_a_choice_that_pandas_lost_is_none(tmp_path: Path) -> None:
    row = {"question": "How many?", "options": [float("nan"), "One", "Two", "Three"], "answer": "A"}
    assert "A) None\n" in read(written(tmp_path, [row]), "mmlu_stem")[0].text


WORD_PROBLEMS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "behind the marks": ("gsm8k", {"question": "How many?", "answer": "1+1=<<1+1=2>>2\n#### 2"}, "How many?", "2"),
    "with commas": ("gsm8k", {"question": "How many?", "answer": "So.\n#### 1,234,000"}, "How many?", "1234000"),
    "two parts": (
        "svamp",
        {"ID": "chal-1", "Body": "Ann has 3. ", "Question": "How many?", "Answer": 3.0, "Type": "Sum"},
        "Ann has 3. How many?",
        "3",
    ),
    "a story without its stop": (
        "svamp",
        {"Body": "If Ann has 3", "Question": "how many?", "Answer": "-2.50"},
        "If Ann has 3, how many?",
        "-2.50",
    ),
    "placeholders": (
        "mawps",
        {"Question": "Ann has number1 , not number0 . How many ?", "Numbers": "0.25 3.0", "Answer": "12.0"},
        "Ann has 3, not 0.25. How many?",
        "12",
    ),
    "more than ten": (
        "mawps",
        {"Question": "number1 or number10 ?", "Numbers": " ".join(f"{i}.0" for i in range(11)), "Answer": "10"},
        "1 or 10?",
        "10",
    ),
}


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
@pytest.mark.parametrize("layout", WORD_PROBLEMS)
def test_word_problems_are_read_from_their_layouts(tmp_path: Path, layout: str, suffix: str) -> None:
    family, row, text, gold = WORD_PROBLEMS[layout]
    question = read(written(tmp_path, [row], f"rows.{suffix}"), family)[0]
    assert (question.id, question.text, question.gold) == (f"{family}-0001", text, gold)
    assert question.tags == ({"source_id": "chal-1", "subject": "Sum"} if "ID" in row else {})


@pytest.mark.parametrize(
    ("family", "row", "message"),
    [
        ("gsm8k", {"question": "How many?", "answer": "2"}, "row 1: no gold behind '####' in 'answer'"),
        ("gsm8k", {"question": "How many?", "answer": "#### two"}, "row 1: its gold is not a number"),
        ("svamp", {"Body": " ", "Question": " ", "Answer": 1.0}, "row 1: no question"),
        ("svamp", {"Body": "A", "Question": "B", "Answer": True}, "row 1: its gold is not a number"),
        ("mawps", {"Question": "number2 ?", "Numbers": "1.0 2.0", "Answer": "1"}, "row 1: no number2 in 'Numbers'"),
        ("mawps", {"Question": "number0 ?", "Numbers": "one", "Answer": "1"}, "row 1: no number0 in 'Numbers'"),
    ],
)
def test_a_word_problem_without_its_parts_is_named(
    tmp_path: Path, family: str, row: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as error:
        read(written(tmp_path, [row]), family)
    assert message in error.value.message


def test_ifeval_loses_nulls_and_keeps_an_instruction_that_occurs_twice(tmp_path: Path) -> None:
    own = {"key": 1, "prompt": "Write. ", "instruction_id_list": ["a:words", "a:words", "b:no"]}
    few = own | {"kwargs": [{"n": 3, "relation": "at least"}, {"n": 9, "relation": "less than"}, {}]}
    nulls = {"n": None, "relation": None, "words": None}
    given = [nulls | {"n": 3.0, "relation": "at least"}, nulls | {"n": 9.0, "relation": "less than"}, nulls]
    all_keys = own | {"kwargs": given}
    checks = {"instruction_id_list": ["a:words", "a:words", "b:no"], "kwargs": few["kwargs"]}
    expected = Question("ifeval-0001", "Write. ", "", {"ifeval": checks}, {"source_id": 1})
    for row, name in ((few, "rows.jsonl"), (all_keys, "rows.jsonl"), (all_keys, "rows.parquet")):
        assert read(written(tmp_path, [row], name), "ifeval") == (expected,)
    (tmp_path / "own.jsonl").write_text(benchmarks.dumps([expected]))
    assert benchmarks.read([tmp_path / "own.jsonl"]).questions == (expected,)


@pytest.mark.parametrize("family", ["math500", "mmlu_stem", "ifeval"])
def test_an_unknown_layout_lists_its_fields_and_the_known_layouts(tmp_path: Path, family: str) -> None:
    path = written(tmp_path, [{"stem": "?", "meta": {"key": 1}}])
    with pytest.raises(InputError) as error:
        read(path, family)
    assert "no known layout; its fields are stem, meta.key. Known layouts:" in error.value.message
    known = {"math500": "problem, answer (MATH-500;", "mmlu_stem": "Question, Correct Answer,", "ifeval": "kwargs"}
    assert known[family] in error.value.message


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.txt", b"?", "cannot read a file of type '.txt'"),
        ("a.parquet", b"nothing", "no sound Parquet file"),
        ("a.json", b"[1, 2]", "must be a list of JSON objects"),
        ("a.json", b"[{]", "not JSON: "),
        ("a.csv", b"question,answer\n", "has no rows"),
        ("a.csv", b"question\n\xff\n", "not UTF-8 text (byte 9)"),
        ("a.jsonl", b'{"problem": "?"}\nx\n', ":2: not JSON"),
        ("a.jsonl.gz", b"problem", "a.jsonl.gz is not a whole gzip file"),
        ("a.jsonl.gz", gzip.compress(b"problem", mtime=0)[:-4], "a.jsonl.gz is not a whole gzip file"),
        ("a.jsonl.gz", gzip.compress(b"x\n", mtime=0), ":1: not JSON"),
        ("a.txt.gz", gzip.compress(b"x\n", mtime=0), "cannot read a file of type '.gz'"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as error:
        read(tmp_path / name, "math500")
    assert expected in error.value.message


FIELDS = {
    "math500": ["problem", "answer", "context", "unit", "error", "is_multiple_answer", "level", "id"],
    "amc23": ["question", "answer", "extra_info", "reward_model"],
    "minerva": ["problem", "solution", "type"],
    "rltrain_hard": ["prompt", "reward_model", "extra_info"],
    "gpqa": ["Question", "Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3"],
    "mmlu_stem": ["question", "choices", "options", "answer", "subject"],
    "ifeval": ["prompt", "instruction_id_list", "kwargs", "key"],
}
INNER = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=6),
    st.sampled_from(["1e9", "\\boxed{2}", "C", "9" * 5000]),
)
ANYTHING = st.recursive(
    INNER,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["content", "value", "question", "ground_truth", "n"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), family=st.sampled_from(sorted(FIELDS)))
def test_whatever_stands_in_the_known_fields_is_read_or_refused(
    tmp_path: Path, data: st.DataObject, family: str
) -> None:
    """Nothing but an InputError leaves the loader, and what it lets pass can be asked and graded."""
    row = st.fixed_dictionaries(dict.fromkeys(FIELDS[family], ANYTHING))
    rows = data.draw(st.lists(row, min_size=1, max_size=3))
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    try:
        questions = read(tmp_path / "rows.json", family)
    except InputError:
        return
    assert all(isinstance(question.text, str) and question.text.strip() for question in questions)
    assert all(question.checks or (isinstance(question.gold, str) and question.gold) for question in questions)


@pytest.mark.parametrize("given", ["025", 25, 25.0, "25", " 25 ", "25.0"])
def test_integer_golds_lose_zeros_and_points(tmp_path: Path, given: object) -> None:
    path = written(tmp_path, [{"problem": "?", "answer": given}])
    assert [read(path, family)[0].gold for family in ("aime24", "amc23")] == ["25", "25"]


@pytest.mark.parametrize("given", ["", None, "25.5", r"\frac{1}{2}", True, "0x19"])
def test_a_gold_that_is_no_integer_is_refused(tmp_path: Path, given: object) -> None:
    path = written(tmp_path, [{"problem": "?", "answer": "1"}, {"problem": "?", "answer": given}])
    with pytest.raises(InputError, match="row 2: no integer gold in 'answer'"):
        read(path, "aime24")


@pytest.mark.parametrize(
    ("given", "options", "gold"),
    [
        (r"so \boxed{4.5e33} erg", {"boxed": True}, r"4.5 \times 10^{33}"),
        ("1e-05", {}, r"1 \times 10^{-5}"),
        ("np.arcsin(10/13)", {}, r"\arcsin(10/13)"),
        ("-3./2", {}, "-3/2"),
        (r"\boxed{2", {"boxed": True}, None),
        (r"no box", {"boxed": True}, None),
        (["$69$,$84$"], {"multiple": True}, "69, 84"),
        (["(1,2),(3, 4)"], {"multiple": True}, "(1,2), (3, 4)"),
        (["$[-1,0]$"], {}, "[-1,0]"),
        ([r"\$18.90"], {}, r"\$18.90"),
        (["72"], {}, "72"),
        (-1.0, {}, "-1"),
        (float("nan"), {}, None),
    ],
)
def test_golds_are_brought_into_readable_form(given: object, options: dict[str, bool], gold: str | None) -> None:
    assert gold_text(given, **options) == gold


def test_readable_golds_mean_to_the_grader_what_they_say() -> None:
    """Compared with numbers computed by hand. As written in the files, math-verify misreads the first three."""
    said = [("4.5e33", str(45 * 10**32)), ("1e-05", "0.00001"), ("-3./2", "-1.5"), ("$69$,$84$", "84, 69")]
    pairs = [
        grading.GradedPair(str(gold_text([gold], multiple="," in gold)), answer)
        for gold, answer in [*said, ("4.5e33", "4.5")]
    ]
    assert [verdict.correct for verdict in grading.grader("math").grade(pairs)] == [True] * 4 + [False]


def test_olympiad_units_and_tolerances_are_tags_and_contexts_are_part_of_the_question(tmp_path: Path) -> None:
    row = {"id": 7, "context": "Let $x=4$.", "question": "What is $x$?", "final_answer": ["$4$,$5$"], "unit": "cm"}
    row |= {"is_multiple_answer": True, "error": "1e-1", "answer_type": "Numerical", "subfield": "Algebra"}
    question = read(written(tmp_path, [row]), "olympiadbench")[0]
    assert (question.text, question.gold) == ("Let $x=4$.\nWhat is $x$?", "4, 5")
    tags = {"source_id": 7, "subject": "Algebra", "unit": "cm", "tolerance": "1e-1", "answer_type": "Numerical"}
    assert question.tags == tags | {"multiple": True}


def test_training_rows_without_a_gold_are_left_out_and_move_no_id(tmp_path: Path) -> None:
    rows = [{"question": f"{i}?", "gt_answer": "" if i == 1 else str(i)} for i in range(3)]
    path = written(tmp_path, rows)
    loaded = benchmarks.read([path], "rltrain_easy")
    assert sorted(question.id for question in loaded.questions) == ["rltrain_easy-0001", "rltrain_easy-0003"]
    assert loaded.rows == 3
    with pytest.raises(InputError, match="row 2: no gold in 'gt_answer'"):
        read(path, "math500")


def test_the_first_training_questions_are_a_fair_sample(tmp_path: Path) -> None:
    """Of a file that is sorted by source; the draw depends on the questions alone."""
    rows = [
        {"question": f"{'easy' if i < 500 else 'hard'} {i}?", "gt_answer": "1", "level": i // 500} for i in range(1000)
    ]
    first = benchmarks.read([written(tmp_path, rows)], family="rltrain_medium", check=False, limit=200).questions
    assert 65 < sum(question.tags["level"] for question in first) < 135  # 100 +- 5 standard deviations
    again = benchmarks.read([written(tmp_path, rows[::-1])], family="rltrain_medium", check=False, limit=200).questions
    assert [question.text for question in again] == [question.text for question in first]


SECRET = "zyzzyva"


def gpqa(count: int) -> list[dict[str, Any]]:
    """Made-up questions, which may be shown."""
    wrong = {f"Incorrect Answer {i}": f" {SECRET} wrong {i}" for i in (1, 2, 3)}
    return [
        {"Record ID": f"rec{i}", "Question": f"{SECRET} {i}?\n", "Correct Answer": f"{SECRET} right", **wrong}
        | {"Subdomain": "Art", "Canary String": "c"}
        for i in range(count)
    ]


def test_choices_are_permuted_and_the_gold_letter_follows(tmp_path: Path) -> None:
    questions = read(written(tmp_path, gpqa(400), "gpqa_diamond.csv"), "gpqa")
    for question in questions:
        shown = dict(line.split(") ", 1) for line in question.text.split("\n")[2:])
        assert shown[question.gold] == f"{SECRET} right"
        file_order = [f"{SECRET} right", *(f"{SECRET} wrong {i}" for i in (1, 2, 3))]
        assert [file_order[int(position)] for position in question.tags["order"]] == list(shown.values())
    letters = Counter(question.gold for question in questions)
    assert set(letters) == set("ABCD")
    assert all(60 < count < 140 for count in letters.values())  # 100 +- 4.6 standard deviations
    assert len({question.tags["order"] for question in questions}) == 24


def test_the_order_of_choices_depends_on_the_question_alone(tmp_path: Path) -> None:
    rows = gpqa(20)
    whole = {q.tags["source_id"]: (q.text, q.gold) for q in read(written(tmp_path, rows), "gpqa")}
    shuffled = random.Random(1).sample(rows, 10)
    assert all(
        whole[q.tags["source_id"]] == (q.text, q.gold)
        for q in read(written(tmp_path, shuffled, "other.parquet"), "gpqa")
    )


def test_no_error_quotes_a_row(tmp_path: Path) -> None:
    """GPQA's terms: a row that is wrong in any way is named by number, never shown."""
    good = gpqa(3)
    wrong: list[Rows] = [
        [*good, {**good[0], "Question": ""}],
        [*good, {**good[0], "Incorrect Answer 2": None}],
        [*good, {key: value for key, value in good[0].items() if key != "Correct Answer"}],
        [{"question": SECRET, "choices": CHOICES, "answer": SECRET}],
        [{"question": SECRET, "choices": [SECRET], "answer": 0}],
        [{"question": SECRET, "choices": SECRET, "answer": 0}],
        [{"Frage": SECRET, "Antwort": [SECRET]}],
    ]
    for rows in wrong:
        with pytest.raises(InputError) as error:
            read(written(tmp_path, rows), "gpqa")
        assert SECRET not in str(error.value)
    for content in (f'{{"Question": "{SECRET}', f'{{"Question": "{SECRET}", "Question": "{SECRET}"}}', f'["{SECRET}"]'):
        (tmp_path / "broken.jsonl").write_text(content)
        with pytest.raises(InputError) as error:
            read(tmp_path / "broken.jsonl", "gpqa")
        assert SECRET not in str(error.value)
    path = written(tmp_path, good)
    with pytest.raises(InputError, match="has 3 questions; GPQA-Diamond has 198") as error:
        benchmarks.read([path], family="gpqa")
    assert SECRET not in str(error.value)
    text = listed(listing({"gpqa": configured("gpqa")}, lambda _: [path]))
    assert "REFUSED" in text
    assert SECRET not in text


@pytest.mark.parametrize(
    ("names", "split", "expected"),
    [
        ("README.md test.jsonl", HubSplit("a/b"), "test.jsonl"),
        ("data/train-0-of-1.parquet data/test-0-of-1.parquet", HubSplit("a/b"), "data/test-0-of-1.parquet"),
        ("test-0-of-2.parquet test-1-of-2.parquet", HubSplit("a/b"), "test-0-of-2.parquet test-1-of-2.parquet"),
        ("test.jsonl test.parquet .cache/test.parquet", HubSplit("a/b"), "test.parquet"),
        ("gpqa_diamond.csv gpqa_main.csv", HubSplit("a/b", "train", "gpqa_diamond"), "gpqa_diamond.csv"),
        ("all/dev-0.parquet all/test-0.parquet b/test-0.parquet", HubSplit("a/b", "test", "all"), "all/test-0.parquet"),
        ("ifeval_input_data.jsonl dataset_infos.json", HubSplit("a/b", "train"), "ifeval_input_data.jsonl"),
        ("x/train.parquet x/test.parquet y/train.parquet", HubSplit("a/b", "train", "x"), "x/train.parquet"),
        ("part-I.jsonl part-II.jsonl", HubSplit("a/b"), "part-I.jsonl part-II.jsonl"),
    ],
)
def test_a_split_is_found_by_the_conventions_of_the_hub(names: str, split: HubSplit, expected: str) -> None:
    assert known.select(names.split(), split) == expected.split()


def test_a_split_that_is_not_there_is_refused_with_what_is() -> None:
    with pytest.raises(InputError, match=r"no file of split 'test' of all among: all/train\.parquet"):
        known.select(["all/train.parquet", "README.md"], HubSplit("a/b", "test", "all"))


def test_a_folder_in_the_layout_of_the_hub_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "math500"
    (folder / "data").mkdir(parents=True)
    (folder / "README.md").write_text("about")
    for i, (question, gold) in enumerate(SUMS):
        written(folder / "data", [{"problem": question, "answer": gold}], f"test-{i:05d}-of-00002.parquet")
    written(folder / "data", [{"problem": "not this", "answer": "0"}], "train-00000-of-00001.parquet")
    found = [(q.id, q.gold) for q in read(folder, "math500")]
    assert found == [("math500-0001", SUMS[0][1]), ("math500-0002", SUMS[1][1])]


@pytest.mark.parametrize("name", catalogue.declared("family"))
def test_a_family_names_only_what_there_is(name: str) -> None:
    known = known_benchmark(name)
    assert callable(catalogue.find("family", name))
    assert known.grader in catalogue.declared("grader")
    assert known.regime in ("math", "nonmath", "floor")
    assert all(part in catalogue.declared("family") for part in known.parts)
    assert (known.hub == "") == bool(known.parts or known.name == "mawps")  # on the hub in other layouts
    described = (Path(__file__).parents[2] / "docs" / "artifacts.md").read_text().partition("### One by one")[2]
    of = known.title.replace("-Diamond", "").split()[0]
    assert f"**{'rltrain' if name.startswith('rltrain') else of}" in described


REAL = os.environ.get("SEARCHLENS_BENCHMARKS", "")
FILES = {
    "math500.jsonl": ("math500", 500),
    "aime24.jsonl": ("aime24", 30),
    "aime25.jsonl": ("aime25", 30),
    "amc23.jsonl": ("amc23", 40),
    "minerva_math.jsonl": ("minerva", 272),
    "olympiadbench.jsonl": ("olympiadbench", 675),
    "ifeval.jsonl": ("ifeval", 541),
    "mmlu_stem.jsonl": ("mmlu_stem", 3018),
    "gpqa_diamond.csv": ("gpqa", 198),
    "tinymmlu.parquet": ("tinymmlu", 100),
    "variants/math500_orz.json": ("math500", 500),
    "variants/math500_powersampling.json": ("math500", 500),
    "variants/aime24_evalchemy.jsonl": ("aime24", 30),
    "variants/aime25_mcd.jsonl": ("aime25", 30),
    "variants/amc23_evalchemy.jsonl": ("amc23", 40),
    "variants/mmlu_stem_deepseek.jsonl": ("mmlu_stem", 3018),
    "gsm8k_test.jsonl": ("gsm8k", 1319),
    "svamp.json": ("svamp", 1000),
    "mawps_fold0_dev.csv": ("mawps", 384),
    "mawps_fold0_train.csv": ("mawps", 1537),
}
"""Real files to family and number of questions."""

WITHOUT_CHECK = {"rltrain_simplerl_hard_sample.jsonl": ("rltrain_hard", 18)}
"""A sample of a larger file."""

NO_FAMILY = {"gsm8k_train.jsonl"}
"""Training questions, which are no benchmark."""


def real(name: str) -> Path:
    if not REAL:
        pytest.skip("SEARCHLENS_BENCHMARKS names no folder of real benchmark files")
    if not (Path(REAL) / name).exists():
        pytest.skip(f"{name} is not in SEARCHLENS_BENCHMARKS")
    return Path(REAL) / name


@pytest.mark.parametrize("name", FILES)
def test_a_real_file_loads_with_its_count_and_known_golds(name: str) -> None:
    family, count = FILES[name]
    loaded = benchmarks.read([real(name)], family)
    assert len(loaded.questions) == loaded.rows == count
    assert loaded.source
    assert loaded.checked == (count if known.known_golds(family) else 0)


@pytest.mark.parametrize("name", WITHOUT_CHECK)
def test_a_real_sample_loads_without_the_check(name: str) -> None:
    family, count = WITHOUT_CHECK[name]
    questions = read(real(name), family)
    assert len(questions) == count
    assert not any("<|im_start|>" in question.text for question in questions)
    with pytest.raises(InputError, match=r"has 18 questions; .* has 8523"):
        benchmarks.read([real(name)], family=family)


def test_the_real_wrong_gold_is_noticed() -> None:
    with pytest.raises(InputError, match=r"1 of 30 golds is not the known one:\n  question 23 .*'480'"):
        benchmarks.read([real("variants/aime24_orz.json")], family="aime24")


def test_every_real_file_is_covered() -> None:
    """A file that nothing here loads would pass unnoticed."""
    real("math500.jsonl")
    there = {path.relative_to(REAL).as_posix() for path in Path(REAL).rglob("*") if path.suffix in (".json", ".jsonl")}
    assert there <= {*FILES, *WITHOUT_CHECK, *NO_FAMILY, "variants/aime24_orz.json"}
