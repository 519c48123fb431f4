"""Samples and verdicts of a study in the formats of other tools: Every Eval Ever, Inspect, lm-evaluation-harness, and
rows of our own. An exporter writes a ``Pool``: the samples of one checkpoint on one benchmark under one policy, with
their questions.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from itertools import groupby, islice
from pathlib import Path
from time import time
from typing import Any
from uuid import UUID

import polars as pl
import pyarrow.parquet as pq

from searchlens import __version__
from searchlens.api.study import Study
from searchlens.catalogue import declaration, exporter, find
from searchlens.errors import InputError
from searchlens.formats import hub
from searchlens.search.policy import from_spec
from searchlens.store import frames
from searchlens.store.files import move, temporary_folder

Record = dict[str, Any]
ROWS = 50_000
"""Samples in memory at once."""


@dataclass(frozen=True)
class Pool:
    """Samples of one policy."""

    checkpoint: str
    benchmark: str
    policy: str
    asked: Mapping[str, Any]
    """Parameters of its local policy under the names of ``Sampling``; empty if only the study knows the policy."""
    max_tokens: int | None
    grader: str
    withheld: str
    """Why no question and no text may be exported; empty if they may."""
    fingerprint: str
    """Of the study's configuration."""
    questions: tuple[Record, ...]
    """``id``, ``prompt`` and ``gold`` in the order of the benchmark; the last two are None if they are withheld."""
    drawn: int
    """Samples of a question."""
    read: Callable[[list[int]], pl.DataFrame]
    """Gives ``Study.samples`` of some questions, by their positions."""

    @cached_property
    def verdicts(self) -> pl.DataFrame:
        """``sample`` and ``correct`` of every sample."""
        return pl.concat(block.select("sample", "correct") for block in self._blocks())

    def _blocks(self) -> Iterator[pl.DataFrame]:
        """Samples ordered by question, then sample, of as many questions together as have some ``ROWS``."""
        size = max(1, ROWS // max(1, self.drawn))
        for start in range(0, len(self.questions), size):
            yield self.read(list(range(start, min(start + size, len(self.questions))))).sort("question", "sample")

    @property
    def key(self) -> bytes:
        """32 bytes that tell this pool from those of other cells, policies and configurations."""
        names = [self.fingerprint, self.checkpoint, self.benchmark, self.policy]
        return hashlib.sha256(json.dumps(names).encode()).digest()

    @property
    def accuracy(self) -> float | None:
        """Mean of the verdicts that are known."""
        mean = self.verdicts["correct"].cast(pl.Float64).mean()
        return float(mean) if isinstance(mean, float) else None

    def rows(self) -> Iterator[tuple[Record, Record]]:
        """Each question with each of its samples; texts and answers are None if they are withheld."""
        hidden = dict.fromkeys(("text", "answer")) if self.withheld else {}
        for frame in self._blocks():
            for row in frame.iter_rows(named=True):
                yield self.questions[row["question"]], row | hidden

    def folder(self, out: Path) -> Path:
        """Where files of this pool alone are written."""
        folder = out / self.checkpoint / self.benchmark / self.policy
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def pools(study: Study, only: Collection[str] = ()) -> Iterator[Pool]:
    """Every policy, or those that are named, of every cell that has samples here; an ``InputError`` if no cell has a
    named one.
    """
    known: set[str] = set()
    for row in study.cells.filter(pl.col("source") != "recorded").iter_rows(named=True):
        checkpoint, benchmark = row["checkpoint"], row["benchmark"]
        for policy in study.streams(checkpoint, benchmark):
            known.add(policy)
            if not only or policy in only:
                yield _pool(study, checkpoint, benchmark, policy)
    if missing := set(only) - known:
        raise InputError(f"no policy {', '.join(sorted(missing))}; policies with samples: {', '.join(sorted(known))}")


def _pool(study: Study, checkpoint: str, benchmark: str, policy: str) -> Pool:
    withheld, settings = study.withheld(benchmark), study.config.benchmarks.get(benchmark)
    shown = [(q.id, None, None) if withheld else (q.id, q.text, q.gold) for q in study.questions(benchmark)]
    try:
        asked = asdict(from_spec(policy, study.config.policies.get(policy)).local)
    except InputError:  # no name spells it
        asked = {}
    return Pool(
        checkpoint=checkpoint,
        benchmark=benchmark,
        policy=policy,
        asked=asked,
        max_tokens=settings.max_tokens if settings else None,
        grader=settings.grader if settings else "correct",
        withheld=withheld,
        fingerprint=study.fingerprint,
        questions=tuple(dict(zip(("id", "prompt", "gold"), one, strict=True)) for one in shown),
        drawn=study.streams(checkpoint, benchmark)[policy][1],
        read=partial(study.samples, checkpoint, benchmark, policy),
    )


def lost(to: str) -> str:
    """What a format cannot hold, as the exporter declares it."""
    return str(declaration("exporter", to).options["lost"])


def export(study: Study, to: str, out: Path, policies: Iterable[str] = ()) -> list[Path]:
    """Write every policy, or those that are named, of every cell that has samples; ``out`` appears when all are
    written.

    Returns the files. An ``InputError`` if the format is unknown, the folder has files, or nothing is there to be
    written.
    """
    write = find("exporter", to)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} is there and not an empty folder", "name a new one, so that no file is overwritten")
    with temporary_folder(out.absolute()) as folder:
        each = list(pools(study, set(policies)))
        written = [path.relative_to(folder) for pool in each for path in write(pool, folder)]
        if not written:
            raise InputError(f"{study.results} has no samples to export", "sample it first: recorded cells have none")
        if to == "hub":
            (folder / "README.md").write_text(hub.card(study, each, folder), encoding="utf-8")
            written.append(Path("README.md"))
        move(folder, out.absolute())
    return [out / path for path in written]


