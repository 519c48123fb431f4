"""Logs that lm-evaluation-harness and Inspect wrote themselves (tests/data/make_logs.py), and every trap of them."""

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from containers import members, packed_zip
from reading import LOGS, numbered, read, samples, written
from searchlens.errors import InputError
from searchlens.formats.readers.logged import Verdict

LM_EVAL = LOGS / "lm_eval/ours__scripted"
INSPECT = LOGS / "inspect"
DRAWS = [
    ("sums/sum-a.json", 0, "Let me add.\n\nIt is \\boxed{2}"),
    ("sums/sum-a.json", 1, "I say \\boxed{3}"),
    ("sums/sum-a.json", 2, "Surely \\boxed{2}"),
    ("sums/sum-b.json", 0, "Let me add.\n\nIt is \\boxed{4}"),
    ("sums/sum-b.json", 1, "Two and two: \\boxed{4}"),
    ("sums/sum-b.json", 2, "I say \\boxed{5}"),
]


def of_task(task: str) -> list[Path]:
    return sorted(LM_EVAL.glob(f"samples_{task}_*.jsonl"))


# ---- lm-evaluation-harness


def test_two_filters_double_the_rows_but_not_the_samples() -> None:
    drawn = samples("lm_eval", of_task("sums")[0])
    assert numbered(drawn) == [("sum-a", 0, "It is \\boxed{2}"), ("sum-b", 0, "It is \\boxed{4}")]
    assert drawn[0].verdicts == dict.fromkeys(("exact_match,boxed", "exact_match,flexible"), Verdict(1.0, "2"))
    assert drawn[0].document.gold == ("2",)
    assert drawn[0].document.prompt == "Compute 1+1."
    assert not drawn[0].document.is_templated


def test_the_end_of_a_text_is_unknown_and_model_task_and_version_are_those_of_the_results() -> None:
    first = samples("lm_eval", of_task("sums")[0])[0]
    assert (first.finish, first.tokens, first.logprobs) == ("unknown", None, None)
    assert (first.stream.model, first.stream.task) == ("ours/scripted", "sums")
    assert first.stream.made_by.startswith("lm_eval 0.")
    asked = {"temperature": 0.7, "top_p": 0.95, "max_tokens": 64, "do_sample": True, "stop": ["Question:"]}
    assert first.stream.asked == asked


def test_a_filter_that_judges_repeats_together_judges_no_text() -> None:
    drawn, notes = read("lm_eval", *of_task("draws"))
    assert [sample.sample for sample in drawn] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert all(not sample.verdicts for sample in drawn)
    verdicts = {"exact_match,boxed": Verdict(0.0, "3"), "exact_match,vote": Verdict(1.0, "2")}
    assert drawn[0].document_verdicts == verdicts
    assert any("judged several texts together" in note for note in notes)


def test_do_sample_false_is_greedy_whatever_the_temperature_says() -> None:
    asked = samples("lm_eval", *of_task("greedy"))[0].stream.asked
    assert asked["temperature"] == 0.0
    assert "top_p" not in asked


def test_a_task_of_likelihoods_generated_nothing() -> None:
    with pytest.raises(InputError, match=r"samples_letters.*:1: the task compares log-likelihoods") as error:
        read("lm_eval", *of_task("letters"))
    assert "generates" in error.value.hint


def test_of_two_dates_the_newest_counts_and_the_others_are_named(tmp_path: Path) -> None:
    for file in (*of_task("sums"), *LM_EVAL.glob("results_*")):
        shutil.copy(file, tmp_path)
    old, new = (file.stem.split("_")[-1] for file in of_task("sums"))
    drawn, notes = read("lm_eval", tmp_path)
    assert {new in sample.place for sample in drawn} == {True}
    assert notes == [f"task 'sums' has several dates; {new} was read, not {old}"]
    assert {old in sample.place for sample in samples("lm_eval", tmp_path, date=old)} == {True}
    assert [sample.sample for sample in samples("lm_eval", tmp_path, date="all")] == [0, 0, 1, 1]
    with pytest.raises(InputError, match=f"no file of date '1999'; found: {old}, {new}"):
        read("lm_eval", tmp_path, date="1999")


def test_files_of_several_tasks_are_several_streams(tmp_path: Path) -> None:
    for file in (*of_task("draws"), *of_task("greedy")):
        shutil.copy(file, tmp_path)
    assert {sample.stream.task for sample in samples("lm_eval", tmp_path)} == {"draws", "greedy"}


