"""Records of Every Eval Ever: an aggregate for each checkpoint, benchmark and policy, and a line for each sample."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from time import time
from uuid import UUID

from searchlens import __version__
from searchlens.catalogue import exporter
from searchlens.formats.export import Pool, Record

LOST = "log-probabilities and ends (as metadata only); verdicts that are not known (is_correct has no such value)"

_VERSION = "0.3.0"
_ARGUMENTS = ("temperature", "top_p", "top_k")


@exporter("every-eval-ever")
def write(pool: Pool, out: Path) -> Iterator[Path]:
    """The aggregate of a pool and the lines of its samples; samples without a verdict are left out."""
    stamp = str(int(time()))
    name = str(UUID(bytes=pool.key[:16], version=4))
    folder = out / "data" / pool.benchmark / "searchlens" / pool.checkpoint
    folder.mkdir(parents=True, exist_ok=True)
    evaluation = f"{pool.benchmark}/{pool.checkpoint}/{stamp}"
    lines, aggregate = folder / f"{name}_samples.jsonl", folder / f"{name}.json"
    with lines.open("w", encoding="utf-8") as file:
        for question, row in pool.rows():
            if row["correct"] is not None:
                file.write(json.dumps(_line(question, row, pool, evaluation)) + "\n")
    aggregate.write_text(json.dumps(_aggregate(pool, evaluation, stamp, lines), indent=1) + "\n")
    yield from (aggregate, lines)


def _result_id(pool: Pool) -> str:
    return f"{pool.benchmark}/{pool.policy}/accuracy"


def _line(question: Record, row: Record, pool: Pool, evaluation: str) -> Record:
    raw, reference = question["prompt"] or "", [question["gold"]] if question["gold"] else []
    hashed = json.dumps({"raw": raw, "reference": reference}, sort_keys=True, separators=(",", ":"))
    metadata = {name: str(row[name]) for name in ("sample", "run")} | {
        "policy": pool.policy,
        "finish": str(row["finish"]),
    }
    if row["logprob"] is not None:
        metadata["logprob"] = repr(row["logprob"])
    answer: list[Record] = []
    if row["answer"] is not None:
        taken = {"turn_idx": 0, "source": "output.raw", "extracted_value": row["answer"]}
        answer = [taken | {"extraction_method": pool.grader, "is_terminal": True}]
    line: Record = {
        "schema_version": _VERSION,
        "evaluation_id": evaluation,
        "model_id": pool.checkpoint,
        "evaluation_name": pool.benchmark,
        "evaluation_result_id": _result_id(pool),
        "sample_id": question["id"],
        "sample_hash": hashlib.sha256(hashed.encode()).hexdigest(),
        "interaction_type": "single_turn",
        "input": {"raw": raw, "reference": reference},
        "output": {"raw": [row["text"]] if row["text"] is not None else []},
        "answer_attribution": answer,
        "evaluation": {"score": float(row["correct"]), "is_correct": bool(row["correct"])},
        "metadata": metadata,
    }
    if row["finish"] == "failed":
        line["error"] = "the search failed"
    return line


def _aggregate(pool: Pool, evaluation: str, stamp: str, lines: Path) -> Record:
    arguments = {key: pool.asked[key] for key in _ARGUMENTS if key in pool.asked}
    if arguments.get("top_k") == 0:
        del arguments["top_k"]
    if pool.max_tokens:
        arguments["max_tokens"] = pool.max_tokens
    metric = {"lower_is_better": False, "score_type": "continuous", "min_score": 0, "max_score": 1}
    result = {
        "evaluation_result_id": _result_id(pool),
        "evaluation_name": pool.benchmark,
        "source_data": {"dataset_name": pool.benchmark, "source_type": "other"},
        "metric_config": metric | {"metric_id": "accuracy", "metric_name": "Accuracy"},
        "score_details": {"score": 0.0 if pool.accuracy is None else pool.accuracy, "details": {"policy": pool.policy}},
        "generation_config": {"generation_args": arguments},
    }
    return {
        "schema_version": _VERSION,
        "evaluation_id": evaluation,
        "retrieved_timestamp": stamp,
        "source_metadata": {
            "source_name": "searchlens",
            "source_type": "evaluation_run",
            "source_organization_name": "unknown",
            "evaluator_relationship": "other",
        },
        "eval_library": {"name": "searchlens", "version": __version__},
        "model_info": {
            "name": pool.checkpoint,
            "id": pool.checkpoint,
            "developer": "unknown",
            "additional_details": {"deployment_type": "unknown", "model_availability": "unknown"},
        },
        "evaluation_results": [result],
        "detailed_evaluation_results": {
            "format": "jsonl",
            "file_path": "/".join(lines.parts[-5:]),
            "hash_algorithm": "sha256",
            "checksum": hashlib.sha256(lines.read_bytes()).hexdigest(),
            "total_rows": sum(1 for _ in lines.open("rb")),
        },
    }
