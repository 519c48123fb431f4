"""Benchmark files: what is accepted, that every wrong row is named with its line, and every wrong gold."""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from conftest import Make, Patch, Raw, Said
from searchlens import benchmarks, catalogue
from searchlens.benchmarks import Question, digests
from searchlens.cli import tools as pin
from searchlens.cli.main import main
from searchlens.cli.study import listed, listing
from searchlens.config import check
from searchlens.errors import InputError
from searchlens.plan import needs
from test_benchmarks_known import CHOICE_LAYOUTS, configured, gpqa, read, written
from test_config import refusal

GOOD = {"id": "a", "question": "What is 1+1?", "gold": "2"}
OTHER = {"id": "b", "question": "What is 2+2?", "gold": "4", "tags": {"level": 1}}


def lines(*rows: object) -> str:
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sums.jsonl"


def test_rows_become_questions_in_file_order(path: Path) -> None:
    path.write_text(lines(GOOD, "", {**OTHER, "gold": "", "checks": {"count": {"n": 2}}}))
    assert benchmarks.read([path]).questions == (
        Question("a", "What is 1+1?", "2"),
        Question("b", "What is 2+2?", "", {"count": {"n": 2}}, {"level": 1}),
    )
    assert [question.id for question in benchmarks.read([path], limit=1).questions] == ["a"]


def test_written_questions_read_back_equal(path: Path) -> None:
    questions = (
        Question("é", "line\u2028break \\frac{1}{2}", "2"),
        Question("b", "?", "", {"first": {"word": "x"}}, {"k": 1}),
    )
    path.write_text(benchmarks.dumps(questions))
    assert benchmarks.read([path]).questions == questions


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("{", ":2: not JSON: Expecting property name enclosed in double quotes at column 2"),
        ("[1]", ":2: must be a JSON object, found list"),
        ('{"id": "b", "id": "c", "question": "?", "gold": "1"}', ":2: key 'id' occurs twice"),
        ('{"id": "b", "question": "?", "gold": NaN}', ":2: NaN is not JSON"),
        (
            '{"id": "b", "question": "\\ud800", "gold": "1"}',
            ":2: not JSON text: an escaped surrogate without its partner",
        ),
        ({"id": "b", "gold": "4"}, ":2: key 'question' is missing"),
        ({**OTHER, "answer": "4"}, ":2: key 'answer' is unknown"),
        ({**OTHER, "gold": 4}, ":2: 'gold' must be a string, found int"),
        ({**OTHER, "gold": ""}, ":2: 'gold' is empty and there are no checks"),
        ({**OTHER, "id": ""}, ":2: 'id' is empty"),
        ({**OTHER, "checks": {"count": 3}}, ":2: check 'count' must be an object of parameters"),
        ({**OTHER, "id": "a"}, ":2: id 'a' occurs already on line 1"),
        ({**OTHER, "question": GOOD["question"]}, ":2: the question occurs already on line 1"),
    ],
)
def test_a_wrong_row_is_named_with_its_line(path: Path, row: object, expected: str) -> None:
    path.write_text(lines(GOOD, row))
    with pytest.raises(InputError) as error:
        benchmarks.read([path])
    assert error.value.message == f"{path}{expected}"


def test_all_errors_come_at_once_the_first_ten_by_line(path: Path) -> None:
    path.write_text(lines(*({"id": f"q{i}"} for i in range(6))))
    with pytest.raises(InputError) as error:
        benchmarks.read([path])
    messages = error.value.message.split("\n")
    assert messages[:2] == [f"{path}:1: key 'question' is missing", f"{path}:1: key 'gold' is missing"]
    assert len(messages) == 11
    assert messages[-1] == "… and 2 more errors"


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"", "is empty"), (b"\n \n", "is empty"), (b'{"id": "a"}\n\xff\n', ":2: not UTF-8 text (byte 12)")],
)
def test_a_file_without_rows_or_text_is_refused(path: Path, content: bytes, expected: str) -> None:
    path.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(expected)):
        benchmarks.read([path])


