"""`searchlens show`: questions with the answers of both sides and their prompts, for people and for programs."""

import json
import logging
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import searchlens
from chat_forms import FORMS, with_llamas
from conftest import ROOT, Make, Patch, Raw, Said
from searchlens.analysis.uncertainty import Interval, wilson
from searchlens.api.differences import apart, differences
from searchlens.benchmarks import Question
from searchlens.benchmarks.prompter import Prompter
from searchlens.cli.main import main
from searchlens.cli.show import LINES
from searchlens.cli.study import check, checked
from searchlens.cli.terminal import cells, page, printable, shortened, side_by_side, wrapped
from searchlens.config.check import validate
from searchlens.errors import InputError
from searchlens.plan import Grid, Inputs, StudyCells
from searchlens.reporting.explorer_files import Files
from searchlens.reporting.explorer_html import explorer_page
from searchlens.sampling import generate
from searchlens.store import chat, snapshots
from searchlens.store.columns import AGREEMENT
from small_results import HOSTILE, RIGHT, analyse, finish, gate

Show = Callable[..., str]


@pytest.fixture
def show(results: Path, capsys: Said) -> Show:
    def run(*arguments: str, status: int = 0) -> str:
        assert main(["show", str(results), *arguments]) == status
        printed = capsys.readouterr()
        return printed.err if status else printed.out

    return run


def ids(text: str) -> list[str]:
    return [question["id"] for question in json.loads(text)["questions"]]


