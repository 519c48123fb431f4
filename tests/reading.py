"""Helpers of the tests of readers: files as tools write them, and what a reader makes of them."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from searchlens import catalogue
from searchlens.formats.readers.logged import LoggedSample, Notes

LOGS = Path(os.environ.get("SEARCHLENS_LOGS") or Path(__file__).parent / "data/logs")
"""Logs that the harnesses wrote: those that are kept, or those of ``make test-harnesses``."""


def written(path: Path, rows: Iterable[Any]) -> Path:
    """JSON lines; texts are written as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def read(name: str, *paths: Path, **wishes: str) -> tuple[list[LoggedSample], list[str]]:
    """Samples and notes of the files that a reader finds in these paths."""
    reader = catalogue.find("reader", name)()
    files = [file for path in paths for file in reader.files(path)]
    assert files, f"{name} knows none of {paths}"
    notes = Notes()
    return list(reader.read(files, wishes, notes)), notes.lines


def samples(name: str, *paths: Path, **wishes: str) -> list[LoggedSample]:
    return read(name, *paths, **wishes)[0]


def numbered(drawn: Iterable[LoggedSample]) -> list[tuple[Any, int, str | None]]:
    """Id, number and text of each sample, in order of id and number."""
    return sorted(((s.document.id, s.sample, s.text) for s in drawn), key=lambda row: (str(row[0]), row[1]))


# ---- rows as tools write them


def nemo(text: str, **more: Any) -> dict[str, Any]:
    return {"id": "a", "problem": "1+1?", "expected_answer": "2", "generation": text, "num_generated_tokens": 3} | more


TYPES = pa.struct([("id", pa.string()), ("query", pa.string()), ("choices", pa.list_(pa.string())),
                   ("gold_index", pa.list_(pa.int64())), ("generation_size", pa.int64())])  # fmt: skip
ANSWER = pa.struct([("text", pa.list_(pa.string())), ("output_tokens", pa.list_(pa.list_(pa.int64()))),
                    ("logprobs", pa.list_(pa.float64())), ("text_post_processed", pa.list_(pa.string()))])  # fmt: skip


def lighteval_run(root: Path, docs: list[Any], answers: list[Any], metrics: list[Any], mark: str = "") -> None:
    """Details and results of a run of lighteval; ``mark`` stands around the names of columns."""
    date = "2026-05-05T10-00-00.000000"
    path = root / f"details/org/model/{date}/details_own|sums|0_{date}.parquet"
    results = root / f"results/org/model/results_{date}.json"
    for folder in (path.parent, results.parent):
        folder.mkdir(parents=True, exist_ok=True)
    columns = {
        f"{mark}doc{mark}": pa.array(docs, TYPES),
        f"{mark}metric{mark}": pa.array(metrics),
        f"{mark}model_response{mark}": pa.array(answers, ANSWER),
    }
    pq.write_table(pa.table(columns), path, row_group_size=1)
    model = {"generation_parameters": {"top_p": 0.9, "max_new_tokens": 3, "seed": None}}
    results.write_text(json.dumps({"config_general": {"model_name": "org/model", "model_config": model}}))


def chat(name: str, text: str = "1+1?", **more: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": "Add."}, {"role": "user", "content": text}]
    body = {"model": "m", "messages": messages, "temperature": 0.6} | more
    return {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body}


def reply(name: str, *texts: str | None, status: int = 200, **more: Any) -> dict[str, Any]:
    choices = [
        {"index": i, "message": {"content": text}, "finish_reason": "stop"} | more for i, text in enumerate(texts)
    ]
    body = {"model": "m-1", "choices": choices[::-1], "usage": {"completion_tokens": 5 * len(texts)}}
    return {"id": "x", "custom_id": name, "response": {"status_code": status, "body": body}, "error": None}


def rollout(text: str, prompt: str = "system Add. user 1+1?", **more: Any) -> dict[str, Any]:
    return {"input": prompt, "output": text, "gts": "2", "score": 1.1, "step": 5, "acc": True, "pred": "2"} | more


def predictions(path: Path, *rows: dict[str, Any], keys: list[int] | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    keys = keys or list(range(len(rows)))
    path.write_text(json.dumps({str(key): rows[key] for key in keys}, indent=4))
    return path


def predicted(prompt: str, text: Any, **more: Any) -> dict[str, Any]:
    return {"origin_prompt": prompt, "prediction": text, "gold": "2"} | more


def scoped(index: int, text: str, **more: Any) -> dict[str, Any]:
    choice = {"message": {"content": [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": text}]}}
    output = {"choices": [choice | {"stop_reason": "max_tokens"}], "usage": {"output_tokens": 4}} | more
    return {
        "index": index,
        "model": "m",
        "model_output": output,
        "messages": [{"role": "user", "content": f"q{index // 2}"}],
    }


def solved(idx: int, *texts: str, **more: Any) -> dict[str, Any]:
    row = {"idx": idx, "question": f"q{idx}", "gt": "2", "gt_cot": "", "code": list(texts), "pred": list(texts)}
    return row | {"score": [text == "2" for text in texts], "finish_reason": ["stop"] * len(texts)} | more


def ever(sample_id: str, *texts: str, metric: str = "acc", right: bool = True, **more: Any) -> dict[str, Any]:
    return {
        "schema_version": "0.3.0",
        "evaluation_id": "e",
        "model_id": "org/model",
        "evaluation_name": "sums",
        "evaluation_result_id": metric,
        "sample_id": sample_id,
        "interaction_type": "single_turn",
        "input": {"raw": "1+1?", "reference": ["2"]},
        "output": {"raw": list(texts)},
        "answer_attribution": [
            {"turn_idx": 0, "source": "", "extracted_value": "2", "extraction_method": "", "is_terminal": True}
        ],
        "evaluation": {"score": float(right), "is_correct": right},
    } | more