def test_an_edited_file_is_refused_with_both_ways_out(path: Path) -> None:
    path.write_text(lines(GOOD, OTHER))
    declared = hashlib.sha256(path.read_bytes()).hexdigest()
    assert len(benchmarks.read([path], expected_sha256=declared).questions) == 2
    path.write_text(lines(GOOD))
    with pytest.raises(InputError) as error:
        benchmarks.read([path], expected_sha256=declared)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    assert error.value.message == f"benchmark file {path} changed: its sha256 is {sha256} (1 row), expected {declared}"
    assert "restore the file" in error.value.hint
    assert "declare the new sha256" in error.value.hint


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"limit": 2}, "has 1 question, 2 are asked for"),
        ({"family": "csv"}, r"family 'csv' is unknown. Known: aime, aime24, .*jsonl"),
    ],
)
def test_what_a_file_does_not_have_is_refused(path: Path, asked: dict[str, Any], says: str) -> None:
    path.write_text(lines(GOOD))
    with pytest.raises(InputError, match=says):
        benchmarks.read([path], **asked)


def test_the_content_hash_sees_content_and_order_but_not_layout(path: Path) -> None:
    path.write_text(lines(GOOD, OTHER))
    first = benchmarks.read([path]).questions
    path.write_text(lines(dict(reversed(GOOD.items())), "", OTHER))
    assert benchmarks.content_hash(benchmarks.read([path]).questions) == benchmarks.content_hash(first)
    changed = [first[::-1], first[:1], (replace(first[0], gold="3"), first[1]), (replace(first[0], text="?"), first[1])]
    assert len({benchmarks.content_hash(questions) for questions in (first, *changed)}) == 5


def test_a_corrected_gold_asks_the_same_questions() -> None:
    question = Question("a", "?", "2")
    assert benchmarks.asked_hash([question]) == benchmarks.asked_hash([replace(question, gold="3")])
    assert benchmarks.asked_hash([question]) != benchmarks.asked_hash([replace(question, text="??")])
    assert benchmarks.asked_hash([question]) != benchmarks.asked_hash([replace(question, id="b")])


# ---- Known benchmarks in a study: what the configuration accepts, and where the questions come from


ROOT = Path(__file__).parents[2]
COMMIT = "0123456789" * 4


def known(raw: Raw, family: str, **keys: object) -> dict[str, Any]:
    """The small study with its benchmark of a known family, unchecked because rows are few and made up."""
    spec = {key: value for key, value in raw["benchmarks"]["sums"].items() if key != "path"}
    raw["benchmarks"]["sums"] = {**spec, "family": family, "check": False, **keys}
    return raw


def test_own_questions_and_gated_ones_need_a_file(raw: Raw) -> None:
    assert "benchmarks.sums.path: needed; only a known benchmark" in refusal(known(raw, "jsonl"))
    assert "benchmarks.sums.path: needed; Idavidrein/gpqa is gated" in refusal(known(raw, "gpqa"))
    assert "benchmarks.sums.path: the list of files is empty" in refusal(known(raw, "math500", path=[]))
    check.validate(known(raw, "gpqa", path="my/gpqa_diamond.csv"))


def test_the_same_questions_in_another_layout_are_the_same_samples(raw: Raw, make_grid: Make, tmp_path: Path) -> None:
    """With a corrected gold, too: its samples stay, only grading is repeated."""
    rows = [(f"What is ${i}+1$?", str(i + 1)) for i in range(3)]
    layouts = {
        "harness.jsonl": "".join(json.dumps({"problem": q, "answer": a, "level": 1}) + "\n" for q, a in rows),
        "orz.json": json.dumps([{"prompt": [{"from": "user", "value": q}], "final_answer": a} for q, a in rows]),
        "corrected.json": json.dumps([{"prompt": q, "answer": "7"} for q, _ in rows]),
    }
    hashes = {}
    for name, content in layouts.items():
        (tmp_path / name).write_text(content)
        grid = make_grid(known(raw, "math500", path=name))
        hashes[name] = (
            [generation.id for generation in grid.jobs.generations("toy-base", "sums")],
            grid.inputs.content_hash("sums"),
        )
    assert hashes["harness.jsonl"][0] == hashes["orz.json"][0] == hashes["corrected.json"][0]
    assert hashes["orz.json"][1] != hashes["corrected.json"][1]


