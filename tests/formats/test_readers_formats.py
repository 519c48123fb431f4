"""Readers of formats whose packages cannot run here: files written from their sources, one case for each trap."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reading import (
    chat,
    ever,
    lighteval_run,
    nemo,
    numbered,
    predicted,
    predictions,
    read,
    reply,
    rollout,
    samples,
    scoped,
    solved,
    written,
)
from searchlens import catalogue
from searchlens.cli.main import parser
from searchlens.errors import InputError
from searchlens.formats.readers.fitting import recognised
from searchlens.formats.readers.logged import Verdict


def test_nemo_samples_are_ranks_of_seeds_and_no_row_says_how_they_were_drawn(tmp_path: Path) -> None:
    for seed, text in ((7, "two"), (2, "three")):
        written(tmp_path / f"sums/output-rs{seed}.jsonl", [nemo(text, finish_reason="stop")])
    drawn, notes = read("nemo_skills", tmp_path)
    assert numbered(drawn) == [("a", 0, "three"), ("a", 1, "two")]
    assert drawn[0].stream.asked == {}
    assert (drawn[0].stream.task, drawn[0].tokens, drawn[0].finish) == ("sums", 3, "stop")
    assert any("seeds are 2, 7" in note for note in notes)


def test_nemo_reasoning_that_was_removed_or_kept_apart_is_part_of_the_text(tmp_path: Path) -> None:
    rows = [
        nemo("", _full_generation="<think>hm", id="cut"),
        nemo("2", _full_generation="<think>hm</think>2", id="whole"),
        nemo("2", reasoning_content="hm", id="apart"),
    ]
    drawn = samples("nemo_skills", written(tmp_path / "output-rs0.jsonl", rows))
    assert [sample.text for sample in drawn] == ["<think>hm", "<think>hm</think>2", "hm\n\n2"]
    assert {sample.finish for sample in drawn} == {"unknown"}


def test_nemo_failed_requests_empty_lines_and_verdicts(tmp_path: Path) -> None:
    rows = [
        {},
        nemo("", num_generated_tokens=0),
        nemo(
            "2", id="b", predicted_answer="2", symbolic_correct=True, judgement="Judgement: No", reward_model_score=-3.5
        ),
        nemo("2", id="c", predicted_answer=None, symbolic_correct=False, judgement="who knows"),
    ]
    drawn, notes = read("nemo_skills", written(tmp_path / "output-rs0.jsonl", rows))
    assert [sample.finish for sample in drawn] == ["failed", "unknown", "unknown"]
    assert drawn[1].verdicts == {"symbolic": Verdict(1.0, "2"), "judge": Verdict(0.0, "2")}
    assert drawn[2].verdicts == {"symbolic": Verdict(0.0), "judge": Verdict(None)}
    assert drawn[1].numbers == {"reward_model_score": -3.5}
    assert any("empty object" in note for note in notes)
    row = nemo("", predicted_answer="2", symbolic_correct=True)
    del row["generation"]
    (alone,) = samples("nemo_skills", written(tmp_path / "verdicts/output-rs0.jsonl", [row]))
    assert (alone.text, alone.verdicts) == (None, {"symbolic": Verdict(1.0, "2")})


def test_nemo_parts_runs_under_way_and_outputs_without_a_seed(tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    for chunk in (0, 1):
        written(parts / f"output-rs0_chunk_{chunk}.jsonl", [nemo("x", id=f"q{chunk}")])
    assert numbered(samples("nemo_skills", parts)) == [("q0", 0, "x"), ("q1", 0, "x")]
    written(parts / "output-rs0.jsonl", [nemo("merged")])
    assert numbered(samples("nemo_skills", parts)) == [("a", 0, "merged")]

    late = tmp_path / "late"
    written(late / "output-rs0.jsonl-async", [nemo("x", _async_position=4)])
    with pytest.raises(InputError, match=r"output-rs0\.jsonl-async is still being written"):
        read("nemo_skills", late)
    assert numbered(samples("nemo_skills", late, partial="yes")) == [("a", 0, "x")]

    both = tmp_path / "both"
    written(both / "output.jsonl", [nemo("greedy")])
    written(both / "output-rs0.jsonl", [nemo("drawn")])
    with pytest.raises(InputError, match="an output without a seed beside outputs with one"):
        read("nemo_skills", both)


def test_log_probabilities_that_fit_no_token_are_left_out_and_noise_above_0_is_0(tmp_path: Path) -> None:
    rows = [nemo("x", logprobs=[-0.5, 1e-7, -1.0]), nemo("y", id="b", logprobs=[-0.5])]
    drawn, notes = read("nemo_skills", written(tmp_path / "output-rs0.jsonl", rows))
    assert [sample.logprobs for sample in drawn] == [(-0.5, 0.0, -1.0), None]
    assert any("not one for each token" in note for note in notes)


@pytest.mark.parametrize("mark", ["", "__"])
def test_lighteval_rows_are_documents_by_the_index_in_the_split(tmp_path: Path, mark: str) -> None:
    """Rows are shuffled; both spellings of the columns occur."""
    doc = {"query": "Solve: 1+1?", "choices": ["It is 2, because"], "gold_index": [0], "generation_size": 3}
    two = {"text": ["<think>hm</think>2", "3"], "output_tokens": [[5, 6, 7], [8]], "logprobs": [-0.5, -0.25, -1.0]}
    one = {"text": ["4"], "output_tokens": [[9, 9]], "logprobs": [-0.5], "text_post_processed": ["!"]}
    answers = [two | {"text_post_processed": ["2", "3"]}, one]
    metrics = [{"pass@k": 1.0, "length": 9.0}, {"pass@k": 0.0, "length": 9.0}]
    lighteval_run(tmp_path, [doc | {"id": "7"}, doc | {"id": "2"}], answers, metrics, mark)
    drawn, notes = read("lighteval", tmp_path)
    assert numbered(drawn) == [(2, 0, "4"), (7, 0, "<think>hm</think>2"), (7, 1, "3")]
    first, second, third = drawn
    assert first.document.is_index
    assert first.document.is_templated
    assert first.document.gold == ("It is 2, because",)
    ends = [(sample.finish, sample.is_finish_inferred) for sample in drawn]
    assert ends == [("length", True), ("unknown", False), ("unknown", False)]
    assert (first.tokens, second.tokens) == ((5, 6, 7), (8,))
    assert (first.logprobs, second.logprobs, third.logprobs) == ((-0.5, -0.25, -1.0), None, None)
    assert (first.verdicts, first.document_verdicts) == ({}, {"pass@k": Verdict(1.0)})
    assert (third.verdicts, third.numbers) == ({"pass@k": Verdict(0.0)}, {"length": 9.0})
    assert any("several texts together" in note for note in notes)
    assert (first.stream.model, first.stream.task) == ("org/model", "own|sums|0")
    assert first.stream.asked == {"temperature": 0.0, "top_p": 0.9, "max_tokens": 3}, "no temperature is greedy"


def test_details_of_an_older_lighteval_are_refused_by_name(tmp_path: Path) -> None:
    date = "2025-01-05T10-00-00.000000"
    path = tmp_path / f"details/org/model/{date}/details_own|sums|0_{date}.parquet"
    path.parent.mkdir(parents=True)
    row = {"full_prompt": "1+1?", "predictions": ["2"], "gold_index": 0, "metrics": {"qem": 1.0}, "choices": ["2"]}
    pq.write_table(pa.Table.from_pylist([row]), path)
    for where in (path, tmp_path):
        assert recognised([where]).name == "lighteval"
        with pytest.raises(InputError, match="details of an older lighteval") as error:
            read("lighteval", where)
        assert "evaluate again with a newer lighteval" in error.value.hint


def test_a_batch_is_joined_with_its_requests_in_any_order(tmp_path: Path) -> None:
    """Numbers of samples follow the requests, not the answers; two requests with one prompt are two draws."""
    asked = written(tmp_path / "in/input.jsonl", [chat("r1"), chat("r2", "2+2?"), chat("r3")])
    out = written(tmp_path / "out/output.jsonl", [reply("r3", "C"), reply("r2", "B"), reply("r1", "A")])
    drawn = samples("batch", out, requests=str(asked))
    found = sorted((s.document.prompt, s.sample, s.text) for s in drawn)
    assert found == [("1+1?", 0, "A"), ("1+1?", 1, "C"), ("2+2?", 0, "B")]
    assert {sample.tokens for sample in drawn} == {5}
    assert drawn[0].stream.asked == {"temperature": 0.6}


def test_choices_of_a_batch_are_samples_whose_tokens_are_not_known(tmp_path: Path) -> None:
    asked = written(tmp_path / "in.jsonl", [chat("r1", n=2), chat("r2", n=2)])
    out = written(tmp_path / "out.jsonl", [reply("r2", "C", "D"), reply("r1", "A", "B")])
    drawn = samples("batch", out, requests=str(asked))
    assert sorted((s.sample, s.text) for s in drawn) == [(0, "A"), (1, "B"), (2, "C"), (3, "D")]
    assert {sample.tokens for sample in drawn} == {None}


def test_failures_retries_and_refusals_of_a_batch(tmp_path: Path) -> None:
    asked = written(tmp_path / "in.jsonl", [chat(name, name) for name in ("a", "b", "c", "d", "e")])
    rows = [
        reply("a", "first", status=500),
        reply("a", "second"),
        reply("a", "third"),
        {"custom_id": "b", "response": None, "error": {"code": "expired"}},
        reply("c", None, finish_reason="tool_calls"),
        reply("d", "cut", finish_reason="length"),
    ]
    drawn, notes = read("batch", written(tmp_path / "out.jsonl", rows), requests=str(asked))
    assert {s.document.prompt: (s.text, s.finish) for s in drawn} == {
        "a": ("second", "stop"),
        "b": (None, "failed"),
        "c": (None, "failed"),
        "d": ("cut", "length"),
        "e": (None, "failed"),
    }
    assert any("answered again" in note for note in notes)
    assert any("has no answer" in note for note in notes)


def test_a_batch_needs_its_requests(tmp_path: Path) -> None:
    out = written(tmp_path / "out.jsonl", [reply("sum-1#3", "A")])
    with pytest.raises(InputError, match="prompts and sampling parameters are in the file of requests"):
        read("batch", out)
    asked = written(tmp_path / "in.jsonl", [chat("another")])
    with pytest.raises(InputError, match=r"out\.jsonl:1: custom_id 'sum-1#3' is not in the file of requests"):
        read("batch", out, requests=str(asked))
    twice = written(tmp_path / "twice.jsonl", [chat("x"), chat("x")])
    with pytest.raises(InputError, match=r"twice\.jsonl:2: custom_id 'x' occurs already"):
        read("batch", out, requests=str(twice))


def test_log_probabilities_of_a_batch_are_raw_only_on_demand(tmp_path: Path) -> None:
    asked = written(tmp_path / "in.jsonl", [chat("a"), chat("b", "2+2?")])
    content = [{"token": str(i), "logprob": -0.5} for i in range(5)]
    rows = [
        reply("a", "A", logprobs={"content": content}, message={"content": "A", "reasoning_content": "hm"}),
        reply("b", "B", logprobs={"token_logprobs": [-0.5] * 5}),
    ]
    out = written(tmp_path / "out.jsonl", rows)
    assert [s.logprobs for s in samples("batch", out, requests=str(asked))] == [None, None]
    drawn = samples("batch", out, requests=str(asked), logprobs="raw")
    assert [s.logprobs for s in drawn] == [(-0.5,) * 5] * 2
    assert drawn[0].text == "hm\n\nA"


def test_verl_groups_by_prompt_in_the_order_of_lines_and_each_step_is_a_model(tmp_path: Path) -> None:
    rows = [rollout("a"), rollout("b", "user 2+2?", gts={"ground_truth": "4"}), rollout("c")]
    written(tmp_path / "10.jsonl", [rollout("later", step=10, gts=None)])
    written(tmp_path / "5.jsonl", rows)
    drawn = samples("verl", tmp_path)
    assert [(s.stream.model, s.document.prompt, s.sample, s.text) for s in drawn] == [
        ("step 5", "system Add. user 1+1?", 0, "a"),
        ("step 5", "user 2+2?", 0, "b"),
        ("step 5", "system Add. user 1+1?", 1, "c"),
        ("step 10", "system Add. user 1+1?", 0, "later"),
    ]
    assert [s.document.gold for s in drawn] == [("2",), ("4",), ("2",), ()]
    assert drawn[0].document.is_templated
    assert (drawn[0].tokens, drawn[0].finish, drawn[0].stream.asked) == (None, "unknown", {})


def test_a_reward_is_no_verdict_without_a_rule(tmp_path: Path) -> None:
    path = written(tmp_path / "5.jsonl", [rollout("a"), rollout("b", acc=False, score=0.2)])
    drawn = samples("verl", path)
    assert [s.verdicts for s in drawn] == [{}, {}]
    assert drawn[0].numbers == {"score": 1.1, "acc": 1.0}
    judged = samples("verl", path, right="acc == 1")
    assert [s.verdicts for s in judged] == [{"acc": Verdict(1.0, "2")}, {"acc": Verdict(0.0, "2")}]
    assert [s.verdicts["score"].value for s in samples("verl", path, right="score>=0.5")] == [1.0, 0.0]
    with pytest.raises(InputError, match=r"5\.jsonl:1: no 'reward', which --right names; found: input"):
        read("verl", path, right="reward == 1")
    with pytest.raises(InputError, match="right is 'acc'; allowed: a name, one of ==,"):
        read("verl", path, right="acc")


def test_verl_s_own_generations_have_a_list_of_responses(tmp_path: Path) -> None:
    row = {
        "data_source": "sums",
        "prompt": [{"role": "user", "content": "1+1?"}],
        "reward_model": {"ground_truth": "2"},
        "extra_info": {"index": 4},
        "responses": ["a", "b"],
    }
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "out.parquet")
    drawn = samples("verl", tmp_path)
    assert numbered(drawn) == [(4, 0, "a"), (4, 1, "b")]
    assert (drawn[0].document.prompt, drawn[0].document.gold, drawn[0].verdicts) == ("1+1?", ("2",), {})


def test_trl_tables_may_share_rows(tmp_path: Path) -> None:
    folder = tmp_path / "run/completions"
    folder.mkdir(parents=True)
    rows = [
        {"prompt": "1+1?", "completion": text, "accuracy_reward": float(text == "2"), "advantage": -1.5}
        for text in ("2", "2", "3")
    ]
    message = [{"role": "assistant", "content": "4"}]
    for step, content in ((5, rows), (10, [*rows[1:], rows[0] | {"completion": "5"}])):
        table = pa.Table.from_pylist([{"step": step, **row} for row in content])
        pq.write_table(table, folder / f"completions_{step:05d}.parquet")
    pq.write_table(
        pa.Table.from_pylist([{"step": 15, "prompt": [{"role": "user", "content": "2+2?"}], "completion": message}]),
        folder / "completions_00015.parquet",
    )
    drawn, notes = read("trl", tmp_path)
    assert [(s.stream.model, s.document.prompt, s.sample, s.text) for s in drawn] == [
        ("step 5", "1+1?", 0, "2"),
        ("step 5", "1+1?", 1, "2"),
        ("step 5", "1+1?", 2, "3"),
        ("step 10", "1+1?", 0, "5"),
        ("step 15", "2+2?", 0, "4"),
    ]
    assert drawn[0].numbers == {"accuracy_reward": 1.0, "advantage": -1.5}
    assert drawn[0].document.gold == ()
    assert any(note.startswith("a row that the table before it has was left out (2 times") for note in notes)
    assert samples("trl", folder / "completions_00005.parquet", right="accuracy_reward == 1")[2].verdicts == {
        "accuracy_reward": Verdict(0.0)
    }


def test_opencompass_repeats_the_data_set_as_a_whole_and_its_parts_begin_again_at_0(tmp_path: Path) -> None:
    folder = tmp_path / "20260819/predictions/m"
    predictions(folder / "sums_0.json", predicted("a", "a0"), predicted("b", "b0"), predicted("a", "a1"))
    predictions(folder / "sums_1.json", predicted("b", "b1", gold=["x", "y"]))
    (folder / "tmp_other.jsonl").write_text("{}\n")
    drawn, notes = read("opencompass", tmp_path)
    assert numbered(drawn) == [(0, 0, "a0"), (0, 1, "a1"), (1, 0, "b0"), (1, 1, "b1")]
    assert (drawn[0].stream.model, drawn[0].stream.task, drawn[0].finish) == ("m", "sums", "unknown")
    assert drawn[-1].document.gold == ("x", "y")
    assert any("not finished" in note for note in notes)
    predictions(folder / "sums_3.json", predicted("c", "c0"))
    with pytest.raises(InputError, match=r"part sums_2\.json is missing"):
        read("opencompass", tmp_path)


def test_opencompass_keys_are_numbers_and_predictions_may_be_lists(tmp_path: Path) -> None:
    rows = [predicted(str(i % 6), f"t{i}") for i in range(12)]
    path = predictions(tmp_path / "sums.json", *rows, keys=sorted(range(12), key=str))
    assert [s.text for s in samples("opencompass", path)] == [f"t{i}" for i in range(12)]
    chat = [{"role": "HUMAN", "prompt": "1+1?"}]
    without = {"origin_prompt": chat, "prediction": ["x", "y"], "res_length": 7}
    drawn = samples("opencompass", predictions(tmp_path / "lists.json", without))
    assert numbered(drawn) == [(0, 0, "x"), (0, 1, "y")]
    assert (drawn[0].document.prompt, drawn[0].document.gold, drawn[0].tokens) == ("1+1?", (), None)


def test_opencompass_verdicts_are_those_of_dumped_details(tmp_path: Path) -> None:
    predictions(tmp_path / "predictions/m/sums.json", predicted("a", "2"), predicted("b", "3"))
    results = tmp_path / "results/m/sums.json"
    results.parent.mkdir(parents=True)
    details = {"type": "GEN", "0": {"predictions": "2", "correct": True}, "1": {"predictions": "3", "correct": False}}
    results.write_text(json.dumps({"accuracy": 50.0, "details": details}))
    assert [s.verdicts for s in samples("opencompass", tmp_path / "predictions")] == [
        {"opencompass": Verdict(1.0, "2")},
        {"opencompass": Verdict(0.0, "3")},
    ]
    results.write_text(json.dumps({"details": [{"pred": "2", "correct": True}] * 3}))
    with pytest.raises(InputError, match="2 rows, but the results have verdicts on 3"):
        read("opencompass", tmp_path / "predictions")


def test_evalscope_repeats_follow_each_other_and_lines_come_in_any_order(tmp_path: Path) -> None:
    rows = [scoped(3, "b1"), scoped(0, "a0"), scoped(2, "b0"), scoped(1, "", choices=[], error="gone")]
    written(tmp_path / "predictions/m/sums_main.jsonl", rows)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/task_config_x.yaml").write_text("repeats: 2\ngeneration_config: {temperature: 0.6, n: null}\n")
    drawn, notes = read("evalscope", tmp_path)
    assert numbered(drawn) == [(0, 0, "hm\n\na0"), (0, 1, None), (1, 0, "hm\n\nb0"), (1, 1, "hm\n\nb1")]
    assert [(s.finish, s.tokens) for s in drawn if s.text] == [("length", 4)] * 3
    assert drawn[0].stream.asked == {"temperature": 0.6}
    assert drawn[0].document.prompt == "q1"
    assert any("no reviews" in note for note in notes)
    assert numbered(samples("evalscope", tmp_path, repeats="4"))[-1][:2] == (0, 3)
    with pytest.raises(InputError, match="repeats is 'x'; allowed: a whole number"):
        read("evalscope", tmp_path, repeats="x")


def test_evalscope_reviews_have_groups_golds_and_verdicts(tmp_path: Path) -> None:
    written(tmp_path / "predictions/m/sums_main.jsonl", [scoped(0, "a"), scoped(1, "b")])
    reviews = [
        {
            "index": index,
            "target": "2",
            "input": "1+1?",
            "sample_score": {
                "group_id": 9,
                "generation_index": 1 - index,
                "score": {"value": {"acc": 1.0}, "extracted_prediction": "2", "status": status},
            },
        }
        for index, status in ((1, "success"), (0, "error"))
    ]
    written(tmp_path / "reviews/m/sums_main.jsonl", reviews)
    first, second = samples("evalscope", tmp_path / "predictions")
    assert [(s.document.id, s.sample) for s in (first, second)] == [(9, 1), (9, 0)]
    assert (first.document.gold, first.document.prompt) == (("2",), "1+1?")
    assert first.verdicts == {"acc": Verdict(None, "2")}
    assert second.verdicts == {"acc": Verdict(1.0, "2")}


def test_limit_of_rlvr_samples_are_ranks_of_seeds_times_n(tmp_path: Path) -> None:
    folder = tmp_path / "run-n2/eval_results/global_step_8/math"
    name = "test_qwen-boxed_-1_seed{}_t0.6_s{}_e{}.jsonl"
    written(folder / name.format(3, 0, -1), [solved(0, "2", "x"), solved(1, "2", "y")])
    written(folder / name.format(11, 0, 1), [solved(0, "p", "q", finish_reason=["length", "stop"])])
    written(folder / name.format(11, 1, 2), [solved(1, "r", "s")])
    drawn, notes = read("limit_of_rlvr", tmp_path)
    assert numbered(drawn) == [(i, k, text) for i, texts in enumerate(("2xpq", "2yrs")) for k, text in enumerate(texts)]
    assert drawn[0].verdicts == {"math_eval": Verdict(1.0, "2")}
    assert [s.finish for s in drawn if s.text in "pq"] == ["length", "stop"]
    assert drawn[0].stream.asked == {"temperature": 0.6}
    assert (drawn[0].stream.model, drawn[0].stream.task) == ("run-n2/global_step_8", "math")
    assert drawn[0].document.is_index
    assert any("cut at stop words" in note for note in notes)


def test_qwen_math_says_no_ends_and_lists_must_fit(tmp_path: Path) -> None:
    row = solved(0, "2")
    del row["finish_reason"]
    path = written(tmp_path / "test_cot_-1_seed0_t0.0_s0_e-1.jsonl", [row])
    assert [s.finish for s in samples("limit_of_rlvr", path)] == ["unknown"]
    written(path, [solved(0, "2"), solved(1, "2", "3")])
    with pytest.raises(InputError, match=r"jsonl:2: 2 texts in 'code', but 1 on the first line"):
        read("limit_of_rlvr", path)
    written(path, [solved(0, "2", pred=[])])
    with pytest.raises(InputError, match="'pred' has not one entry for each of the 1 texts"):
        read("limit_of_rlvr", path)


def test_every_eval_ever_repeats_and_metrics_are_told_apart(tmp_path: Path) -> None:
    rows = [ever("a", "x"), ever("a", "x", metric="judge", right=False), ever("a", "y", right=False)]
    rows.append(ever("a", "y", metric="judge"))
    path = written(tmp_path / "u_samples.jsonl", rows)
    generation = {"generation_config": {"generation_args": {"temperature": 0.5}}, "evaluation_name": "sums"}
    aggregate = {"eval_library": {"name": "ours", "version": "1"}, "evaluation_results": [generation]}
    (tmp_path / "u.json").write_text(json.dumps(aggregate))
    drawn = samples("every_eval_ever", path)
    assert numbered(drawn) == [("a", 0, "x"), ("a", 1, "y")]
    values = [{k: v.value for k, v in s.verdicts.items()} for s in drawn]
    assert values == [{"acc": 1.0, "judge": 0.0}, {"acc": 0.0, "judge": 1.0}]
    assert drawn[0].stream.asked == {"temperature": 0.5}
    assert {sample.finish for sample in drawn} == {"unknown"}


def test_every_eval_ever_epochs_lists_of_texts_and_failures(tmp_path: Path) -> None:
    rows = [
        ever("a", "second", metadata={"epoch": "2"}),
        ever("a", "first", metadata={"epoch": "1"}),
        ever("b", "p", "q"),
        ever("c", error="timeout", output=None),
    ]
    drawn = samples("every_eval_ever", written(tmp_path / "u_samples.jsonl", rows))
    assert numbered(drawn) == [("a", 0, "first"), ("a", 1, "second"), ("b", 0, "p"), ("b", 1, "q"), ("c", 0, None)]
    assert drawn[2].verdicts == {}
    assert drawn[2].document_verdicts == {"acc": Verdict(1.0, "2")}
    assert drawn[-1].finish == "failed"
    written(tmp_path / "u_samples.jsonl", [ever("a", interaction_type="agentic")])
    with pytest.raises(InputError, match="interaction_type 'agentic'; allowed: 'single_turn'"):
        read("every_eval_ever", tmp_path)


def test_texts_that_lm_eval_filtered_are_not_graded_again(tmp_path: Path) -> None:
    path = written(tmp_path / "u_samples.jsonl", [ever("3", "2", metadata={"filter": "strict"})])
    ((sample,), notes) = read("every_eval_ever", path)
    assert sample.text is None
    assert sample.verdicts["acc"].value == 1.0
    assert sample.document.is_index
    assert any("only their verdicts are kept" in note for note in notes)


LINES: dict[str, tuple[str, list[Any], dict[str, str]]] = {
    "nemo_skills": ("output-rs0.jsonl", [nemo("x"), nemo("y", id="b")], {}),
    "verl": ("5.jsonl", [rollout("x"), rollout("y", "2+2?")], {}),
    "limit_of_rlvr": ("test_cot_-1_seed0_t0.6_s0_e-1.jsonl", [solved(0, "x"), solved(1, "y")], {}),
    "every_eval_ever": ("u_samples.jsonl", [ever("a", "x"), ever("b", "y")], {}),
    "evalscope": ("predictions/m/sums_main.jsonl", [scoped(0, "x"), scoped(1, "y")], {}),
}


@pytest.mark.parametrize("name", LINES)
def test_lines_of_any_make_are_the_same_samples(tmp_path: Path, name: str) -> None:
    """Compressed, with a mark at the beginning, with Windows line ends, blank lines and keys of a later version."""
    file, rows, wishes = LINES[name]
    plain = written(tmp_path / "plain" / file, rows)
    expected = [(s.document, s.sample, s.text) for s in samples(name, plain, **wishes)]
    assert len(expected) == 2
    text = plain.read_bytes()
    newer = b"".join(json.dumps(row | {"of_a_later_version": {"x": [1]}}).encode() + b"\n" for row in rows)
    variants = {
        "gz": gzip.compress(text),
        "mark": b"\xef\xbb\xbf" + text,
        "windows": text.replace(b"\n", b"\r\n\r\n"),
        "newer": newer,
        "unended": text.rstrip(),
        "utf-16": text.decode().encode("utf-16"),
        "utf-16-be": b"\xfe\xff" + text.decode().encode("utf-16-be"),
        "old-mac": text.replace(b"\n", b"\r"),
    }
    for variant, content in variants.items():
        path = tmp_path / variant / (file + (".gz" if variant == "gz" else ""))
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        found = samples(name, tmp_path / variant, **wishes)
        assert [(s.document, s.sample, s.text) for s in found] == expected, variant


@pytest.mark.parametrize("name", LINES)
def test_lines_that_are_broken_are_named(tmp_path: Path, name: str) -> None:
    file, rows, wishes = LINES[name]
    first, second = (json.dumps(row) for row in rows)
    cases = {
        first + "\n" + second[:-9]: r":2: the file ends in the middle of this line",
        first + "\n" + second[:-9] + "\n": r":2: not JSON: .* at column",
        first + "\n[1]\n": r":2: a list instead of a JSON object",
        first + '\n{"question": "a", "answer": "b"}\n': r":2: no key '.*'; its keys: question, answer|:2: no key",
    }
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    for content, message in cases.items():
        path.write_text(content)
        with pytest.raises(InputError, match=message):
            read(name, path, **wishes)
    path.write_bytes(first.encode() + b"\n" + b"\xff" + second.encode() + b"\n")
    with pytest.raises(InputError, match=r":2: not UTF-8 text \(byte 0 of the line\)"):
        read(name, path, **wishes)


OWN = [{"question": f"q{i}", "sample": 0, "text": "Größe x → 1"} for i in range(3)]
OWN_TEXT = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in OWN)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.jsonl", OWN_TEXT.encode("utf-16")),
        ("rows.jsonl", OWN_TEXT.replace("\n", "\r").encode()),
        ("rows.jsonl", json.dumps(OWN).encode("utf-16")),
        ("rows.csv", ("question,sample,text\n" + "".join(f"q{i},0,Größe x → 1\n" for i in range(3))).encode("utf-16")),
    ],
    ids=["UTF-16", "old line ends", "a list", "CSV"],
)
def test_own_rows_in_utf_16_and_with_old_line_ends_are_read(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert recognised([path]).name == "own"
    assert numbered(samples("own", path)) == [(f"q{i}", 0, "Größe x → 1") for i in range(3)]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text.replace('"sample": 0', '"sample": 0, "sample": 1'), r"'sample'.* \(3 times\): .*:1, .*:2"),
        (lambda text: text.replace('"sample": 0', '"sample": 0, "logprob": -Infinity'), r"-Infinity.* \(3 times\)"),
        (lambda text: text.replace("Größe", "\\ud83d"), r"an escaped surrogate without its partner \(3 times\)"),
        (lambda text: text.replace("{", "{{"), r"not JSON: .* \(3 times\)"),
        (lambda text: text.replace("Größe", "\udcff"), r":1: not UTF-8 text \(byte \d+ of the line\)"),
        (lambda text: "\n\n", "all are blank"),
    ],
)
def test_what_is_wrong_with_all_rows_is_said(tmp_path: Path, change: Any, says: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(change(OWN_TEXT).encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=says):
        recognised([path])


def test_utf_16_that_breaks_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(OWN_TEXT.encode("utf-16")[:-31])
    with pytest.raises(InputError, match=r"rows\.jsonl is damaged: .*truncated data"):
        recognised([path])


def test_halves_of_characters_are_replaced_and_noted(tmp_path: Path) -> None:
    path = tmp_path / "output-rs0.jsonl"
    whole, half = json.dumps("\U0001f600"), '"\\ud83d cut"'
    row = json.dumps(nemo("X", problem="Y"))
    path.write_text(row.replace('"X"', half).replace('"Y"', whole) + "\n")
    ((sample,), notes) = read("nemo_skills", path)
    assert sample.text == "\ufffd cut"
    assert sample.document.prompt == "\U0001f600"
    assert any("U+FFFD" in note for note in notes)


def test_every_reader_says_from_what_it_was_made() -> None:
    options = {action.dest for action in parser().commands["import"]._actions}
    for name, declaration in catalogue.declared("reader").items():
        assert declaration.options["title"], name
        if name != "own":
            assert declaration.options["versions"], name
            assert isinstance(declaration.options["ran"], bool), name
            assert set(declaration.options["wishes"]) <= options, "the command has no option for it"
