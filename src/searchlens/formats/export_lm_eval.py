"""Samples in the layout of lm-evaluation-harness: a row for each question, with all its texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from searchlens.catalogue import exporter
from searchlens.formats.export import Pool, Record

LOST = "verdicts of all samples but the first of a question, ends, tokens and log-probabilities"

_SCORE = "exact_match"


@exporter("lm-eval")
def write(pool: Pool, out: Path) -> Iterator[Path]:
    """The file of samples of a pool, and the file of results beside it."""
    date = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S.%f")
    folder = pool.folder(out)
    samples, results = folder / f"samples_{pool.benchmark}_{date}.jsonl", folder / f"results_{date}.json"
    options: Record = {"until": []}
    if pool.asked:
        options |= {"do_sample": pool.asked["temperature"] > 0, **pool.asked}
    if pool.max_tokens:
        options["max_gen_toks"] = pool.max_tokens
    with samples.open("w", encoding="utf-8") as file:
        for number, (_, rows) in enumerate(groupby(pool.rows(), key=lambda item: item[1]["question"])):
            file.write(json.dumps(_row(number, list(rows), options)) + "\n")
    first = pool.verdicts.filter(sample=0)["correct"].cast(float).mean()
    found = {
        "results": {pool.benchmark: {"alias": pool.benchmark, f"{_SCORE},none": first}},
        "configs": {pool.benchmark: {"task": pool.benchmark, "generation_kwargs": options, "repeats": pool.samples}},
        "config": {"model": pool.checkpoint},
        "model_name": pool.checkpoint,
    }
    results.write_text(json.dumps(found, indent=1) + "\n")
    yield from (samples, results)


def _row(number: int, rows: list[tuple[Record, Record]], options: Record) -> Record:
    question, first = rows[0]
    prompt, gold, right = question["prompt"] or "", question["gold"] or "", first["correct"]
    doc = {"id": question["id"]} | ({"question": prompt} if prompt else {}) | ({"answer": gold} if gold else {})
    return {
        "doc_id": number,
        "doc": doc,
        "target": gold,
        "arguments": {"gen_args_0": {"arg_0": prompt, "arg_1": options}},
        "resps": [[row["text"] or "" for _, row in rows]],
        "filtered_resps": [first["answer"] or ""],
        "filter": "none",
        "metrics": [_SCORE],
        _SCORE: None if right is None else float(right),
    }