def test_the_two_years_of_aime_are_two_files_under_one_hash(raw: Raw, make_grid: Make, tmp_path: Path) -> None:
    for year in ("24", "25"):
        (tmp_path / f"{year}.jsonl").write_text(json.dumps({"problem": f"{year}?", "answer": "007"}) + "\n")
    both = (tmp_path / "24.jsonl").read_bytes() + (tmp_path / "25.jsonl").read_bytes()
    keys = {"path": ["24.jsonl", "25.jsonl"], "sha256": hashlib.sha256(both).hexdigest()}
    questions = make_grid(known(raw, "aime", **keys)).inputs.questions("sums")
    assert [(q.id, q.gold) for q in questions] == [("aime24-0001", "7"), ("aime25-0001", "7")]
    keys["path"] = ["25.jsonl", "24.jsonl"]
    with pytest.raises(InputError, match="changed: its sha256 is"):
        make_grid(known(raw, "aime", **keys)).inputs.questions("sums")


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: Patch) -> Callable[[str], Path]:
    """A hub cache, filled as the hub's own client fills it; gives the folder of a dataset's files."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))

    def snapshot(dataset: str) -> Path:
        repository = tmp_path / "hub" / f"datasets--{dataset.replace('/', '--')}"
        (repository / "refs").mkdir(parents=True)
        (repository / "refs" / "main").write_text(COMMIT)
        (repository / "snapshots" / COMMIT / "data").mkdir(parents=True)
        return repository / "snapshots" / COMMIT

    return snapshot


def test_questions_of_the_hub_are_read_at_the_pinned_commit(
    raw: Raw, make_grid: Make, hub_cache: Callable[[str], Path]
) -> None:
    folder = hub_cache("TIGER-Lab/MMLU-STEM")
    rows = [{"question": f"{i}?", "choices": ["a", "b", "c", "d"], "answer": i, "subject": "s"} for i in range(4)]
    path = folder / "data" / "test-00000-of-00001.parquet"
    parquet.write_table(pa.Table.from_pylist(rows), path)
    (folder / "data" / "dev-00000-of-00001.parquet").write_bytes(b"another split")
    grid = make_grid(known(raw, "mmlu_stem", grader="choice"))
    with pytest.raises(InputError, match="is not pinned"):
        grid.inputs.questions("sums")
    pin.pin(grid.inputs.lock, grid.inputs.dataset_sources("sums"), pin.Cache())
    grid = make_grid(raw)
    assert [question.gold for question in grid.inputs.questions("sums")] == ["A", "B", "C", "D"]
    (source,) = grid.inputs.dataset_sources("sums")
    assert list(grid.inputs.lock[source].files) == ["data/test-00000-of-00001.parquet"]
    parquet.write_table(pa.Table.from_pylist(rows[:3]), path)
    with pytest.raises(InputError, match="is not what was pinned"):
        make_grid(raw).inputs.questions("sums")


def test_check_and_the_plan_of_tables_name_questions_in_an_unknown_wording(
    raw: Raw, make_grid: Make, tmp_path: Path, monkeypatch: Patch, capsys: Said
) -> None:
    """Rows that nobody knows load under the name of a known benchmark, but not in silence."""
    rows = [{"question": f"Made-up question {i}?", "answer": i} for i in range(40)]
    path = tmp_path / "amc.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = "40 of 40 questions have wordings that are not known, so that their golds are not checked: question 1 (amc23"
    (notice,) = needs.tables(make_grid(known(raw, "amc23", path="amc.jsonl", check=True))).unknown_wordings
    assert notice.startswith(f"benchmarks.sums: {said}")
    assert needs.tables(make_grid(known(raw, "amc23", path="amc.jsonl", check=False))).unknown_wordings == ()
    monkeypatch.chdir(ROOT)
    study = tmp_path / "study.yaml"
    study.write_text(f"benchmarks: {{math: {{family: amc23, path: {path}, sha256: null, questions: null}}}}\n")
    assert main(["check", "--config", str(study)]) == 0
    assert f"benchmarks.math: {said}" in capsys.readouterr().out


# ---- golds by their digests


def test_another_count_names_the_known_ones_and_their_sources(tmp_path: Path) -> None:
    path = written(tmp_path, [CHOICE_LAYOUTS["letter"]])
    with pytest.raises(InputError) as error:
        benchmarks.read([path], family="mmlu_stem")
    assert f"{path} has 1 question; MMLU-STEM has 3153 (the hub" in error.value.message
    assert "; 3018 (Qwen2.5-Math and DeepSeek-Math" in error.value.message
    assert "check: false" in error.value.hint
    assert len(read(path, "mmlu_stem")) == 1


def amc(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [
        {"question": f"What is {i} and twice {i + 3} and one more, taken together?", "answer": float(3 * i + 7)}
        for i in range(start, start + count)
    ]


OWN = """
from searchlens.benchmarks import mathematics
from searchlens.catalogue import family