def lm_row(**more: Any) -> dict[str, Any]:
    return {
        "doc_id": 3,
        "doc": {"question": "1+1?", "solution": "long"},
        "target": "2",
        "arguments": {"gen_args_0": {"arg_0": "Shots. 1+1?", "arg_1": {"until": []}}},
        "resps": [["two"]],
        "filter": "none",
        "metrics": [],
    } | more


def test_a_document_without_an_id_has_its_row_as_index_and_an_unknown_question_its_template(tmp_path: Path) -> None:
    rows = [lm_row(), lm_row(doc_id=4, doc={"a": 1}, target="['x', 'y']"), lm_row(doc_id=5, doc={"n": "v"})]
    first, second, third = samples("lm_eval", written(tmp_path / "samples_own.jsonl", rows))
    assert (first.document.id, first.document.is_index) == (3, True)
    assert (first.document.prompt, first.document.is_templated, first.document.gold) == ("1+1?", False, ("2",))
    assert (second.document.prompt, second.document.is_templated) == ("Shots. 1+1?", True)
    assert second.document.gold == ()
    assert samples("lm_eval", tmp_path / "samples_own.jsonl", id_key="n")[2].document.id == "v"
    assert third.document.id == 5


def test_older_arguments_are_lists_and_those_of_likelihoods_stay_refused(tmp_path: Path) -> None:
    """As in 2023: a list for each request, with its prompt and its parameters, or with a given text."""
    (new,) = samples("lm_eval", written(tmp_path / "samples_new.jsonl", [lm_row(doc={"id": "a"})]))
    old_row = lm_row(doc={"id": "a"}, arguments=[["Shots. 1+1?", {"until": []}]])
    (old,) = samples("lm_eval", written(tmp_path / "samples_old.jsonl", [old_row]))
    assert (old.document, old.text, old.stream.asked) == (new.document, new.text, new.stream.asked)
    given = written(tmp_path / "samples_given.jsonl", [lm_row(arguments=[["1+1?", " two"], ["1+1?", " three"]])])
    with pytest.raises(InputError, match="compares log-likelihoods of given texts"):
        read("lm_eval", given)
    two = written(tmp_path / "samples_two.jsonl", [lm_row(arguments=[["a", {"until": []}], ["b", {"until": []}]])])
    with pytest.raises(InputError, match="2 requests for one document"):
        read("lm_eval", two)


def test_of_rows_that_name_no_filter_one_is_read_if_their_texts_are_equal(tmp_path: Path) -> None:
    """A row for each filter, as before filters had names; rows with other texts stay samples that occur twice."""
    unnamed = {key: value for key, value in lm_row(metrics=["exact_match"]).items() if key != "filter"}
    texts = {3: [["two", "three"]], 4: [["two", "three"]]}
    rows = [
        {**unnamed, "doc_id": doc_id, "resps": resps, "exact_match": value}
        for doc_id, resps in texts.items()
        for value in (1.0, 0.0)
    ]
    drawn, notes = read("lm_eval", written(tmp_path / "samples_sums.jsonl", rows))
    assert numbered(drawn) == [(3, 0, "two"), (3, 1, "three"), (4, 0, "two"), (4, 1, "three")]
    assert any("name no filter; the first was read (2 times" in note for note in notes)
    (first, *_) = drawn
    assert [verdict.value for verdict in first.document_verdicts.values()] == [1.0]
    other = written(tmp_path / "samples_other.jsonl", [unnamed, {**unnamed, "resps": [["four"]]}])
    assert numbered(samples("lm_eval", other)) == [(3, 0, "two"), (3, 0, "four")]


def test_a_chat_prompt_is_its_last_message_of_the_user(tmp_path: Path) -> None:
    chat = json.dumps([{"role": "user", "content": "1+1?"}])
    rows = [lm_row(doc={}, arguments={"gen_args_0": {"arg_0": prompt, "arg_1": {}}}) for prompt in (chat, [chat])]
    drawn = samples("lm_eval", written(tmp_path / "samples_chat.jsonl", rows))
    assert [sample.document.prompt for sample in drawn] == ["1+1?", "1+1?"]


# ---- Inspect


