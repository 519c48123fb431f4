"""Stage ``score``: samples to graded samples, and how recorded verdicts compare with ours."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from searchlens import grading
from searchlens.analysis.health import Counts, Find, counted, examples, judge, together
from searchlens.benchmarks import Question
from searchlens.cli.stages import costs
from searchlens.config.health import DEFAULTS, HealthOptions
from searchlens.config.limits import PART_ROWS
from searchlens.errors import InputError
from searchlens.grading import score as grades
from searchlens.store import provenance, shards
from searchlens.store.columns import COMPARED
from searchlens.store.files import read_bytes, read_json, temporary_folder
from searchlens.store.frames import GROUP, IMPORT_AGAIN, join_frames, made_by, read_frame, readable, write_frame
from searchlens.store.layout import Layout
from searchlens.store.provenance import Judge

if TYPE_CHECKING:
    from searchlens.plan import needs


_END = 300
"""Characters of the end of a text that are kept of a disagreement."""
_KEY = ["policy", "question", "sample"]


def recorded_verdicts(cell: needs.Score, layout: Layout) -> pl.DataFrame:
    """The verdicts that count in place of a grader's: ``policy``, ``question``, ``sample``, ``value``, ``answer``."""
    scorer = cell.grader.partition(":")[2]
    parts = []
    for key, policy, _ in cell.imports:
        path = layout.recorded(cell.samples.checkpoint, cell.samples.benchmark, key)
        if not path.exists():
            raise InputError(f"{path} does not exist; it has the verdicts of {policy}", IMPORT_AGAIN)
        said = read_frame(path, "import", IMPORT_AGAIN)
        found = said.filter(scorer=scorer).unique(["question", "sample"], keep="first")
        parts.append(found.select(pl.lit(policy).alias("policy"), "question", "sample", "value", "answer"))
    return pl.concat(parts)


def write_compared(
    cell: needs.Score, questions: Sequence[Question], layout: Layout, find: Find, scores: pl.LazyFrame
) -> None:
    """Write how our verdicts compare with the recorded ones of a cell; an older file is removed if there are none.

    ``find`` is ``read_some`` of the cell.
    """
    where = (cell.samples.checkpoint, cell.samples.benchmark)
    output = layout.compared(*where)
    paths = [(layout.recorded(*where, key), policy) for key, policy, _ in cell.imports]
    parts = [_compared(path, policy, cell.grader, questions, find, scores) for path, policy in paths if path.exists()]
    if any(part.height for part in parts):
        write_frame(pl.concat(parts), output)
    else:
        output.unlink(missing_ok=True)


def _compared(
    path: Path, policy: str, grader: str, questions: Sequence[Question], find: Find, scores: pl.LazyFrame
) -> pl.DataFrame:
    ids = pl.Series([question.id for question in questions])
    graded = scores.filter(policy=policy).select("sample", "correct", "question").collect()
    ours = graded.with_columns(question=ids.gather(graded["question"]))
    with readable(path, "import", IMPORT_AGAIN) as content:
        theirs, is_quoted = pl.read_parquet(content), pl.read_parquet_metadata(content).get("searchlens.quotes") != "no"
    if grades.is_recorded(grader):  # of which one scorer is ours
        theirs = theirs.filter(pl.col("scorer") != grader.partition(":")[2])
    both = theirs.join(ours, on=["question", "sample"], how="left", maintain_order="left")
    is_right, is_ours = pl.col("value") == 1, pl.col("correct")
    unscored = pl.when(pl.col("value").is_null()).then(pl.lit("unscored"))
    agreed = unscored.when(is_right & is_ours).then(pl.lit("both_right"))
    agreed = agreed.when(~is_right & ~is_ours).then(pl.lit("both_wrong"))
    outcome = agreed.when(is_right).then(pl.lit("theirs_alone")).otherwise(pl.lit("ours_alone"))
    named = both.with_columns(policy=pl.lit(policy), outcome=outcome).rename({"answer": "theirs"})
    lines: list[tuple[object, ...]] = []
    if is_quoted:
        judge, golds = grading.grader(grader), {question.id: question.gold for question in questions}
        apart = named.filter(pl.col("outcome").is_in(["ours_alone", "theirs_alone"])).select(_KEY).unique()
        for row in apart.join(find(apart), on=_KEY, how="left").iter_rows(named=True):
            answer = judge.extract(row["text"], row["stopped"] is not False).answer
            lines.append((*(row[key] for key in _KEY), golds[row["question"]], answer, row["text"][-_END:]))
    else:
        named = named.with_columns(theirs=pl.lit(None, pl.String))
    schema = {name: COMPARED[name] for name in (*_KEY, "gold", "ours", "end")}
    texts = pl.DataFrame(lines, schema, orient="row").cast({"sample": pl.UInt32()})
    joined = named.join(texts, on=_KEY, how="left", maintain_order="left")
    return joined.select(COMPARED.names()).cast(COMPARED)  # type: ignore[arg-type]