def test_both_sides_stand_beside_each_other_with_verdicts_and_log_probabilities(show: Show, monkeypatch: Patch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    lines = show("--question", "q2").splitlines()
    assert {"question 2 (q2)", "Compute 2+3.", "gold: 5"} <= set(lines)
    assert any("Base (toy-base): 1 of 4 right" in line and "RL (toy-rl): 3 of 4 right" in line for line in lines)
    (first,) = [line for line in lines if line.count("sample 0") == 2]
    assert "sample 0: right, answer 5, log p -0.75, 3 tokens, finish stop" in first
    assert "sample 0: right, answer 5, log p -1.00, 4 tokens, finish stop" in first
    assert "\n".join(lines).count("wrong, answer 99") == 2, "the first wrong sample of each side"
    assert max(map(cells, lines)) <= 160


def test_a_narrow_terminal_has_one_side_below_the_other(show: Show, monkeypatch: Patch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    lines = show("--question", "2").splitlines()
    assert max(map(cells, lines)) <= 50
    found = [line for line in lines if "right" in line and "toy-" in line]
    assert found == ["Base (toy-base): 1 of 4 right", "RL (toy-rl): 3 of 4 right"]


def test_filters_choose_questions_that_one_side_alone_solves(show: Show) -> None:
    assert ids(show("--json", "--only", "rl-solves")) == ["q3"]
    assert ids(show("--json", "--only", "base-solves", "--policy", "all")) == ["q4"]
    assert ids(show("--json")) == ["q0", "q1", "q2", "q3", "q4"]
    assert json.loads(show("--json"))["matching"] == 6
    assert "6 questions; the first 2 are shown" in show("--limit", "2")


def test_samples_on_which_graders_disagree_are_shown_first(show: Show, results: Path) -> None:
    """Under the policy that they were drawn under, whichever it is."""
    row = ("temp_0.5", "q2", 3, "5", "99", "wrong", "right", "so it is 99")
    pl.DataFrame([row], AGREEMENT, orient="row").write_parquet(results / "agreement/toy-base/sums.parquet")
    AGREEMENT.to_frame().write_parquet(results / "agreement/toy-rl/sums.parquet")
    (question,) = json.loads(show("--json", "--only", "graders-disagree", "--samples", "1"))["questions"]
    (answers,) = question["policies"]
    assert (question["id"], answers["policy"]) == ("q2", "temp_0.5")
    (sample,) = answers["base"]["samples"]
    assert (sample["sample"], sample["verdict"], sample["math_verify"]) == (3, "wrong", "right")


def test_nothing_in_a_text_controls_the_terminal(show: Show) -> None:
    printed = show("--policy", "all")
    assert printable(HOSTILE) in printed
    assert not [char for char in printed if char != "\n" and not char.isprintable()]


def test_json_is_ascii(show: Show) -> None:
    printed = show("--json")
    assert printed.isascii()
    assert "\x1b" not in printed
    assert HOSTILE in json.loads(printed)["questions"][0]["policies"][0]["rl"]["samples"][0]["text"]


def test_texts_of_a_gated_benchmark_are_not_shown(show: Show, results: Path) -> None:
    """Only ids, verdicts and lengths: no question, gold, tag or answer, whichever form is asked for."""
    gate(results)
    for printed in (show("--policy", "all"), show("--json", "--question", "3"), show("--only", "graders-disagree")):
        assert not [word for word in ("Secret", "right3", "no1", "boxed", "evil", "order") if word in printed]
        assert "GPQA-Diamond is gated" in printed
        assert "sample" in printed


def test_a_study_without_questions_or_texts_shows_what_it_has(show: Show, results: Path, tmp_path: Path) -> None:
    (tmp_path / "sums.jsonl").unlink()
    printed = show("--question", "q2")
    assert "the text of the question is not here" in printed
    assert "1 of 4 right" in printed
    shutil.rmtree(results / "generations/toy-base")
    (question,) = json.loads(show("--json", "--question", "2"))["questions"]
    (answers,) = question["policies"]
    assert "has no samples" in answers["base"]["reason"]
    assert (answers["base"]["right"], answers["base"]["of"]) == (1, 4), "counts of the landscape"
    assert answers["rl"]["samples"]
    shutil.rmtree(results / "generations")
    (question,) = json.loads(show("--json", "--question", "2"))["questions"]
    assert (question["index"], question["text"], question["policies"][0]["rl"]["right"]) == (2, None, 3)
    assert "cannot read" in show("--question", "q2", status=2), "nothing says which question that is"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--question", "q9"), "has no question 'q9'"),
        (("--pair", "tay"), "Known: toy"),
        (("--policy", "temp_0.4"), "Known: greedy"),
        (("--benchmark", "sum"), "Known: sums"),
    ],
)
def test_wrong_names_are_refused(show: Show, arguments: tuple[str, ...], why: str) -> None:
    assert why in show(*arguments, status=2)


def test_a_long_answer_keeps_its_beginning_and_its_end(show: Show) -> None:
    lines = [str(i) for i in range(100)]
    found = shortened(lines, LINES)
    assert len(found) == LINES
    assert (found[0], found[-1]) == ("0", "99")
    assert shortened(lines[:LINES], LINES) == lines[:LINES]


def test_columns_count_the_cells_of_wide_and_combining_characters() -> None:
    assert wrapped("数学数学", 4) == ["数学", "数学"]
    assert wrapped("e\u0301" * 4, 4) == ["e\u0301" * 4]
    assert wrapped("a" * 7, 3) == ["aaa", "aaa", "a"]
    assert wrapped("", 5) == [""]
    assert side_by_side(["数"], ["a", "b"], 4) == ["数   | a", "     | b"]


def test_what_could_be_hidden_is_escaped() -> None:
    assert printable("a\rb\x07\x9b1m\u2066\u200b\ud800\u2028") == r"a\rb\x07\x9b1m\u2066\u200b\ud800\u2028"
    assert printable("naïve 数 −√2\n\tx") == "naïve 数 −√2\n    x"


def read_up_to_its_end(leader: int) -> bytes:
    """What was written to a terminal whose other end is closed; one read may return a part of it."""
    text, part = b"", b"-"
    while part:
        try:
            part = os.read(leader, 100)
        except OSError:  # how Linux says that it is the end
            part = b""
        text += part
    return text