# ---- Every Eval Ever

_VERSION = "0.3.0"
_ARGUMENTS = ("temperature", "top_p", "top_k")


@exporter(
    "every-eval-ever",
    lost="log-probabilities and ends (as metadata only); verdicts that are not known (is_correct has no such value)",
)
def write_every_eval_ever(pool: Pool, out: Path) -> Iterator[Path]:
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


def _stated(pool: Pool, names: Collection[str]) -> Record:
    """Parameters by these names, and the limit of tokens; a ``top_k`` that keeps everything is left out."""
    asked = {name: value for name, value in pool.asked.items() if name in names and (name, value) != ("top_k", 0)}
    return asked | ({"max_tokens": pool.max_tokens} if pool.max_tokens else {})


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
    metric = {"lower_is_better": False, "score_type": "continuous", "min_score": 0, "max_score": 1}
    result = {
        "evaluation_result_id": _result_id(pool),
        "evaluation_name": pool.benchmark,
        "source_data": {"dataset_name": pool.benchmark, "source_type": "other"},
        "metric_config": metric | {"metric_id": "accuracy", "metric_name": "Accuracy"},
        "score_details": {"score": 0.0 if pool.accuracy is None else pool.accuracy, "details": {"policy": pool.policy}},
        "generation_config": {"generation_args": _stated(pool, _ARGUMENTS)},
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


# ---- Inspect

_STOPS = {"stop": "stop", "length": "max_tokens"}
_KEPT = ("temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty")


@exporter(
    "inspect",
    lost="token ids and log-probabilities of each token; candidates of one search look like independent epochs"
    " (metadata.run tells them apart)",
)
def write_inspect(pool: Pool, out: Path) -> Iterator[Path]:
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
            "config": {"epochs": pool.drawn},
            "packages": {},
            "metadata": {
                "policy": pool.policy,
                "study": pool.fingerprint,
                "note": "samples with equal run are candidates of one search, not independent draws",
            },
        },
        "plan": {"name": "plan", "steps": [], "config": _stated(pool, _KEPT)},
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


# ---- lm-evaluation-harness

_SCORE = "exact_match"


@exporter("lm-eval", lost="verdicts of all samples but the first of a question, ends, tokens and log-probabilities")
def write_lm_eval(pool: Pool, out: Path) -> Iterator[Path]:
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
        "configs": {pool.benchmark: {"task": pool.benchmark, "generation_kwargs": options, "repeats": pool.drawn}},
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


# ---- rows of our own

_SCHEMA = pl.Schema(
    {
        **{name: pl.String() for name in hub.COLUMNS if name != "benchmark"},
        **dict.fromkeys(("sample", "tokens"), pl.Int64()),
        "logprob": pl.Float64(),
        "correct": pl.Boolean(),
    }
)
"""``logprob`` is the mean over tokens, as in docs/import.md."""


@exporter("jsonl", lost="token ids and log-probabilities of each token; which samples a search returned together")
def write_jsonl(pool: Pool, out: Path) -> Iterator[Path]:
    """JSON lines; what is not known is left out."""
    path = pool.folder(out) / "samples.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for row in _rows(pool):
            file.write(json.dumps({key: value for key, value in row.items() if value is not None}) + "\n")
    yield path


@exporter("parquet", lost="token ids and log-probabilities of each token; which samples a search returned together")
def write_parquet(pool: Pool, out: Path) -> Iterator[Path]:
    """Parquet."""
    path = pool.folder(out) / "samples.parquet"
    _write_parquet(path, _SCHEMA.to_frame(), _frames(pool))
    yield path


@exporter("hub", lost="token ids and log-probabilities of each token; which samples a search returned together")
def write_hub(pool: Pool, out: Path) -> Iterator[Path]:
    """Parquet in the layout of a dataset of the Hugging Face hub, to which ``export`` adds the card."""
    path = out / "data" / pool.checkpoint / pool.benchmark / f"{pool.policy}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = [pl.lit(pool.benchmark).alias("benchmark"), pl.all()]
    _write_parquet(path, _SCHEMA.to_frame().select(columns), (frame.select(columns) for frame in _frames(pool)))
    yield path


def _write_parquet(path: Path, empty: pl.DataFrame, frames: Iterable[pl.DataFrame]) -> None:
    with pq.ParquetWriter(path, empty.to_arrow().schema, compression="zstd") as writer:
        for frame in frames:
            writer.write_table(frame.to_arrow())


@exporter("csv", lost="token ids and log-probabilities of each token; which samples a search returned together")
def write_csv(pool: Pool, out: Path) -> Iterator[Path]:
    """Comma-separated values, in which texts that a spreadsheet would run as formulas have a quote before them."""
    path = pool.folder(out) / "samples.csv"
    with path.open("wb") as file:
        for number, frame in enumerate(_frames(pool)):
            frames.without_formulas(frame).write_csv(file, include_header=not number)
    yield path


def _frames(pool: Pool) -> Iterator[pl.DataFrame]:
    """``_rows``, some of them at a time."""
    rows = _rows(pool)
    while part := list(islice(rows, ROWS)):
        yield pl.DataFrame(part, schema=_SCHEMA)


def _rows(pool: Pool) -> Iterator[Record]:
    for question, row in pool.rows():
        tokens, logprob = row["tokens"], row["logprob"]
        known = row | {"question": question["id"], "gold": question["gold"], "prompt": question["prompt"]}
        known |= {"policy": pool.policy, "model": pool.checkpoint}
        known["logprob"] = logprob / tokens if logprob is not None and tokens else None
        yield {name: known[name] for name in _SCHEMA}
