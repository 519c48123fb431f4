"""The texts of a cell, joined with their verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from searchlens import catalogue, grading
from searchlens.errors import InputError, require_known
from searchlens.grading.score import is_recorded
from searchlens.store import shards
from searchlens.store.files import read_json
from searchlens.store.frames import IMPORT_AGAIN, read_frame
from searchlens.store.layout import Layout
from searchlens.store.provenance import Judge
from searchlens.store.ranges import Shard, shards_of

SAMPLES = pl.Schema(
    {
        "policy": pl.String(),
        "question": pl.UInt32(),
        "id": pl.String(),
        "sample": pl.UInt32(),
        "run": pl.UInt32(),
        "text": pl.String(),
        "correct": pl.Boolean(),
        "answer": pl.String(),
        "answer_class": pl.Int32(),
        "extraction": pl.String(),
        "unknown": pl.Boolean(),
        "tokens": pl.UInt32(),
        "logprob": pl.Float64(),
        "score": pl.Float32(),
        "finish": pl.String(),
    }
)
"""``question`` is the position in the benchmark, ``id`` its id. ``answer`` is what the grader finds in the text, null
if there is none; ``answer_class`` and ``unknown`` are ``answer`` and ``unknown`` of the scores. ``tokens`` counts them;
``logprob`` is the natural log-probability of the whole text under the raw model."""

_LISTS = {"token_ids": "tokens", "logprobs": "logprobs", "sampling_logprobs": "sampling_logprobs"}
_VERDICT = ("correct", "answer_class", "extraction", "unknown")
_KEY = ["policy", "question", "sample"]

Stream = tuple[str, int]
"""Generation id and samples of each question."""


@dataclass(frozen=True)
class Place:
    """A cell, and where its samples come from."""

    layout: Layout
    checkpoint: str
    benchmark: str
    source: str
    """``Study.source``."""
    grader: str
    """The configured one."""
    imports: Sequence[tuple[str, str, int]]
    """Policy, id and samples of each question."""

    @property
    def name(self) -> str:
        """As messages name it."""
        return f"{self.checkpoint}/{self.benchmark}"

    def folder(self, generation_id: str) -> Path:
        """Folder of one stream."""
        return self.layout.generation(self.checkpoint, self.benchmark, generation_id)

    @property
    def scores(self) -> Path:
        """File of the graded samples."""
        return self.layout.scores(self.checkpoint, self.benchmark)

    @property
    def signature(self) -> Mapping[str, Any]:
        """What the grading said of itself; empty if it said nothing."""
        path = self.scores.with_suffix(".json")
        return read_json(path) if path.exists() else {}  # type: ignore[no-any-return]


def streams(place: Place) -> dict[str, Stream]:
    """The stream of each policy that was graded; of a policy without scores, the newest."""
    found: dict[str, Stream] = {}
    for entry in _entries(place):
        for policy in entry["policies"]:
            key, count = found.setdefault(policy, (entry["id"], 0))
            found[policy] = key, max(count, entry["samples"] if key == entry["id"] else 0)
    for policy, key, count in place.imports:
        found.setdefault(policy, (key, count))
    graded = {policy: (key, count) for policy, (key, count) in place.signature.get("streams", {}).items()}
    return found | {policy: stream for policy, stream in graded.items() if place.folder(stream[0]).exists()}


def files(place: Place) -> dict[str, list[Shard]]:
    """The shards by policy that the scores are of, in order, each with samples that those before it have not."""
    found: dict[str, list[Shard]] = {}
    for policy, (key, count) in streams(place).items():
        found[policy], reached = [], 0
        for shard in shards_of(place.folder(key)):
            if shard.start <= reached < min(shard.stop, count) and shard.path.exists() and not shard.flaw:
                reached = shard.stop
                found[policy].append(shard)
    return found


def asked(place: Place) -> list[str]:
    """Hashes of the questions that the stored samples were asked, each once."""
    return list(dict.fromkeys(entry["spec"]["questions"] for entry in _entries(place)))


def _entries(place: Place) -> Iterator[dict[str, Any]]:
    """Entries of the manifests of a cell, those of the newest first."""
    manifests = place.layout.every(place.layout.manifest(place.checkpoint, place.benchmark, "pool-*"))
    for path in sorted(manifests, key=lambda path: path.stat().st_mtime_ns, reverse=True):
        yield from read_json(path)["generations"]


def read(
    place: Place, policy: str | None, question: int | str | Sequence[int | str] | None, *, tokens: bool
) -> pl.DataFrame:
    """The samples of a cell (``Study.samples``); an ``InputError`` if there are none here, a name is unknown, or the
    scores are of other samples.
    """
    known = streams(place)
    if not known and place.source == "recorded":
        raise InputError(
            f"{place.name} has no texts: it was read from recorded counts, which keep only how many samples gave each"
            " answer",
            "Study.classes has these counts; to see texts, sample the benchmark (study.sample)",
        )
    if not known:
        folder = place.layout.manifest(place.checkpoint, place.benchmark, "*").parent
        raise InputError(
            f"{place.name} has no samples here: {folder} has no manifest",
            "`searchlens run` makes them; of a copy, copy `manifests` and `generations`, too",
        )
    names = [require_known(policy, known, f"policy of {place.name}")] if policy is not None else list(known)
    graded = read_frame(place.scores, "score") if place.scores.exists() else None
    parts = [_of_policy(place, name, known[name], question, graded, tokens) for name in names]
    return _with_answers(pl.concat(parts), place).select(*SAMPLES.names(), *(_LISTS if tokens else ()))


def _of_policy(
    place: Place,
    policy: str,
    stream: Stream,
    question: int | str | Sequence[int | str] | None,
    graded: pl.DataFrame | None,
    tokens: bool,
) -> pl.DataFrame:
    verdicts = None if graded is None else graded.filter(pl.col("policy") == policy)
    ids = question_ids(place, stream[0])
    asked = None if question is None else _chosen(question, ids, place)
    columns = ("question", "sample", "run", "text", "n_tokens", "score", "finish", "logprobs")
    wanted = (*columns, "tokens", "sampling_logprobs") if tokens else columns
    rows = shards.read_generation(place.folder(stream[0]), stream[1], wanted, asked)
    logprobs = pl.col("logprobs").cast(pl.List(pl.Float64)).list.sum()
    texts = rows.select(
        pl.lit(policy).alias("policy"),
        pl.col("question").replace_strict(ids, range(len(ids)), return_dtype=pl.UInt32),
        pl.col("question").alias("id"),
        *("sample", "run", "text", "score", "finish"),
        pl.col("n_tokens").alias("tokens"),
        pl.when(pl.col("logprobs").is_not_null()).then(logprobs).alias("logprob"),
        *(pl.col(column).alias(name) for name, column in _LISTS.items() if tokens),
    )
    if verdicts is None or not verdicts.height:
        return texts.with_columns(pl.lit(None, SAMPLES[name]).alias(name) for name in _VERDICT)
    optional = [
        pl.col(name) if name in verdicts.columns else pl.lit(None, SAMPLES[name]).alias(name)  # graded elsewhere
        for name in ("extraction", "unknown")
    ]
    renamed = (pl.col("answer").alias("answer_class"), pl.col("tokens").alias("graded_tokens"))
    told = verdicts.select(*_KEY, "correct", *renamed, *optional)
    joined = texts.join(told, on=_KEY, how="left", maintain_order="left")
    if (joined["correct"].is_null() | (joined["tokens"] != joined["graded_tokens"])).any():
        raise InputError(
            f"{place.scores} is of other samples of {policy} than those in {place.folder(stream[0])}",
            f"`searchlens run` grades {place.name} anew, or its stage alone: `searchlens score`",
        )
    return joined.drop("graded_tokens")


def _recorded_answers(place: Place) -> pl.DataFrame:
    parts = [pl.DataFrame(schema={"policy": pl.String, "id": pl.String, "sample": pl.UInt32, "answer": pl.String})]
    for policy, key, _ in place.imports:
        path = place.layout.recorded(place.checkpoint, place.benchmark, key)
        if path.exists():
            said = read_frame(path, "import", IMPORT_AGAIN).filter(scorer=place.grader.partition(":")[2])
            said = said.unique(["question", "sample"], keep="first").rename({"question": "id"})
            parts.append(said.select(pl.lit(policy).alias("policy"), "id", "sample", "answer"))
    return pl.concat(parts)


def question_ids(place: Place, generation_id: str) -> list[str]:
    """Ids of the questions of a stream in the order of the benchmark, which is that of its shards."""
    if not (there := shards_of(folder := place.folder(generation_id))):
        raise InputError(f"{folder} has no samples", "of a copy, copy `generations`, too; or `searchlens run`")
    first = next((shard for shard in there if shard.path.exists() and not shard.flaw), there[0])
    return shards.read(first, generation_id, ["question"])["question"].unique(maintain_order=True).to_list()


def _chosen(question: int | str | Sequence[int | str], ids: Sequence[str], place: Place) -> list[str]:
    by_name: dict[int | str, str] = {**dict(enumerate(ids)), **{name: name for name in ids}}
    several = question if isinstance(question, Sequence) and not isinstance(question, str) else [question]
    for each in several:
        if not isinstance(each, int | str) or each not in by_name:
            last = len(ids) - 1
            raise InputError(f"{place.name} has no question {each!r}; it has {len(ids)}: 0 to {last}, or an id")
    return [by_name[each] for each in several]


def _with_answers(rows: pl.DataFrame, place: Place) -> pl.DataFrame:
    """The answers that the grader finds in the texts; null throughout if there is no such grader here.

    Where the verdicts of a log count, they are the answers that its scorer took.
    """
    if is_recorded(place.grader):
        return rows.join(_recorded_answers(place), on=["policy", "id", "sample"], how="left")
    judge = Judge.of(place.signature, place.grader).name
    if judge not in catalogue.declared("grader"):
        return rows.with_columns(answer=pl.lit(None, pl.String))
    extract = grading.grader(judge).extract
    stopped = (rows["finish"].fill_null("stop") == "stop").to_list()
    answers = [extract(text, end).answer for text, end in zip(rows["text"].to_list(), stopped, strict=True)]
    return rows.with_columns(answer=pl.Series(answers, dtype=pl.String))