log = logging.getLogger(__name__)

# ---- the stage

_PART_BYTES = 2**28
"""Most bytes of answers that are judged together: where an answer is the whole text, they are many."""

_COLUMNS = ("question", "sample", "text", "run", "n_tokens", "generated", "score", "finish")


def score(
    cell: needs.Score,
    questions: Sequence[Question],
    layout: Layout,
    manifests: Iterable[Path],
    output: Path,
    *,
    fingerprint: str,
    threads: int = 1,
    limits: HealthOptions = DEFAULTS,
    quotes: bool = True,
) -> None:
    """Grade the samples of one cell, and log its health, with some of its texts unless all is well.

    ``manifests`` of the cell's pools list the samples, also if the configuration has changed since. ``limits`` decide
    what is logged, and nothing that is written. Without ``quotes`` the log shows no texts: the terms of gated
    benchmarks forbid it. An InputError: there are no samples, or a shard cannot be used.
    """
    manifests = tuple(manifests)
    counts, summary = _write(cell, questions, layout, manifests, threads, output)
    scores, find = pl.scan_parquet(read_bytes(output)), partial(read_some, cell, layout, manifests)
    write_compared(cell, questions, layout, find, scores)
    grader = Judge(cell.grader, grading.grader(cell.grader).version)
    spent = provenance.spent(sidecar for _, sidecar in costs.sidecars(cell.samples, layout))
    streams = {name: each[:2] for each in _streams(cell, manifests) for name in each.policies}
    provenance.sign(output.with_suffix(".json"), fingerprint, spent, grader=vars(grader), streams=streams)
    name = f"{cell.samples.checkpoint}/{cell.samples.benchmark}"
    health = judge(together(counts), cell.default_policy, limits)
    log.info("%s: %s", name, summary)
    if health.reason:
        log.warning("%s: some of its texts:\n%s", name, "\n".join(examples(scores, find, questions, quotes=quotes)))
    log.log(logging.INFO if health.level == "ok" else logging.WARNING, "%s: %s; %s", name, health, health.shares)


def _write(
    cell: needs.Score,
    questions: Sequence[Question],
    layout: Layout,
    manifests: Sequence[Path],
    threads: int,
    output: Path,
) -> tuple[list[Counts], str]:
    """Write graded samples; returns their counts for the health of the cell, and in words.

    Texts are in memory of one policy at a time, and what was found in them of some policies (``PART_ROWS``). Their
    verdicts wait beside the output until the answers of all policies are numbered. Verdicts of a log that count in
    place of a grader's are read all at once.
    """
    streams = _streams(cell, manifests)
    if grades.is_recorded(cell.grader):
        samples = pl.concat(part.drop("text") for part in _read(cell, layout, streams))
        said = recorded_verdicts(cell, layout)
        scores = grades.score_recorded(samples, said, questions, q_instructions=cell.q_instructions)  # type: ignore[arg-type]
        write_frame(scores, output, GROUP)
        right, unknown = int(scores["correct"].sum()), int(scores["unknown"].sum())
        text = f"{scores.height} samples: {right} right by {cell.grader}, {unknown} without a verdict"
        return [counted(scores)], text
    rules = grades.Rules(
        questions,
        cell.grader,
        layout.verdicts(cell.samples.benchmark),
        q_instructions=cell.q_instructions,  # type: ignore[arg-type]
        wrong_key_policy=cell.default_policy,
        seed=cell.seed,
        workers=threads,
    )
    with temporary_folder(output) as folder:
        waiting, forms, summaries = [], [], []
        for number, part in enumerate(_parts(_answers(cell, layout, streams))):
            rows, summary = rules.judged(part)
            waiting.append(folder / f"{number}.parquet")
            write_frame(rows, waiting[-1])
            forms.append(grades.distinct_forms(rows))
            summaries.append(summary)
        classes, counts = grades.answer_classes(forms), []
        for path in waiting:
            graded = rules.graded(pl.read_parquet(read_bytes(path)), classes)
            counts.append(counted(graded))
            write_frame(graded, path, GROUP)
        join_frames(waiting, output, GROUP)
    return counts, str(grades.together(summaries))


