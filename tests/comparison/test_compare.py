"""`searchlens compare`: log files of two sides to all measures, without a configuration and without leaving files."""

import json
import re
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

import searchlens
from searchlens.benchmarks import Question
from searchlens.cli.main import main
from searchlens.cli.samples import rendered
from searchlens.comparison import LogComparison, Wishes, compare_logs, page
from searchlens.comparison.sections import sections
from searchlens.errors import InputError

# Right samples of each question, of four.
BASE = (4, 1, 0, 2, 0)
RL = (4, 3, 2, 2, 0)
HOSTILE = "<script src=https://evil.example/x.js></script><img src=x onerror=alert(1)> \x1b[2J\u202e"


def answer_text(gold: str, wrong: str, right: bool, sample: int) -> str:
    return f"Thinking, take {sample} {HOSTILE}. The answer is \\boxed{{{gold if right else wrong}}}."


def questions(count: int) -> list[dict[str, str]]:
    return [{"id": f"q{i}", "text": f"Compute {i} + {i + 3}.", "gold": str(2 * i + 3)} for i in range(count)]


def samples_of(right: tuple[int, ...], size: int = 4) -> list[list[str]]:
    asked = questions(len(right))
    return [
        [answer_text(q["gold"], str(90 + s), s < n, s) for s in range(size)] for q, n in zip(asked, right, strict=True)
    ]


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path.parent


def read_rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]


def own(folder: Path, right: tuple[int, ...], size: int = 4, **more: Any) -> Path:
    """Rows of the project's own format."""
    rows = [
        {
            "question": q["id"],
            "sample": s,
            "text": text,
            "gold": q["gold"],
            "prompt": q["text"],
            "finish": "stop",
            **more,
        }
        for q, texts in zip(questions(len(right)), samples_of(right, size), strict=True)
        for s, text in enumerate(texts)
    ]
    return write_rows(folder / "rows.jsonl", rows)


def lm_eval(folder: Path, right: tuple[int, ...], size: int = 4, task: str = "sums", limit: int = 64) -> Path:
    """A folder as lm-evaluation-harness writes it: other ids, and the question in a template."""
    rows = []
    for i, (q, texts) in enumerate(zip(questions(len(right)), samples_of(right, size), strict=True)):
        asked = {"temperature": 1.0, "top_p": 1.0, "do_sample": True, "max_gen_toks": limit}
        request = {"arg_0": f"Q: {q['text']}\nA:", "arg_1": asked}
        doc = {"question": q["text"], "answer": q["gold"]}
        row = {"doc_id": i, "doc": doc, "target": q["gold"], "arguments": {"gen_args_0": request}, "resps": [texts]}
        rows.append({**row, "filtered_resps": texts[:1], "filter": "none", "metrics": []})
    return write_rows(folder / f"samples_{task}_2026-01-01T00-00-00.000000.jsonl", rows)


def compared(base: Path, rl: Path, **wishes: Any) -> LogComparison:
    return compare_logs([base], [rl], Wishes(draws=200, **wishes))


def numbers(found: LogComparison) -> dict[str, Any]:
    return found.comparison.to_dict()