@pytest.mark.parametrize("log", ["draws.eval", "draws.json", "parts/draws.eval"])
def test_each_shape_of_a_log_gives_the_same_samples(log: str) -> None:
    """Zstandard members, one JSON object, and samples in parts; ids hold slashes."""
    drawn = samples("inspect", INSPECT / log)
    assert numbered(drawn) == DRAWS
    assert {sample.sample: sample.finish for sample in drawn} == {0: "stop", 1: "length", 2: "stop"}
    assert {(sample.tokens, sample.logprobs) for sample in drawn} == {(2, (-0.5, -0.25))}
    last = next(s for s in drawn if s.document.id == "sums/sum-b.json" and s.sample == 2)
    assert last.verdicts == {"boxed": Verdict(None)}, "NaN is no verdict"
    wrong = next(s for s in drawn if s.document.id == "sums/sum-a.json" and s.sample == 1)
    assert wrong.verdicts == {"boxed": Verdict(0.0, "3")}
    assert last.document.prompt == "Compute 2+2."
    assert last.document.gold == ("4",)
    assert last.stream.asked == {"temperature": 0.8, "top_p": 0.9, "max_tokens": 32, "seed": 3}
    assert last.stream.made_by.startswith("inspect_ai 0.3.")


def archive(path: Path, content: dict[str, bytes]) -> Path:
    path.write_bytes(packed_zip(content, zipfile.ZIP_DEFLATED))
    return path


def changed(log: Path, member: str, **values: Any) -> bytes:
    return json.dumps(json.loads(members(log)[member]) | values).encode()


def test_members_in_deflate_are_read_and_a_name_that_occurs_twice_counts_as_written_last(tmp_path: Path) -> None:
    content = members(INSPECT / "draws.eval")
    log = archive(tmp_path / "log.eval", content)
    name = "samples/sums/sum-a.json_epoch_1.json"
    output = {"choices": [{"message": {"content": "again"}, "stop_reason": "stop"}]}
    with zipfile.ZipFile(log, "a", zipfile.ZIP_DEFLATED) as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr(name, changed(INSPECT / "draws.eval", name, output=output))
    again = [("sums/sum-a.json", 0, "again"), *DRAWS[1:]]
    assert numbered(samples("inspect", log)) == again


def test_choices_are_samples_of_their_own_and_only_the_first_was_scored() -> None:
    drawn = samples("inspect", INSPECT / "several.eval")
    of_a = sorted((s for s in drawn if "sum-a" in str(s.document.id)), key=lambda sample: sample.sample)
    assert [sample.sample for sample in of_a] == [0, 1, 2, 3]
    texts = [sample.text for sample in of_a][1:]
    assert texts == ["Let me add.\n\nI say \\boxed{3}", "I say \\boxed{3}", "Surely \\boxed{2}"]
    assert [bool(sample.verdicts) for sample in of_a] == [True, False, True, False]
    assert {sample.tokens for sample in of_a} == {None}, "usage is the sum over the choices"


def test_a_failed_sample_stays_a_sample_and_ids_that_the_log_made_up_are_positions() -> None:
    drawn, notes = read("inspect", INSPECT / "failed.eval")
    found = [(s.document.id, s.document.is_index, s.finish, s.text is None) for s in drawn]
    assert found == [(1, True, "stop", False), (2, True, "failed", True)]
    assert drawn[1].verdicts == {}
    assert any(note.startswith("a request failed") for note in notes)


def test_a_log_of_letters_has_its_choices_in_its_own_order() -> None:
    (sample,) = samples("inspect", INSPECT / "letters.eval")
    assert sample.document.choices == ("3", "2")
    assert sample.document.gold == ("B",)
    assert sample.text == "ANSWER: B"
    assert sample.verdicts == {"choice": Verdict(1.0, "B")}
    assert sample.document.prompt == "Compute 1+1. Which is it?", "the template stands in the messages"


def test_a_log_under_way_has_a_journal_alone_and_needs_the_wish_for_it(tmp_path: Path) -> None:
    content = members(INSPECT / "draws.eval")
    del content["header.json"], content["samples/sums/sum-b.json_epoch_3.json"]
    log = archive(tmp_path / "log.eval", content)
    with pytest.raises(InputError, match=r"is not finished \(status 'started'\); allowed: 'success'"):
        read("inspect", log)
    drawn, notes = read("inspect", log, partial="yes")
    assert numbered(drawn) == DRAWS[:-1]
    assert any("as far as it goes" in note for note in notes)


def relogged(path: Path, epoch: int = 1, **evaluation: Any) -> Path:
    content = members(INSPECT / "draws.eval")
    header = json.loads(content["header.json"])
    header["eval"] |= evaluation
    kept = {name: value for name, value in content.items() if name.endswith(f"_epoch_{epoch}.json")}
    header["eval"]["config"]["epochs"] = 1
    header["results"] |= {"total_samples": 2, "completed_samples": 2}
    renamed = {
        name.replace(f"_epoch_{epoch}", "_epoch_1"): json.dumps(json.loads(value) | {"epoch": 1}).encode()
        for name, value in kept.items()
    }
    return archive(path, {**renamed, "header.json": json.dumps(header).encode()})