@family("own", title="OWN", grader="math", licence="CC0-1.0", sizes={40: "forty"})
def own(file):
    return mathematics.read(file, integer=True)

@family("repeating", title="OWN", grader="math", licence="CC0-1.0", sizes={40: "forty"}, repeats=True)
def repeating(file):
    return mathematics.read(file, integer=True)
"""
"""Families whose golds are known by files of ours."""


@pytest.fixture
def known_own(tmp_path: Path) -> Path:
    """A folder of digests of forty made-up questions."""
    (tmp_path / "own.py").write_text(OWN)
    catalogue.use(["own.py"], tmp_path)
    digests.main(["own", str(written(tmp_path, amc(40), "trusted.jsonl"))])
    return tmp_path / "golds"


def test_digests_of_the_longer_form_still_serve(tmp_path: Path, known_own: Path) -> None:
    """Twelve and eight digits, as files of extensions may have them."""
    (file,) = known_own.iterdir()
    file.write_text("".join(f"{line[:8]}0000 {line[9:13]}0000\n" for line in file.read_text().splitlines()))
    assert benchmarks.read([written(tmp_path, amc(40))], "own").checked == 40


def test_a_wrong_gold_is_named_by_its_question(tmp_path: Path, known_own: Path) -> None:
    assert benchmarks.read([written(tmp_path, amc(40))], "own").checked == 40
    rows = amc(40)
    rows[22]["answer"] = 480
    path = written(tmp_path, rows)
    with pytest.raises(InputError) as error:
        benchmarks.read([path], family="own")
    assert error.value.message == (f"{path}: 1 of 40 golds is not the known one:\n  question 23 (own-0023): gold '480'")
    assert read(path, "own")[22].gold == "480"


def test_a_question_that_is_there_twice_is_refused(tmp_path: Path, known_own: Path) -> None:
    """The number of rows is right and every gold is known, but a question is missing."""
    rows = amc(40)
    rows[39] = {**rows[0], "question": rows[0]["question"].replace(" ", "  ")}
    path = written(tmp_path, rows)
    with pytest.raises(InputError) as error:
        benchmarks.read([path], family="own")
    assert error.value.message == (
        f"{path}: question 40 repeats question 1 (own-0001); every question of OWN is there once"
    )
    assert "check: false" in error.value.hint
    assert len(read(path, "own")) == 40


def test_published_files_that_repeat_questions_must_have_them_all(tmp_path: Path, known_own: Path) -> None:
    rows = [*amc(39), amc(1)[0]]
    trusted = written(tmp_path, rows, "trusted.jsonl")
    digests.main(["repeating", str(trusted)])
    assert benchmarks.read([trusted], "repeating").checked == 40
    assert benchmarks.read([written(tmp_path, rows)], "repeating").checked == 40
    rows[5] = rows[6]
    with pytest.raises(InputError, match="1 questions of OWN are missing, and others repeat"):
        benchmarks.read([written(tmp_path, rows)], family="repeating")


def test_golds_are_known_whatever_the_order_spacing_and_layout(tmp_path: Path, known_own: Path) -> None:
    rows = [{"prompt": row["question"].replace(" ", " \n"), "answer": f"0{row['answer']:.0f}"} for row in amc(40)]
    assert benchmarks.read([written(tmp_path, rows[::-1])], "own").checked == 40


def test_an_unknown_wording_is_not_checked_until_it_is_learnt(tmp_path: Path, known_own: Path) -> None:
    """Another wording is matched by its words, and gets the trusted gold, not that of its own file."""
    rows = amc(40)
    rows[3] = {"question": "Say what 3 and twice 6 and one more make, taken together!", "answer": 480}
    path = written(tmp_path, rows)
    loaded = benchmarks.read([path], "own")
    assert (loaded.checked, loaded.unknown) == (39, (3,))
    digests.main(["own", str(tmp_path / "trusted.jsonl"), str(path)])
    with pytest.raises(InputError, match="question 4 "):
        benchmarks.read([path], family="own")


def test_questions_in_an_unknown_wording_are_named(tmp_path: Path, known_own: Path) -> None:
    """A corrected file loads, but nobody takes its golds for checked ones."""
    rows = amc(40)
    for place in (3, 7, 20, 30):
        rows[place] = {"question": f"Another wording of question {place}?", "answer": 480}
    path = written(tmp_path, rows)
    assert benchmarks.read([path], "own").notice == (
        "4 of 40 questions have wordings that are not known, so that their golds are not checked:"
        " question 4 (own-0004), question 8 (own-0008), question 21 (own-0021) and 1 more"
    )
    assert benchmarks.read([path], "own", limit=4).notice == (
        "1 of 4 questions has a wording that is not known, so that its gold is not checked: question 4 (own-0004)"
    )
    assert benchmarks.read([path], "own", limit=3).notice == ""
    assert benchmarks.read([path], "own", check=False).notice == ""
    spec = {"amc": configured("own")}
    assert "36 golds checked, content " in (text := listed(listing(spec, lambda _: [path])))
    assert "; 4 of 40 questions have wordings that are not known" in text


def test_a_family_of_which_nothing_is_known_has_no_notice(tmp_path: Path) -> None:
    rows = [{**gpqa(1)[0], "Question": f"{i}?"} for i in range(198)]
    assert benchmarks.read([written(tmp_path, rows)], "gpqa").notice == ""


def test_two_wordings_of_one_question_in_one_file_are_refused(tmp_path: Path, known_own: Path) -> None:
    """The number of rows is right, every wording and gold is known, but a question is missing."""
    other = {"question": "Say what 3 and twice 6 and one more make, taken together!", "answer": 16}
    wordings = written(tmp_path, [other], "other.jsonl")
    digests.main(["own", str(tmp_path / "trusted.jsonl"), str(wordings)])
    rows = amc(40)
    rows[39] = other
    with pytest.raises(InputError, match=r"question 40 repeats question 4 \(own-0004\); every question of OWN"):
        benchmarks.read([written(tmp_path, rows)], family="own")
    rows[39], rows[3] = amc(40)[39], other
    assert benchmarks.read([written(tmp_path, rows)], "own").checked == 40


def test_digests_keep_no_plain_row(known_own: Path) -> None:
    lines = (known_own / "own.txt").read_text().split("\n")
    assert len(lines) == 41
    assert all(len(line) == 13 and set(line) <= set("0123456789abcdef ") for line in lines[:-1])


def test_aime_is_two_years_of_thirty(tmp_path: Path) -> None:
    """Also as one file of sixty; one year alone is none of the paper's sixty."""
    years = [[{"problem": f"{year} {i}?", "answer": f"{i:03d}"} for i in range(30)] for year in (2024, 2025)]
    paths = [written(tmp_path, rows, f"{i}.jsonl") for i, rows in enumerate(years)]
    loaded = benchmarks.read(paths, "aime")
    ids = [loaded.questions[i].id for i in (0, 29, 30, 59)]
    assert ids == ["aime24-0001", "aime24-0030", "aime25-0001", "aime25-0030"]
    assert loaded.questions[5].gold == "5"
    assert len(benchmarks.read([written(tmp_path, years[0] + years[1], "both.json")], family="aime").questions) == 60
    with pytest.raises(InputError, match=r"has 30 questions; AIME has 60"):
        benchmarks.read(paths[:1], family="aime")