def _answers(cell: needs.Score, layout: Layout, streams: Sequence[_Stream]) -> Iterator[pl.DataFrame]:
    """What was found in the texts of each policy, policies in the order of the streams."""
    for policy in dict.fromkeys(name for stream in streams for name in stream.policies):
        own = [stream._replace(policies=(policy,)) for stream in streams if policy in stream.policies]
        yield pl.concat(grades.found_answers(part, cell.grader) for part in _read(cell, layout, own))


def _parts(policies: Iterable[pl.DataFrame], rows: int = PART_ROWS, size: int = _PART_BYTES) -> Iterator[pl.DataFrame]:
    """Some policies after others: as many together as have so many samples and bytes; at least one."""
    part: list[pl.DataFrame] = []
    for policy in policies:
        together = [*part, policy]
        if part and (sum(map(len, together)) > rows or sum(each.estimated_size() for each in together) > size):
            yield pl.concat(part)
            together = [policy]
        part = together
    yield pl.concat(part)


class _Stream(NamedTuple):
    """Samples [0, samples) of one folder of the store, and the policies that they are of."""

    id: str
    samples: int
    policies: Sequence[str]


def _streams(cell: needs.Score, manifests: Iterable[Path]) -> list[_Stream]:
    """What a cell's samples are stored in, sampled ones first."""
    names = {stream.id: stream.policies for stream in cell.samples.streams}
    entries: dict[str, _Stream] = {}
    for path in manifests:  # several jobs may share a stream
        if not path.exists():
            raise InputError(f"cannot read {path}: No such file or directory", made_by("generate"))
        try:
            for entry in read_json(path)["generations"]:
                key, samples = entry["id"], entry["samples"]
                first = entries.setdefault(key, _Stream(key, samples, names.get(key, entry["policies"])))
                entries[key] = first._replace(samples=max(first.samples, samples))
        except (KeyError, TypeError):
            raise InputError(f"{path} is no manifest of samples", "delete it; the next run writes it again") from None
    found = list(entries.values())
    found += [_Stream(key, count, (policy,)) for key, policy, count in cell.imports]
    if not found:
        where = f"{cell.samples.checkpoint}/{cell.samples.benchmark}"
        raise InputError(f"{where} has no samples to grade", "sample it first, or import samples")
    return found


def _read(
    cell: needs.Score, layout: Layout, streams: Iterable[_Stream], questions: Collection[str] | None = None
) -> Iterator[pl.DataFrame]:
    """Samples under the name of each policy, one stream after the other; of some questions if their ids are given."""
    where = (cell.samples.checkpoint, cell.samples.benchmark)
    for stream in streams:
        folder = layout.generation(*where, stream.id)
        samples = shards.read_generation(folder, stream.samples, _COLUMNS, questions)
        yield from (grades.named(samples, policy) for policy in stream.policies)


def read_some(cell: needs.Score, layout: Layout, manifests: Iterable[Path], wanted: pl.DataFrame) -> pl.DataFrame:
    """The samples of a cell that are ``wanted``, with their texts, in the order of the store.

    ``wanted`` has ``policy``, ``question`` (an id) and ``sample``; policies and questions that are not named in it are
    not read.
    """
    keys = wanted.select("policy", "question", pl.col("sample").cast(pl.UInt32))
    streams = [stream for stream in _streams(cell, manifests) if keys["policy"].is_in(stream.policies).any()]
    parts = _read(cell, layout, streams, keys["question"].unique().to_list())
    found = [part.join(keys, on=keys.columns, how="semi", maintain_order="left") for part in parts]
    return pl.concat(found) if found else grades.SAMPLES.to_frame()