def test_of_retries_the_newest_counts_and_runs_of_their_own_are_joined_by_date(tmp_path: Path) -> None:
    relogged(tmp_path / "z.eval", 1, created="2026-01-01", task_id="one")
    relogged(tmp_path / "y.eval", 2, created="2026-01-02", task_id="one")
    relogged(tmp_path / "x.eval", 3, created="2026-01-03", task_id="two")
    drawn, notes = read("inspect", tmp_path)
    assert numbered(drawn) == [(name, number - 1, text) for name, number, text in DRAWS if number > 0]
    assert any("newer one of the same task id" in note and "z.eval" in note for note in notes)
    assert any("joined in the order of their dates" in note for note in notes)


def test_an_index_of_a_folder_is_no_log(tmp_path: Path) -> None:
    """``logs.json`` has the headers of all logs by their names, those of unfinished ones too."""
    relogged(tmp_path / "x.eval")
    header = json.loads(members(INSPECT / "draws.eval")["header.json"])
    index = {"x.eval": header, "y.eval": header | {"status": "started"}}
    (tmp_path / "logs.json").write_text(json.dumps(index, indent=2))
    assert {sample.place.split(",")[0] for sample in samples("inspect", tmp_path)} == {str(tmp_path / "x.eval")}
    with pytest.raises(AssertionError, match="inspect knows none of"):
        read("inspect", tmp_path / "logs.json")
    (tmp_path / "y.json").write_text(
        json.dumps(header | {"status": "started", "eval": header["eval"] | {"task_id": "other"}, "samples": []})
    )
    with pytest.raises(InputError, match=r"y\.json: the log is not finished"):
        read("inspect", tmp_path)


def test_scores_of_each_kind(tmp_path: Path) -> None:
    """Edited scores count as they are now; several in one, letters and numbers outside of [0, 1] are told apart."""
    name = "samples/sums/sum-a.json_epoch_1.json"
    scores: dict[str, Any] = {"edited": {"value": "I", "answer": "3", "history": [{"value": "C"}]}}
    scores |= {"half": {"value": "P"}, "none": {"value": "N"}, "each": {"value": {"style": 0.25, "length": 7}}}
    scores["yes"] = {"value": True}
    content = members(INSPECT / "draws.eval") | {name: changed(INSPECT / "draws.eval", name, scores=scores)}
    first = samples("inspect", archive(tmp_path / "log.eval", content))[0]
    values = {key: verdict.value for key, verdict in first.verdicts.items()}
    assert values == {"edited": 0.0, "half": 0.5, "none": 0.0, "each.style": 0.25, "yes": 1.0}
    assert first.numbers == {"each.length": 7.0}


def test_ends_limits_chats_and_attachments(tmp_path: Path) -> None:
    name = "samples/sums/sum-a.json_epoch_1.json"
    output = {"choices": [{"message": {"content": "attachment://x"}, "stop_reason": "unknown"}]}
    chat = [{"role": "system", "content": "Be short."}, {"role": "user", "content": [{"type": "text", "text": "1+1?"}]}]
    values = {
        "output": output,
        "limit": {"type": "token", "limit": 5},
        "input": chat,
        "attachments": {"x": "kept apart"},
    }
    content = members(INSPECT / "draws.eval") | {name: changed(INSPECT / "draws.eval", name, **values)}
    first = samples("inspect", archive(tmp_path / "log.eval", content))[0]
    assert (first.text, first.finish, first.document.prompt) == ("kept apart", "length", "1+1?")


def test_a_json_log_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    whole = (INSPECT / "draws.json").read_bytes()
    log = tmp_path / "log.json"
    log.write_bytes(whole[: len(whole) * 2 // 3])
    with pytest.raises(InputError, match=r"log\.json is no whole JSON text"):
        read("inspect", log)


@pytest.mark.parametrize("part", range(8))
@pytest.mark.long
def test_a_json_log_is_read_the_same_wherever_it_is_cut_into_pieces(tmp_path: Path, part: int) -> None:
    """Values, escapes and characters of several bytes may lie across the pieces, of a megabyte, in which it is read."""
    text, log = (INSPECT / "draws.json").read_text(), tmp_path / "log.json"
    begin, samples_of_it = text.split('  "samples": [\n', 1)
    for place in range(part * 13, len(samples_of_it), 8 * 13):
        pad = "x" * (2**20 - len(begin.encode()) - place)
        log.write_text(f'{begin}  "pad": "{pad}",\n  "samples": [\n{samples_of_it}')
        assert numbered(samples("inspect", log)) == DRAWS