def test_the_listing_says_what_lies_where(tmp_path: Path, known_own: Path) -> None:
    def paths_of(name: str) -> list[Path]:
        if name == "math":
            raise InputError("dataset HuggingFaceH4/MATH-500@main is not pinned")
        if name == "few":
            return [written(tmp_path, amc(3), "few.jsonl")]
        return [tmp_path / f"{name}.jsonl"]

    written(tmp_path, amc(40), "amc.jsonl")
    written(tmp_path, [{"id": "a", "question": "?", "gold": "1"}], "mine.jsonl")
    families = {"amc": "own", "few": "own", "gone": "own", "mine": "jsonl", "math": "math500"}
    specs = {name: configured(family) for name, family in families.items()}
    lines = listed(listing(specs, paths_of)).split("\n")
    assert "amc.jsonl, 1 file: 40 questions (forty" in next(line for line in lines if "amc: " in line)
    assert any("amc: " in line and "40 golds checked, content " in line for line in lines)
    assert any("few: REFUSED: " in line and "OWN has 40" in line for line in lines)
    assert f"    gone: not here: {tmp_path}/gone.jsonl" in lines
    assert "    math: not here: dataset HuggingFaceH4/MATH-500@main is not pinned" in lines
    assert "    on the hub: Idavidrein/gpqa gpqa_diamond (train); gated, give your own file" in lines
    assert "mine.jsonl, 1 file: 1 question" in lines[-1]