@pytest.fixture(autouse=True)
def no_second_judge(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """math-verify takes seconds to start, and one test looks at what it says."""
    if request.function is not test_numbers_are_those_of_the_texts:
        monkeypatch.setattr("searchlens.comparison.judging.TEXTS", 0)


def value(found: LogComparison, measure: str, side: str, k: int) -> float:
    return found.comparison.measures.filter(measure=measure, side=side, k=k)["value"].item()


def test_numbers_are_those_of_the_texts(tmp_path: Path) -> None:
    """pass@k, support, wrong_key and both graders against counts that were made by hand."""
    found = compared(lm_eval(tmp_path / "base", BASE), lm_eval(tmp_path / "rl", RL))
    assert found.grader == "math"
    assert value(found, "pass@k", "Base", 1) == pytest.approx(sum(BASE) / 20)
    assert value(found, "pass@k", "RL", 4) == pytest.approx(4 / 5)
    support = found.comparison.support.row(0, named=True)
    assert (support["kept"], support["shrunk"], support["expanded"], support["out"]) == (3, 0, 1, 1)
    words = [row[0] for section in sections(found) for row in section.rows]
    assert "expanded: RL alone (each by Base with a chance from 0 to 53%)" in words  # 1 - 0.05 ** (1 / 4)
    assert value(found, "wrong_key", "Base", 4) == 0
    agreeing = found.agreeing.to_dicts()
    assert [(row["side"], row["grader"], row["compared"], row["share"]) for row in agreeing] == [
        ("Base", "math-verify alone", 20, 1.0),
        ("RL", "math-verify alone", 20, 1.0),
    ]
    assert found.sides[0].counts["answered"] == 20


def test_questions_may_keep_unequal_numbers_of_samples(tmp_path: Path) -> None:
    """As in Python: curves are of all samples, and what needs equal numbers is not identified, in place of tables."""
    base, rl = own(tmp_path / "base", BASE), own(tmp_path / "rl", RL)
    rows = (base / "rows.jsonl").read_text().splitlines(keepends=True)
    (base / "rows.jsonl").write_text("".join([rows[0], *rows[2:5], *rows[6:]]))  # q0: 3 of 3, q1: 1 of 3
    with pytest.raises(InputError, match="every question needs samples 0 to 3"):
        compared(base, rl)
    found = compared(base, rl, failed="unequal")
    right = [[s < n for s in range(size)] for n, size in zip((3, 1, 0, 2, 0), (3, 3, 4, 4, 4), strict=True)]
    given = searchlens.compare(right, [[s < n for s in range(4)] for n in RL], draws=200)
    assert found.comparison.pass_at_k.equals(given.pass_at_k)
    assert value(found, "pass@k", "Base", 1) == pytest.approx((1 + 1 / 3 + 1 / 2) / 5)
    assert found.comparison.support.is_empty()
    text = rendered(found, 100)
    assert "support (questions have 3 to 4 samples)" in " ".join(text.split())
    assert "note: Base: questions have unequal numbers of samples that did not fail, 3 or more" in text
    titles = [section.title for section in sections(found)]
    assert titles[1:] == ["pass@k", "Budget equivalents", "Corrected for guessing", "Other graders on the same samples"]
    assert "Support: questions" not in page(found)


def test_two_formats_of_the_same_texts_give_equal_measures(tmp_path: Path) -> None:
    ours = compared(own(tmp_path / "a/base", BASE), own(tmp_path / "a/rl", RL))
    theirs = compared(lm_eval(tmp_path / "b/base", BASE), lm_eval(tmp_path / "b/rl", RL))
    mixed = compared(own(tmp_path / "c/base", BASE), lm_eval(tmp_path / "c/rl", RL))
    assert numbers(ours)["measures"] == numbers(theirs)["measures"] == numbers(mixed)["measures"]
    assert numbers(ours)["support"] == numbers(mixed)["support"]
    assert mixed.common.how == {"text": 5}


def test_results_do_not_depend_on_the_number_of_processes(tmp_path: Path) -> None:
    base, rl = own(tmp_path / "base", BASE), own(tmp_path / "rl", RL)
    assert compared(base, rl, workers=1).to_dict() == compared(base, rl, workers=2).to_dict()


def test_questions_of_one_side_alone_are_left_out_and_counted(tmp_path: Path) -> None:
    found = compared(own(tmp_path / "base", BASE), own(tmp_path / "rl", RL[:3]))
    assert len(found.common) == 3
    assert found.common.only_base == ("q3", "q4")
    assert "only Base has samples of 2 questions, left out: q3, q4" in found.notes
    assert value(found, "pass@k", "Base", 1) == pytest.approx(sum(BASE[:3]) / 12)


def test_questions_with_other_golds_are_left_out_and_named(tmp_path: Path) -> None:
    rl = own(tmp_path / "rl", RL)
    rows = read_rows(rl)
    changed = [{**row, "gold": "77"} if row["question"] == "q1" else row for row in rows]
    write_rows(rl / "rows.jsonl", changed)
    found = compared(own(tmp_path / "base", BASE), rl)
    assert found.common.other_golds == ("q1",)
    assert len(found.common) == 4


def test_choices_in_another_order_are_the_same_question(tmp_path: Path) -> None:
    """Each side is judged by its own letters; golds that look different are compared as choices."""
    text = "Which is even?\n\nA) {}\nB) {}"
    for name, order, gold in (("base", ("3", "4"), "B"), ("rl", ("4", "3"), "A")):
        folder = tmp_path / name
        rows = [
            {
                "question": f"{name}-{i}",
                "sample": s,
                "text": rf"\boxed{{{gold}}}",
                "gold": gold,
                "prompt": f"{i}. {text.format(*order)}",
            }
            for i in range(2)
            for s in range(2)
        ]
        write_rows(folder / "rows.jsonl", rows)
    found = compared(tmp_path / "base", tmp_path / "rl")
    assert found.grader == "choice"
    assert len(found.common) == 2
    assert value(found, "pass@k", "RL", 1) == 1
    assert value(found, "guess null", "Base", 1) == 0.5


def gpqa(folder: Path, right: int, first: int, gold: str = "({})", task: str = "physics") -> Path:
    """A log as lm-evaluation-harness writes it of GPQA: golds in brackets, and each side has its own order."""
    rows = []
    for i in range(6):
        options = [f"{i + 20 * n} {unit}" for n, unit in enumerate(("joule", "watt", "volt", "ohm"))]
        options = options[first:] + options[:first]
        letter, wrong = "ABCD"[-first % 4], "ABCD"[(1 - first) % 4]
        doc = {"Question": f"Which quantity has number {i}?", "choices": options, "answer": gold.format(letter)}
        texts = [f"Take {s}: the answer is ({letter if s < right else wrong})." for s in range(4)]
        lines = "\n".join(f"({mark}) {option}" for mark, option in zip("ABCD", options, strict=True))
        request = {"arg_0": f"Question: {doc['Question']}\nChoices:\n{lines}", "arg_1": {"temperature": 1.0}}
        row = {"doc_id": i, "doc": doc, "target": doc["answer"], "arguments": {"gen_args_0": request}}
        rows.append({**row, "resps": [texts], "filtered_resps": texts[:1], "filter": "none", "metrics": []})
    return write_rows(folder / f"samples_{task}_2026-01-01T00-00-00.000000.jsonl", rows)


@pytest.mark.parametrize("gold", ["({})", "{})", "**{}**", "Option {}", r"\boxed{{\text{{({})}}}}"])
@pytest.mark.parametrize("first", [0, 3])
def test_golds_of_choice_are_letters_whatever_stands_around_them(tmp_path: Path, gold: str, first: int) -> None:
    """Also with the options in another order on each side."""
    found = compared(gpqa(tmp_path / "base", 1, 1, gold), gpqa(tmp_path / "rl", 3, first, gold))
    assert (found.grader, len(found.common)) == ("choice", 6)
    assert [value(found, "pass@k", side, 1) for side in ("Base", "RL")] == [0.25, 0.75]
    assert value(found, "guess null", "Base", 1) == 0.25


@pytest.mark.parametrize(
    ("golds", "grader"),
    [(["a", "b"], "math"), (["A", "7"], "math"), (["A and B", "C"], "math"), (["(A)", "C."], "choice")],
)
def test_golds_choose_the_grader(tmp_path: Path, golds: list[str], grader: str) -> None:
    rows = [{"question": f"q{i}", "sample": 0, "text": r"\boxed{C}", "gold": gold} for i, gold in enumerate(golds)]
    write_rows(tmp_path / "rows.jsonl", rows)
    assert compared(tmp_path / "rows.jsonl", tmp_path / "rows.jsonl").grader == grader


def test_two_sides_that_solve_nothing_say_so_with_a_text_and_its_gold(tmp_path: Path) -> None:
    found = compared(gpqa(tmp_path / "base", 0, 0), gpqa(tmp_path / "rl", 0, 1))
    assert {side.health.reason for side in found.sides} == {"neither side solves any of 6 questions (golds? grader?)"}
    assert {side.health.level for side in found.sides} == {"not interpretable"}
    assert rendered(found, 80).startswith("not interpretable. Base: ")
    assert "RL: temp_1.0, question 0, sample 0, finish unknown: 'Take 0: the answer is (A).', gold 'D'" in found.notes
    named = compared(gpqa(tmp_path / "a", 0, 0, task="gpqa"), gpqa(tmp_path / "b", 0, 1, task="gpqa"))
    assert not any("Take 0" in note for note in named.notes), "a gated benchmark"
    floor = compared(gpqa(tmp_path / "c", 0, 0, task="aime24"), gpqa(tmp_path / "d", 0, 1, task="aime24"))
    assert {side.health.level for side in floor.sides} == {"attention"}, "where nothing is expected"
    one = compared(gpqa(tmp_path / "e", 0, 0), gpqa(tmp_path / "f", 1, 1))
    assert "attention" in {side.health.level for side in one.sides}


def test_answers_that_were_found_by_different_rules_are_a_remark_on_rl(tmp_path: Path) -> None:
    """Equal answers, which one side puts into boxes and the other one into words."""
    boxed, worded = own(tmp_path / "base", BASE), own(tmp_path / "rl", BASE)
    rows = (worded / "rows.jsonl").read_text()
    (worded / "rows.jsonl").write_text(re.sub(r"\\\\boxed\{(\d+)\}", r"\1", rows))
    found = compared(boxed, worded)
    assert found.sides[1].health.remarks == (
        "0% of Base's and 100% of RL's answers were found without a box (other prompts? grader?)",
    )
    assert value(found, "pass@k", "Base", 1) == value(found, "pass@k", "RL", 1)
    assert compared(boxed, boxed).sides[1].health.level == "ok"


def test_logs_with_verdicts_alone(tmp_path: Path) -> None:
    """Without texts the recorded verdicts count, and what only texts can say is not said."""
    for name, right in (("base", BASE), ("rl", RL)):
        rows = [{"question": f"q{i}", "sample": s, "correct": s < n} for i, n in enumerate(right) for s in range(4)]
        write_rows(tmp_path / name / "rows.jsonl", rows)
    found = compared(tmp_path / "base", tmp_path / "rl")
    assert found.grader == "recorded"
    assert value(found, "pass@k", "RL", 1) == pytest.approx(sum(RL) / 20)
    said = {each.measure: each.can for each in found.statements}
    for measure in ("wrong_key", "graders", "entropy"):
        assert said[measure].startswith("not identified"), measure
    json.dumps(found.to_dict())
    assert "</html>" in page(found)


def test_recorded_verdicts_are_another_opinion(tmp_path: Path) -> None:
    """A harness that calls everything right disagrees on every wrong sample."""
    found = compared(own(tmp_path / "base", BASE, correct=True), own(tmp_path / "rl", RL))
    (row,) = found.agreeing.to_dicts()
    assert (row["side"], row["grader"], row["compared"]) == ("Base", "correct (recorded)", 20)
    assert (row["agree"], row["ours_alone"], row["theirs_alone"]) == (sum(BASE), 0, 20 - sum(BASE))


def test_a_page_of_a_single_question_has_curves_without_bands(tmp_path: Path) -> None:
    """Intervals are over questions, so there are none."""
    made = unquote(page(compared(own(tmp_path / "base", (1,)), own(tmp_path / "rl", (3,)))))
    assert made.count('id="line2d_') > 2
    assert re.findall(r"FillBetween[^>]*>", made) == [f'FillBetweenPolyCollection_{i}"/>' for i in (1, 2)]  # empty


class Seen(HTMLParser):
    """Tags and attributes that a browser would see."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def test_a_page_shows_hostile_texts_as_text_and_asks_for_nothing(tmp_path: Path) -> None:
    found = compared(own(tmp_path / "base", BASE, correct=True, model=HOSTILE), own(tmp_path / "rl", RL))
    made = page(found)
    seen = Seen()
    seen.feed(made)
    assert not {"script", "link", "iframe", "object"} & set(seen.tags)
    assert not [name for name, _ in seen.attributes if name.startswith("on") or name in ("href", "action")]
    assert [value[:19] for name, value in seen.attributes if name == "src" and value] == ["data:image/svg+xml,"]
    assert "&lt;script" in made
    assert "\x1b" not in made
    assert "\u202e" not in made
    assert "default-src 'none'" in made
    assert 'name="viewport"' in made


def test_nothing_of_a_gated_benchmark_is_quoted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither question, gold nor text of it is on the page, in the terminal, in JSON or in a message."""
    paths = {}
    for name, right in (("base", "A"), ("rl", "B")):
        folder = tmp_path / "gpqa_diamond" / name
        rows = [
            {
                "question": f"q{i}",
                "sample": s,
                "text": rf"secret reasoning \boxed{{{right}}}",
                "gold": "A",
                "prompt": f"secret question {i}?\n\nA) secret one\nB) secret two",
                "correct": False,
            }
            for i in range(3)
            for s in range(2)
        ]
        write_rows(folder / "rows.jsonl", rows)
        paths[name] = str(folder)
    html = tmp_path / "page.html"
    for more in ([], ["--json"]):
        main(["compare", paths["base"], "--against", paths["rl"], "--html", str(html), *more])
    shown = capsys.readouterr().out + html.read_text()
    assert "GPQA-Diamond is gated" in shown
    assert "q1" in shown
    assert "secret" not in shown
    row = {"question": "q0", "sample": 2, "text": "secret", "gold": "A", "prompt": "another secret?"}
    with (Path(paths["rl"]) / "rows.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    with pytest.raises(InputError) as error:
        compared(Path(paths["base"]), Path(paths["rl"]))
    assert "secret" not in str(error.value)


def test_the_command_writes_what_is_asked_for_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base, rl = own(tmp_path / "logs/base", BASE), own(tmp_path / "logs/rl", RL)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    main(["compare", str(base), "--against", str(rl), "--html", "page.html"])
    assert "Budget equivalents" in capsys.readouterr().out
    assert [path.name for path in here.iterdir()] == ["page.html"]
    assert not list((tmp_path / "tmp").iterdir())


def test_a_bad_file_is_one_message_that_names_the_side(tmp_path: Path) -> None:
    base = own(tmp_path / "base", BASE)
    bad = tmp_path / "rl.jsonl"
    bad.write_text('{"question": "q0", "sample": 0, "text": "x", "gold": "1"}\n{"question": "q0", "sam\n')
    with pytest.raises(InputError, match=r"RL: .*rl\.jsonl:2: not JSON"):
        compared(base, bad)
    (tmp_path / "hello").write_text("hello\n")
    with pytest.raises(InputError, match=r"Base: .* has no format that is known"):
        compared(tmp_path / "hello", base)


def test_other_benchmarks_have_no_common_question(tmp_path: Path) -> None:
    row = {"question": "z", "sample": 0, "text": "x", "gold": "1", "prompt": "What is the capital of Peru?"}
    other = write_rows(tmp_path / "other/rows.jsonl", [row])
    with pytest.raises(InputError, match="no question is on both sides"):
        compared(own(tmp_path / "base", BASE), other)


def test_questions_in_other_words_are_named(tmp_path: Path) -> None:
    """Equal ids and golds, other texts: they are compared, and a note says which they are."""
    base, rl = own(tmp_path / "base", BASE), own(tmp_path / "rl", RL)
    rows = read_rows(rl)
    for row in rows[:8]:
        row["prompt"] = f"What is the sum number {row['question'][1:]} of the other list?"
    write_rows(rl / "rows.jsonl", rows)
    found = compared(base, rl)
    assert found.common.reworded == ("q0", "q1")
    assert "Base and RL have other words, but the same id, for 2 questions: q0, q1" in found.notes
    assert found.to_dict()["matched"]["reworded"] == ["q0", "q1"]


def test_base_may_have_several_policies_and_rl_one(tmp_path: Path) -> None:
    """The policy of RL is compared one to one, wherever it stands; all of them count for the best."""
    base = own(tmp_path / "base", BASE, policy="greedy")
    rl = own(tmp_path / "rl", RL, policy="temp_1.0")
    (base / "more.jsonl").write_text((rl / "rows.jsonl").read_text())
    found = compared(base, rl)
    assert found.sides[0].policies == ("temp_1.0", "greedy")
    assert value(found, "pass@k", "RL - Base", 1) == 0
    assert set(found.comparison.equivalents["policy"]) >= {"temp_1.0", "greedy"}
    with pytest.raises(InputError, match=r"RL has samples of 2 policies: temp_1\.0, greedy"):
        compared(rl, base)


def test_of_two_runs_of_equal_content_the_newest_is_read(tmp_path: Path) -> None:
    """A rerun whose answers came from a cache is no second draw; a copy in another folder is a mistake."""
    base, rl = lm_eval(tmp_path / "base", BASE), lm_eval(tmp_path / "rl", RL)
    (old,) = base.iterdir()
    new = base / old.name.replace("2026-01-01", "2026-01-02")
    new.write_text(old.read_text())
    found = compared(base, rl)
    (note,) = (note for note in found.sides[0].notes if "2026-01-02" in note)
    assert "was read" in note and "2026-01-01" in note
    assert found.sides[0].samples == 4
    copy = base / "copy" / old.name
    copy.parent.mkdir()
    copy.write_text(old.read_text())
    with pytest.raises(InputError, match="a sample occurs twice"):
        compared(base, rl)


def test_what_was_asked_otherwise_is_noted(tmp_path: Path) -> None:
    """A difference between the models may be one between their limits of tokens."""
    found = compared(lm_eval(tmp_path / "base", BASE), lm_eval(tmp_path / "rl", RL, limit=2048))
    assert "Base and RL were sampled differently: max_tokens 64 and 2048" in found.notes
    same = compared(tmp_path / "base", lm_eval(tmp_path / "again", RL))
    assert not [note for note in same.notes if "sampled" in note]
    unsaid = compared(tmp_path / "base", own(tmp_path / "own", RL))
    assert any(note.startswith("Base and RL may have been sampled differently: ") for note in unsaid.notes)
    assert "0% or more cut off, unknown end of 100%" in " ".join(str(unsaid).split())


def test_golds_of_a_known_benchmark_count(tmp_path: Path) -> None:
    """Its questions decide, whatever the logs call them; other documents are left out and noted."""
    known = [Question(f"known-{i}", q["text"], q["gold"]) for i, q in enumerate(questions(3))]
    found = compared(lm_eval(tmp_path / "base", BASE), own(tmp_path / "rl", RL), questions=known)
    assert [question.id for question in found.common.base] == ["known-0", "known-1", "known-2"]
    assert value(found, "pass@k", "Base", 1) == pytest.approx(sum(BASE[:3]) / 12)
    assert any("not a question of the benchmark" in note for side in found.sides for note in side.notes)
    other = [Question("z", "What is the capital of Peru?", "Lima")]
    with pytest.raises(InputError, match="no question of the benchmark has samples"):
        compared(tmp_path / "base", tmp_path / "rl", questions=other)


def test_a_benchmark_needs_a_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "a", "--against", "b", "--benchmark", "math"]) == 2
    assert "there is no configuration here" in capsys.readouterr().err


def test_solutions_as_golds_end_in_the_answer(tmp_path: Path) -> None:
    """Logs of some data sets have the whole solution as the gold."""
    folders = [own(tmp_path / name, right) for name, right in (("base", BASE), ("rl", RL))]
    for folder in folders:
        solved = [{**row, "gold": f"First we add.\nThen we are done.\n#### {row['gold']}"} for row in read_rows(folder)]
        write_rows(folder / "rows.jsonl", solved)
    assert value(compared(*folders), "pass@k", "Base", 1) == pytest.approx(sum(BASE) / 20)
