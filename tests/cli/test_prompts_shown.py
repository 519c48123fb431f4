"""The prompt as it was sent: its tokens before and after sampling, for people, for programs and for the page."""

from __future__ import annotations

import json
import logging
import shutil
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

import searchlens
from chat_forms import FORMS, with_llamas
from conftest import Make, Patch, Raw
from searchlens.benchmarks import Question
from searchlens.benchmarks.prompter import Prompter
from searchlens.cli.main import main
from searchlens.cli.study import check, checked
from searchlens.config.check import validate
from searchlens.errors import InputError
from searchlens.plan import Grid, Inputs, StudyCells
from searchlens.reporting.explorer_files import Files
from searchlens.reporting.explorer_html import explorer_page
from searchlens.sampling import generate
from searchlens.store import chat, snapshots
from small_results import finish

pytest.importorskip("torch")
Captured, Logged = pytest.CaptureFixture[str], pytest.LogCaptureFixture


@pytest.fixture
def raw(raw: Raw, tmp_path: Path) -> dict[str, Any]:
    """The toy study, both sides with a chat template; RL has another instruction."""
    return with_llamas(raw, tmp_path)


def apart(raw: Raw) -> dict[str, Any]:
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
    found = check(make_grid(apart(raw)), with_prompts=True)
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
    others = finish(apart(raw), tmp_path)
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
