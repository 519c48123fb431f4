"""Logs of Inspect (``.json``), one for each checkpoint, benchmark and policy: its viewer opens them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from searchlens.catalogue import exporter
from searchlens.formats.export import Pool, Record

LOST = (
    "token ids and log-probabilities of each token; candidates of one search look like independent epochs"
    " (metadata.run tells them apart)"
)

_STOPS = {"stop": "stop", "length": "max_tokens"}
_KEPT = ("temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty")


@exporter("inspect")
def write(pool: Pool, out: Path) -> Iterator[Path]:
    """The log of a pool, sample by sample."""
    path = pool.folder(out) / f"{pool.benchmark}.json"
    head = _head(pool)
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(head)[:-1] + ', "samples": [\n')
        for number, (question, row) in enumerate(pool.rows()):
            file.write((",\n" if number else "") + json.dumps(_sample(question, row, pool)))
        file.write("\n]}\n")
    yield path


def _head(pool: Pool) -> Record:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    name = pool.key.hex()[:22]
    ids = [question["id"] for question in pool.questions]
    accuracy = math.nan if pool.accuracy is None else pool.accuracy
    asked = {key: pool.asked[key] for key in _KEPT if key in pool.asked}
    if asked.get("top_k") == 0:
        del asked["top_k"]  # it keeps everything, which Inspect says by leaving it out
    metrics = {"accuracy": {"name": "accuracy", "value": accuracy, "params": {}}}
    score = {"name": pool.grader, "scorer": pool.grader, "params": {}, "metrics": metrics}
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "eval_id": name,
            "run_id": pool.fingerprint,
            "task_id": name,
            "created": now,
            "task": pool.benchmark,
            "dataset": {"name": pool.benchmark, "samples": len(ids), "sample_ids": ids, "shuffled": False},
            "model": pool.checkpoint,
            "config": {"epochs": pool.samples},
            "packages": {},
            "metadata": {
                "policy": pool.policy,
                "study": pool.fingerprint,
                "note": "samples with equal run are candidates of one search, not independent draws",
            },
        },
        "plan": {
            "name": "plan",
            "steps": [],
            "config": asked | ({"max_tokens": pool.max_tokens} if pool.max_tokens else {}),
        },
        "results": {"total_samples": len(pool.verdicts), "completed_samples": len(pool.verdicts), "scores": [score]},
        "stats": {"started_at": now, "completed_at": now},
    }


def _sample(question: Record, row: Record, pool: Pool) -> Record:
    text = row["text"] or ""
    message = {"role": "assistant", "content": text, "source": "generate"}
    choice = {"message": message, "stop_reason": _STOPS.get(row["finish"], "unknown")}
    failed, right = row["finish"] == "failed", row["correct"]
    grade = math.nan if right is None else "C" if right else "I"
    output: Record = {
        "model": pool.checkpoint,
        "choices": [] if failed else [choice],
        "completion": "" if failed else text,
    }
    if row["tokens"] is not None and not failed:
        output["usage"] = {"input_tokens": 0, "output_tokens": row["tokens"], "total_tokens": row["tokens"]}
    metadata = {
        key: row[key] for key in ("run", "score", "logprob") if row[key] is not None and math.isfinite(row[key])
    }
    found: Record = {
        "id": question["id"],
        "epoch": row["sample"] + 1,
        "input": question["prompt"] or "",
        "target": question["gold"] or "",
        "messages": [],
        "output": output,
        "scores": {} if failed else {pool.grader: {"value": grade, "answer": row["answer"]}},
        "metadata": metadata | ({"withheld": pool.withheld} if pool.withheld else {}),
    }
    if failed:
        found["error"] = {"message": "the search failed", "traceback": "", "traceback_ansi": ""}
    return found