def test_a_pager_is_used_in_a_terminal_alone(monkeypatch: Patch, tmp_path: Path) -> None:
    """A pager that writes what it gets to a file; PAGER may have options, and may name nothing that exists."""
    target = tmp_path / "paged"
    code = "from searchlens.cli.terminal import page; page('shown')"
    environment = {**os.environ, "PAGER": f"tee {target}"}
    plain = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert plain.stdout == "shown\n"
    assert not target.exists()
    leader, follower = pty.openpty()
    subprocess.run([sys.executable, "-c", code], env=environment, stdout=follower, check=True)
    assert target.read_text() == "shown\n"
    subprocess.run([sys.executable, "-c", code], env={**environment, "PAGER": "no-such"}, stdout=follower, check=True)
    os.close(follower)
    assert read_up_to_its_end(leader).count(b"shown") == 2
    os.close(leader)


def test_what_the_encoding_does_not_have_is_escaped(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w", encoding="ascii") as stream, redirect_stdout(stream):
        page("√2")
    assert (tmp_path / "out").read_text() == "\\u221a2\n"


# ---- `searchlens diff`: what changed between two results folders, with intervals


Again = Callable[..., Path]
CHANGED = {**RIGHT, "toy-rl": {**RIGHT["toy-rl"], "q4": 3, "q2": 1}}
"""RL solves a question more; of another it has fewer right samples."""


@pytest.fixture
def again(raw: Raw, tmp_path: Path) -> Again:
    """The study once more, with other settings and other samples."""

    def run(changes: Mapping[str, Any], right: Mapping[str, Mapping[str, int]] = RIGHT, questions: str = "") -> Path:
        folder = tmp_path / "again"
        folder.mkdir()
        for name in ("base", "rl", "sums.jsonl"):
            (folder / name).symlink_to(tmp_path / name)
        if questions:
            (folder / "sums.jsonl").unlink()
            (folder / "sums.jsonl").write_text(questions)
        return finish({**raw, **changes}, folder, right)

    return run


def test_a_copy_has_no_differences(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results, tmp_path / "copied")
    found = differences(searchlens.open(results), searchlens.open(tmp_path / "copied"))
    changed = {name: frame.height for name, frame in found.frames.items() if name != "samples"}
    assert not any(changed.values()), changed
    assert set(found.samples["samples"]) == {"same"}
    assert (found.configuration, found.notes) == ([], [])
    study = searchlens.open(results)
    measures = sum(study.measures(name).height for name in ("measures", "equivalents")) + 4
    heights = {"points": study.points().height, "recoveries": study.recovery().height, "measures": measures, "sets": 2}
    assert found.compared == heights, "nothing is left out"


def test_other_samples_of_the_same_questions_have_paired_intervals(results: Path, again: Again) -> None:
    other = again({"seed": 7}, CHANGED)
    found = differences(searchlens.open(results), searchlens.open(other))
    assert found.configuration == ["seed"]
    assert set(found.samples["samples"]) == {"other"}
    point = {"checkpoint": "toy-rl", "policy": "temp_0.5", "budget": 1, "metric": "P", "estimator": "unbiased"}
    (row,) = found.points.filter(**point).to_dicts()
    assert (row["a"], row["b"]) == (pytest.approx(13 / 24), pytest.approx(14 / 24))
    assert row["interval"] == "paired"
    assert row["difference"] == pytest.approx(1 / 24)
    assert row["lo"] < row["difference"] < row["hi"]
    assert set(found.points["checkpoint"]) == {"toy-rl"}, "Base is as before"
    narrow = row["hi"] - row["lo"]
    ends = [searchlens.open(folder).points("toy-rl").filter(**point).row(0, named=True) for folder in (results, other)]
    assert narrow < np.hypot(*(end["hi"] - end["lo"] for end in ends)), "questions that did not change say nothing"
    assert set(found.points.filter(metric="distinct")["interval"]) <= {"independent"}, "has no values by question"
    verdicts = found.recoveries.filter(metric="P", estimator="unbiased").to_dicts()
    assert [(row["budget"], row["inside_a"], row["inside_b"]) for row in verdicts] == [(4, True, False)]
    kept = found.measures.filter(frame="support", what="expanded").to_dicts()
    changed = found.measures.filter(what="kept").to_dicts()[0]
    assert (changed["a"], changed["b"], changed["interval"]) == (3, 4, "independent")
    assert changed["lo"] <= changed["difference"] <= changed["hi"]
    assert kept == [], "one question is expanded in both"


def test_the_same_samples_graded_otherwise_differ_exactly(results: Path, tmp_path: Path) -> None:
    """Equal ids: what changed is the verdicts, and no interval is needed."""
    before = tmp_path / "before"
    shutil.copytree(results, before)
    path = results / "scores/toy-rl/sums.parquet"
    scores = pl.read_parquet(path)
    scores.with_columns(pl.col("correct") & (pl.col("question") != 1)).write_parquet(path)
    with chdir(tmp_path):
        analyse(Grid(searchlens.open(results).config))
    found = differences(searchlens.open(before), searchlens.open(results))
    assert set(found.samples["samples"]) == {"same"}
    assert found.points.height
    assert set(found.points["interval"]) == {"exact"}
    assert found.points["lo"].equals(found.points["difference"])
    assert set(found.measures["interval"]) == {"exact"}


def test_other_questions_are_not_paired(results: Path, again: Again) -> None:
    rows = [{"id": f"q{i}", "question": f"What is {i}+{i + 1}?", "gold": str(2 * i + 1)} for i in range(6)]
    other = again({}, CHANGED, "".join(json.dumps(row) + "\n" for row in rows))
    found = differences(searchlens.open(results), searchlens.open(other))
    assert set(found.points["interval"]) == {"independent"}


def test_cells_and_policies_that_only_one_has_are_named(results: Path, again: Again, capsys: Said) -> None:
    pairs = {"toy": {"base": "toy-base", "rl": "toy-rl"}}
    changes = {"pools": {"three": ["temp_0.5", "topp0.95_t1.0", "temp_0.8"]}, "pairs": pairs}
    changes |= {"policies": dict.fromkeys(["temp_0.5", "topp0.95_t1.0", "temp_0.8", "greedy"])}
    other = again(changes)
    found = differences(searchlens.open(results), searchlens.open(other))
    changed = set(found.policies.select("policy", "change").iter_rows())
    assert changed == {("temp_0.8", "added"), ("topp0.9_t0.7", "removed")}
    assert main(["diff", str(results), str(other)]) == 0
    assert "policies of toy-rl/sums only in A: topp0.9_t0.7\n" in capsys.readouterr().out
    for path in results.glob("config/*.json"):
        content = json.loads(path.read_text())
        content["study"]["benchmarks"] = []
        path.write_text(json.dumps(content))
    found = differences(searchlens.open(results), searchlens.open(other))
    assert set(found.cells["change"]) == {"added"}
    assert main(["diff", str(results), str(other)]) == 0
    assert "cell toy-base/sums only in B" in capsys.readouterr().out


def test_what_one_side_lacks_is_noted(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results, tmp_path / "copied")
    for name in ("measures", "recovery"):
        shutil.rmtree(tmp_path / "copied" / name)
    found = differences(searchlens.open(results), searchlens.open(tmp_path / "copied"))
    assert found.compared == {"points": 400, "recoveries": 0, "measures": 0, "sets": 0}
    measures = [f"measures ({name})" for name in ("measures", "equivalents", "support")]
    missing = [note.split(" were not compared: B: ")[0] for note in found.notes]
    assert missing == ["recovery analyses", *measures, "sets of exponents"]


def test_the_command_writes_text_and_json(results: Path, again: Again, capsys: Said) -> None:
    other = again({"seed": 7}, CHANGED)
    assert main(["diff", str(results), str(other)]) == 0
    printed = capsys.readouterr().out
    assert "configuration: other seed" in printed
    assert "samples, by cell and policy: 8 others" in printed
    assert "toy-rl/sums temp_0.5 n=4 P unbiased: 66.7 -> 83.3, +16.7 [" in printed
    assert "toy/sums P unbiased N=4: RL inside -> outside" in printed
    assert "more (--all)" in printed
    assert main(["diff", str(results), str(other), "--all"]) == 0
    whole = capsys.readouterr().out
    assert "--all" not in whole
    assert len(whole.splitlines()) > len(printed.splitlines())
    assert main(["diff", str(results), str(other), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["points"][0]["checkpoint"] == "toy-rl"
    assert content["compared"]["points"] == 400


def test_intervals_of_two_proportions_are_newcombes() -> None:
    """56 of 70 against 48 of 80: 0.0524 to 0.3339 (Newcombe 1998, Stat. Med. 17, 873-890, table II, method 10)."""
    first, second = np.array([48 / 80]), np.array([56 / 70])
    found = apart(first, wilson([48], [80]), second, wilson([56], [70]))
    assert (round(found.lo.item(), 4), round(found.hi.item(), 4)) == (0.0524, 0.3339)


def test_an_unknown_end_leaves_the_difference_without_an_interval() -> None:
    one, ends = np.array([0.5]), Interval(np.array([np.nan]), np.array([0.6]))
    found = apart(one, ends, one, Interval(np.array([0.4]), np.array([0.6])))
    assert np.isnan(found.hi).all()
    assert np.isfinite(found.lo).all()


def test_the_summary_is_that_of_the_last_run(results: Path, capsys: Said, tmp_path: Path, monkeypatch: Patch) -> None:
    """Whatever the configuration is now: another default policy was not asked of these results."""
    monkeypatch.delenv("SEARCHLENS_SNAPSHOT", raising=False)
    for name in ("config", "resources"):
        (tmp_path / name).symlink_to(ROOT / name)
    with chdir(tmp_path):
        assert main(["summary"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("RL − Base under topp0.95_t1.0, pass@k")
    assert "  toy/sums: N=1: " in printed and "micro-1m" not in printed


# ---- prompts as they were sent


pytest.importorskip("torch")
Captured, Logged = pytest.CaptureFixture[str], pytest.LogCaptureFixture


@pytest.fixture
def raw(raw: Raw, tmp_path: Path) -> dict[str, Any]:
    """The toy study, both sides with a chat template; RL has another instruction."""
    return with_llamas(raw, tmp_path)


def told_apart(raw: Raw) -> dict[str, Any]:
    """Both sides with a prompt of their own."""
    raw["templates"] = {"other": {"chat": {}, "math": "{question}!"}}
    raw["checkpoints"]["toy-rl"]["template"] = "other"
    raw["pairs"]["toy"]["templates"] = "own"
    return raw


def test_pieces_are_the_text_and_special_tokens_are_marked(raw: Raw, make_grid: Make) -> None:
    """Also of letters that are several tokens, and of blanks that a tokenizer counts to the next word."""
    grid = make_grid(raw)
    asked = Prompter(grid.inputs.checkpoint_folder("toy-base"), grid.inputs.template("toy-base", "sums"))
    question = Question("q", "one  求🙂 <|eot_id|>\n\ttwo", "")
    (sent,) = asked.shown([question])
    (text,) = asked.texts([question])
    assert "".join(sent.pieces) == text and sent.ids == asked.prompts([question])[0]
    assert {sent.pieces[place] for place in sent.special} == set(FORMS["llama3.1"].marks) - {"<|end_of_text|>"}
    assert str(sent).startswith("⟦<|begin_of_text|>⟧⟦<|start_header_id|>⟧system") and "求🙂 ⟦<|eot_id|>⟧\n" in str(sent)


def test_a_token_that_the_tokenizer_puts_before_a_text_has_its_name(raw: Raw, make_grid: Make) -> None:
    raw["checkpoints"]["toy-base"]["template"] = raw["checkpoints"]["toy-rl"]["template"] = "zoo"
    (first, *_) = check(make_grid(raw), with_prompts=True)["prompts"]
    assert first["prompt"]["pieces"][0] == "<|begin_of_text|>" and first["prompt"]["special"] == (0,)


def test_check_shows_the_first_prompt_of_each_side_and_where_they_differ(raw: Raw, make_grid: Make) -> None:
    found = check(make_grid(told_apart(raw)), with_prompts=True)
    assert [(each["checkpoint"], each["question"]) for each in found["prompts"]] == [
        ("toy-base", "q0"),
        ("toy-rl", "q0"),
    ]
    assert any(
        "prompts of toy-base and toy-rl differ, first in question q0 at token" in note for note in found["notes"]
    )
    text = checked(found)
    assert "toy-rl/sums: prompt of question q0" in text and "⟦<|end_header_id|>⟧\n\nCompute 0+1.!⟦<|eot_id|>⟧" in text
    assert check(make_grid(raw))["prompts"] == []


def test_a_question_that_is_not_to_be_shown_is_left_out(raw: Raw, make_grid: Make, monkeypatch: Patch) -> None:
    monkeypatch.setattr(StudyCells, "terms", lambda *_: "GPQA-Diamond is gated")
    (first, *_) = check(make_grid(raw), with_prompts=True)["prompts"]
    assert "\n\n…\nPlease reason step by step" in "".join(first["prompt"]["pieces"])


def test_no_prompt_of_a_gated_benchmark_is_in_a_study_a_page_or_a_log(
    raw: Raw,
    results: Path,
    tmp_path: Path,
    monkeypatch: Patch,
    caplog: Logged,
) -> None:
    monkeypatch.setattr(StudyCells, "terms", lambda *_: "GPQA-Diamond is gated")
    study = searchlens.open(results)
    with pytest.raises(InputError, match="prompts of toy-base on sums: GPQA-Diamond is gated: its terms ask that no"):
        study.prompts("toy-base", "sums", [0])
    files = Files(study)
    (cell,) = json.loads(files.index)["cells"]
    assert "prompts" not in cell["base"]["files"] and files.made("prompts/toy-base/sums/2.json") == b"{}"
    caplog.clear()
    with chdir(tmp_path), caplog.at_level(logging.INFO):
        grid = Grid(validate({**raw, "results": "others"}))
        for pool in grid.jobs.pools("toy-base", "sums"):
            generate(grid, "toy-base", "sums", grid.current_manifest(pool))
    (said,) = {line.partition("first prompt:")[2] for line in caplog.messages if "first prompt:" in line}
    assert said.strip() == ""


def test_show_has_one_prompt_for_both_or_one_for_each(
    raw: Raw, results: Path, tmp_path: Path, capsys: Captured
) -> None:
    assert main(["show", str(results), "--question", "q2", "--prompt"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("prompt of Base and RL, ") == 1 and "Compute 2+3." in printed and "⟦<|eot_id|>⟧" in printed
    assert main(["show", str(results), "--question", "q2"]) == 0
    assert "prompt of" not in capsys.readouterr().out
    shutil.rmtree(results)
    others = finish(told_apart(raw), tmp_path)
    assert main(["show", str(others), "--question", "q2", "--prompt", "--json"]) == 0
    sent = json.loads(capsys.readouterr().out)["questions"][0]["prompts"]
    assert sent["base"]["ids"] != sent["rl"]["ids"] and "".join(sent["rl"]["pieces"]).count("Compute 2+3.!") == 1


def test_a_prompt_that_is_not_known_is_said_with_the_reason(results: Path, tmp_path: Path, capsys: Captured) -> None:
    study = searchlens.open(results)
    assert [len(each.ids) > 10 for each in study.prompts("toy-base", "sums", [0, "q3"])] == [True, True]
    with pytest.raises(InputError, match="sums has no question 99"):
        study.prompts("toy-base", "sums", [99])
    (tmp_path / "rl/tokenizer.json").rename(tmp_path / "moved.json")
    with pytest.raises(InputError, match=r"its tokenizer is not on this machine: .*rl has no tokenizer\.json"):
        searchlens.open(results).prompts("toy-rl", "sums", [0])
    assert main(["show", str(results), "--question", "q2", "--prompt"]) == 0
    assert "prompt of RL: not known, its tokenizer is not on this machine" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", ["worked.jsonl", "rl/tokenizer.json"])
def test_a_prompt_that_was_not_sent_is_not_shown(raw: Raw, tmp_path: Path, name: str) -> None:
    """Also if what changed stands in no prompt without a question."""
    worked = tmp_path / "worked.jsonl"
    worked.write_text('{"question": "What is $5+2$?", "answer": "7"}\n')
    raw["benchmarks"]["sums"]["examples"] = {"path": "worked.jsonl", "count": 1}
    with chdir(tmp_path):
        grid = Grid(validate(raw))
        for pool in grid.jobs.pools("toy-rl", "sums"):
            generate(grid, "toy-rl", "sums", grid.current_manifest(pool))
        snapshots.save(grid.config)
    study = tmp_path / "results"
    assert "What is $5+2$?" in str(searchlens.open(study).prompts("toy-rl", "sums", [0])[0])
    text = (tmp_path / name).read_text()
    (tmp_path / name).write_text(text.replace("5+2", "6+1") if name == "worked.jsonl" else json.dumps(json.loads(text)))
    with pytest.raises(InputError, match=r"worked examples of toy-rl .* are others than those that the samples were"):
        searchlens.open(study).prompts("toy-rl", "sums", [0])


def test_prompts_of_many_questions_need_no_process_each(results: Path, monkeypatch: Patch) -> None:
    started: list[Any] = []
    run = chat.subprocess.run
    monkeypatch.setattr(chat.subprocess, "run", lambda *given, **named: started.append(given) or run(*given, **named))
    study = searchlens.open(results)
    study.prompts("toy-rl", "sums", [0])
    one = len(started)
    assert len(study.prompts("toy-rl", "sums", range(6))) == 6 and len(started) == 2 * one


def test_check_says_why_no_prompt_is_shown(raw: Raw, make_grid: Make, monkeypatch: Patch) -> None:
    monkeypatch.setattr(Inputs, "is_here", lambda *_: False)
    found = check(make_grid(raw), with_prompts=True)
    assert any("no prompt is shown: " in note for note in found["notes"])
    assert check(make_grid(raw))["notes"] == []


def test_both_pages_have_the_prompts_and_name_no_file_that_is_not_there(results: Path, tmp_path: Path) -> None:
    study = searchlens.open(results)
    files = Files(study)
    (cell,) = json.loads(files.index)["cells"]
    assert cell["base"]["files"]["prompts"] == "prompts/toy-base/sums/{question}.json"
    made = json.loads(files.made("prompts/toy-base/sums/2.json") or b"")
    assert "".join(made["2"]["pieces"]).count("Compute 2+3.") == 1 and len(made["2"]["ids"]) == len(made["2"]["pieces"])
    assert files.made("prompts/toy-base/sums/99.json") == b"{}"
    assert 'data-path="prompts/toy-rl/sums.json"' in explorer_page(study).html
    (tmp_path / "rl/tokenizer.json").unlink()
    (cell,) = json.loads(Files(searchlens.open(results)).index)["cells"]
    assert "prompts" in cell["base"]["files"] and "prompts" not in cell["rl"]["files"]
    assert 'data-path="prompts/toy-rl/sums.json"' not in explorer_page(searchlens.open(results)).html
