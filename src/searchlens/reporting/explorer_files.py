"""Every file that the page of a study may ask for, by name, and what is made for it: small files, in memory.

Files of the results folder are given as they are. Questions, answers and texts of tokens are made when they are first
asked for, and kept in memory within a bound; nothing is written.
"""

from __future__ import annotations

import io
import json
import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from urllib.parse import unquote

import polars as pl

from searchlens.api.study import Study, StudyQuestion
from searchlens.errors import InputError, counted
from searchlens.reporting.explorer_index import RESULTS, SOLVED, Index, solvers
from searchlens.reporting.explorer_sentences import if_here
from searchlens.store import shards
from searchlens.store.frames import read_compared, readable

log = logging.getLogger(__name__)

QUESTIONS = pl.Schema({"question": pl.UInt32(), **dict.fromkeys(("id", "text", "gold", "tags"), pl.String())})
ANSWERS = pl.Schema(
    {"policy": pl.String, "question": pl.UInt32, "class": pl.Int32, "correct": pl.Boolean, "text": pl.String}
    | {"count": pl.UInt32}
)
SCORED = ("question", "sample", "side", "token_ids", "logps_base", "logps_rl", "ranks_base", "ranks_rl")
"""Columns of ``store.columns.SCORED_TEXTS`` that the page reads."""
_KEY = ("policy", "question", "sample")
_BEHIND = 2**32
"""Added to the number of a sample, it comes after all others."""


def parquet(frame: pl.DataFrame) -> bytes:
    """A frame as a file that the page can read, in small pages: it unpacks those that it shows."""
    stream = io.BytesIO()
    frame.write_parquet(stream, compression="zstd", compression_level=12, data_page_size=shards.PAGE)
    return stream.getvalue()


def questions(found: Iterable[StudyQuestion]) -> pl.DataFrame:
    """The questions of a benchmark: ``QUESTIONS``, tags as JSON."""
    rows = [(each.index, each.id, each.text, each.gold, json.dumps(dict(each.tags), default=str)) for each in found]
    return pl.DataFrame(rows, QUESTIONS, orient="row")


def answers(samples: pl.DataFrame) -> pl.DataFrame:
    """The answers in some samples (``Study.samples``): ``ANSWERS``, each class as it was written most often."""
    stated = samples.filter(pl.col("answer").is_not_null(), pl.col("answer_class") >= 0)
    classes = ["policy", "question", "answer_class"]
    spelled = stated.group_by(*classes, "answer").agg(pl.len().alias("written"), pl.col("correct").any())
    first = spelled.sort(*classes, "written", "answer", descending=[False, False, False, True, False])
    found = first.group_by(classes, maintain_order=True).agg(
        pl.col("correct").any(), pl.col("answer").first(), pl.col("written").sum()
    )
    return found.rename({"answer_class": "class", "answer": "text", "written": "count"}).cast(ANSWERS)  # type: ignore[arg-type]


# ---- the excerpt


@dataclass(frozen=True)
class Extent:
    """How much of each cell a part of an excerpt has."""

    questions: int | None
    """None: all."""
    samples: int
    """Of each policy and question."""
    every_policy: bool = False
    """Otherwise the default policy alone."""
    tokens: bool = False
    """With the tokens and their log-probabilities."""

    def __str__(self) -> str:
        """The extent in words."""
        questions = f"{self.questions} questions of each cell" if self.questions else "every question"
        policies = "every policy" if self.every_policy else "the default policy"
        tokens = "with" if self.tokens else "without"
        samples = f"{counted(self.samples, 'sample')} of {policies} at most"
        return f"{questions}, {samples}, {tokens} log-probabilities of tokens"


TELLING = 20
_WIDE = Extent(TELLING, 4, every_policy=True, tokens=True)
_NARROW = Extent(TELLING, 4, tokens=True)
EXCERPTS: Sequence[Sequence[Extent]] = (
    (Extent(None, 4, every_policy=True, tokens=True),),
    *((_WIDE, Extent(None, count, tokens=tokens)) for count, tokens in ((4, True), (4, False), (2, False))),
    *((_NARROW, Extent(None, count)) for count in (4, 2, 1)),
    *((Extent(count, 1),) for count in (None, 200, 100, 50, 20, 10, 5, 2)),
)
"""From the widest to the narrowest: texts of as many questions as fit, and of the ``TELLING`` ones the most. A question
is in the first part that has it.
"""

_SHARES = {"rl_only": 0.5, "base_only": 0.25, "both": 0.2, "neither": 0.05}
"""Of the questions of an excerpt, as far as there are as many."""


def telling(study: Study, benchmark: str, base: str, rl: str, count: int) -> list[int]:
    """The questions of a pair, first the ``count`` that tell most, beginning with those that RL alone solves.

    Each group (``_SHARES``) has its share of them, and places that are left go to the groups in their order. In a group
    those come first on which the shares of right samples differ most.
    """
    sides = [solvers(study, checkpoint, benchmark) for checkpoint in (base, rl)]
    both = sides[0].join(sides[1], on="question", suffix="_rl")
    distance = (pl.col("right") / pl.col("samples") - pl.col("right_rl") / pl.col("samples_rl")).abs()
    ordered = both.sort(distance, "question", descending=[True, False])
    solved = [SOLVED[name] for name in _SHARES]
    groups = [ordered.filter(solved=base, solved_rl=rl)["question"].to_list() for base, rl in solved]
    chosen = [group[: max(1, round(share * count))] for group, share in zip(groups, _SHARES.values(), strict=True)]
    for i, group in enumerate(groups):
        left = max(0, count - sum(map(len, chosen)))
        chosen[i] = group[: len(chosen[i]) + left]
    first = [question for taken in chosen for question in taken][:count]
    return list(dict.fromkeys([*first, *ordered["question"].to_list()]))


def drawn(study: Study, checkpoint: str, benchmark: str, asked: Sequence[int], extent: Extent) -> pl.DataFrame:
    """All samples of some questions, under the policies of an extent; an ``InputError`` if they are not here, or not
    those of the scores.
    """
    policy = None if extent.every_policy else study.default_policy
    return study.samples(checkpoint, benchmark, policy, list(asked), tokens=extent.tokens)


def excerpt(samples: pl.DataFrame, extent: Extent, recorded: pl.DataFrame) -> pl.DataFrame:
    """Some of the ``drawn`` samples of each policy and question: the first right and the first wrong one, then the
    others in order. ``logp`` is of each token under the raw model, ``logq`` under the policy; ``recorded`` is what
    another tool said.
    """
    group = ["policy", "question"]
    first_of_kind = pl.col("sample") == pl.col("sample").min().over(*group, "correct")
    later = pl.when(first_of_kind).then(0).otherwise(_BEHIND)
    chosen = samples.filter((pl.col("sample").cast(pl.Int64) + later).rank("ordinal").over(group) <= extent.samples)
    lists = {
        name: (pl.col(column) if column in samples.columns else pl.lit(None, kind)).alias(name)
        for name, column, kind in (
            ("tokens", "token_ids", pl.List(pl.Int32())),
            ("logp", "logprobs", pl.List(pl.Float32())),
            ("logq", "sampling_logprobs", pl.List(pl.Float32())),
        )
    }
    return chosen.join(recorded, on=_KEY, how="left", maintain_order="left").select(
        *(*_KEY, "run", "text", lists["tokens"].cast(pl.List(pl.UInt32())), lists["logp"], lists["logq"]),
        *(pl.col("tokens").alias("n_tokens"), "score", "correct", pl.col("answer_class").alias("class"), "answer"),
        *("extraction", "finish", "unknown", "recorded"),
    )


def recorded_verdicts(study: Study, checkpoint: str, benchmark: str) -> pl.DataFrame:
    """What another tool said of imported samples, in words; no rows where there is nothing. An ``InputError`` if a file
    is damaged.
    """
    schema = {"policy": pl.String(), "question": pl.UInt32(), "sample": pl.UInt32(), "recorded": pl.String()}
    rows = read_compared(study.layout, checkpoint, benchmark)
    positions = if_here(lambda: {each.id: each.index for each in study.questions(benchmark)})
    if rows is None or positions is None:
        return pl.DataFrame(schema=schema)
    said = pl.format("{}: {}", "scorer", pl.col("value").cast(pl.String).fill_null("no value"))
    rows = rows.with_columns(pl.col("question").replace_strict(positions, return_dtype=pl.UInt32))
    return rows.group_by(_KEY).agg(said.str.join("; ").alias("recorded")).cast(schema)  # type: ignore[arg-type]


def scored(study: Study, pair: str, benchmark: str, excerpts: Mapping[str, pl.DataFrame]) -> pl.DataFrame | None:
    """What both sides say of the tokens of excerpts, by the side that drew them: ``SCORED``; None if nothing.

    A sample counts if its very tokens were scored. An ``InputError`` if the file is damaged.
    """
    path = study.layout.likelihood_frame(pair, benchmark, "texts")
    if not path.exists():
        return None
    key = ["side", "question", "sample", "token_ids"]
    shown = pl.concat(
        rows.select(pl.lit(side).alias("side"), "question", "sample", pl.col("tokens").cast(pl.List(pl.Int32)))
        for side, rows in excerpts.items()
    ).rename({"tokens": "token_ids"})
    with readable(path, "likelihood") as content:
        found = pl.scan_parquet(content).select(SCORED).join(shown.lazy(), on=key, how="semi").collect()
    return found if found.height else None


def containing(study: Study, checkpoint: str, benchmark: str, words: str) -> bytes:
    """Policy, question and sample of the first text of each question that has some words, in any letters, as JSON."""
    found: dict[int, tuple[str, int, int]] = {}
    has_words = pl.col("text").str.to_lowercase().str.contains(words.lower(), literal=True)
    for policy, parts in study.shards(checkpoint, benchmark).items():
        for shard in parts:
            with readable(shard.path, "generate") as content:
                rows = pl.read_parquet(content, columns=["sample", "text"]).with_row_index("row").filter(has_words)
            for row, sample, _ in rows.iter_rows():
                question = row // (shard.stop - shard.start)
                found.setdefault(question, (policy, question, sample))
    return json.dumps(list(found.values())).encode()


# ---- tokens


def prompts(study: Study, checkpoint: str, benchmark: str, asked: Sequence[int]) -> bytes | None:
    """Question to the tokens of its prompt (``Prompt``) as JSON; None if they are not known here."""
    try:
        sent = study.prompts(checkpoint, benchmark, asked)
    except InputError as error:
        log.info("%s/%s: %s", checkpoint, benchmark, error.message)
        return None
    return json.dumps(dict(zip(asked, map(asdict, sent), strict=True)), ensure_ascii=False).encode()


def pieces(study: Study, checkpoint: str, tokens: Collection[int] | None = None) -> bytes | None:
    """Token to its text as JSON; without tokens, of the whole vocabulary. None if the tokenizer, or the library that
    reads it, is not here.

    A token is decoded behind another one, because many tokenizers leave the space before the first word out.
    """
    try:
        from tokenizers import Tokenizer

        path = study.vocabulary(checkpoint)
        if not path.exists():
            return None
        tokenizer = Tokenizer.from_file(str(path))
    except (ModuleNotFoundError, InputError):
        return None
    except Exception as error:  # the library has no class of its own for a file that it cannot read
        log.warning("the tokenizer of %s cannot be read: %s", checkpoint, error)
        return None
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    ids = range(size) if tokens is None else sorted(tokens)
    front = next((i for i in range(size) if tokenizer.decode([i]).isalnum()), 0)
    before = len(tokenizer.decode([front]))
    found = {str(i): tokenizer.decode([front, i], skip_special_tokens=False)[before:] for i in ids if i < size}
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()


def withheld(study: Study) -> list[str]:
    """Sentences on the benchmarks whose terms forbid to show their questions."""
    return [
        f"Questions, texts and answers of {spec.title or name}: {reason}."
        for name, spec in study.benchmarks.items()
        if (reason := study.withheld(name))
    ]


# ---- by name

MEMORY, MOST = 256 * 2**20, 1000
"""Bytes of made files that are kept, and how many files."""

_READABLE = ("landscape", "recovery", "measures", "boptr", "tables", "figures", "scores")
"""Folders of results without texts: everything in them is given."""
_WITH_TEXTS = ("generations", "recorded", "traces")
"""Folders with a folder for each checkpoint, and in it one for each benchmark: given unless texts are withheld."""
_SUFFIXES = {".parquet", ".csv", ".svg", ".md"}

_MADE = re.compile(
    r"questions/(?P<questions>[^/]+)\.parquet"
    r"|answers/(?P<checkpoint>[^/]+)/(?P<benchmark>[^/]+)/(?P<policy>[^/]+)/(?P<question>[0-9]{1,9})\.parquet"
    r"|pieces/(?P<pieces>[^/]+)\.json"
    r"|prompts/(?P<model>[^/]+)/(?P<asked>[^/]+)/(?P<place>[0-9]{1,9})\.json"
    r"|found/(?P<side>[^/]+)/(?P<searched>[^/]+)/(?P<words>[^/]+)\.json"
)


class Files:
    """The files of one study."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._root = study.results.resolve()
        self._withheld = {name for name in study.benchmarks if study.withheld(name)}
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._lock = Lock()
        self._making = [Lock() for _ in range(64)]

    @property
    def index(self) -> bytes:
        """``index.json`` of the study as it is now."""
        made = Index(self._study, self._may_have, by_ranges=True, left_out=withheld(self._study)).made()
        return json.dumps(made, ensure_ascii=False, default=str).encode()

    def _may_have(self, name: str) -> bool:
        """Whether the index may name a file. Whether a made one can be had is found out when it is asked for."""
        if name.startswith(f"{RESULTS}/"):
            return self.path(name) is not None
        kind, *parts = name.rpartition(".")[0].split("/")
        if kind == "pieces":
            return self._has_vocabulary(parts[0])
        benchmark = parts[0] if kind == "questions" else parts[1]
        if kind not in ("questions", "prompts", "answers") or benchmark in self._withheld:
            return False
        if kind == "prompts":
            return self._study.source(*parts[:2]) == "sampled" and self._has_vocabulary(parts[0])
        return kind == "questions" or self._study.source(*parts[:2]) != "recorded"

    def _has_vocabulary(self, checkpoint: str) -> bool:
        return bool(if_here(lambda: self._study.vocabulary(checkpoint).exists()))

    # ---- files of the results folder

    def path(self, name: str) -> Path | None:
        """The file of a name that begins with ``results/``; None if there is none, or it is not to be given.

        A name is taken literally: it has no empty part, no ``.`` and no ``..``. What a link leads to outside of the
        folder is not given.
        """
        parts = name.split("/")
        if parts[0] != RESULTS or len(parts) < 3 or any(part in ("", ".", "..") or "\0" in part for part in parts):
            return None
        folder = parts[1]
        has_texts = folder in _WITH_TEXTS and len(parts) > 5 and parts[3] not in self._withheld
        if folder == "likelihood":
            is_text = parts[4:] == ["texts.parquet"]
            has_texts = parts[4:] == ["bounds.parquet"] or (is_text and parts[3] not in self._withheld)
        if not (folder in _READABLE or has_texts) or Path(parts[-1]).suffix not in _SUFFIXES:
            return None
        try:
            path = self._root.joinpath(*parts[1:]).resolve(strict=True)
        except OSError:
            return None
        return path if path.is_relative_to(self._root) and path.is_file() else None

    # ---- files that are made

    def made(self, name: str) -> bytes | None:
        """The content of a file that is made on request; None if there is none. An ``InputError`` if what it is made of
        is not here.
        """
        make = self._maker(name)
        if make is None:
            return None
        with self._making[hash(name) % len(self._making)]:  # the same file is made once, others at the same time
            with self._lock:
                if name in self._kept:
                    self._kept.move_to_end(name)
                    return self._kept[name]
            content = make()
            with self._lock:
                if content is not None:
                    self._kept[name] = content
                while len(self._kept) > MOST or (len(self._kept) > 1 and sum(map(len, self._kept.values())) > MEMORY):
                    self._kept.popitem(last=False)
            return content

    def _maker(self, name: str) -> Callable[[], bytes | None] | None:
        match = _MADE.fullmatch(name)
        if match is None:
            return None
        study = self._study
        if (benchmark := match["questions"]) is not None:
            return None if benchmark in self._withheld else lambda: parquet(questions(study.questions(benchmark)))
        if (checkpoint := match["pieces"]) is not None:
            return lambda: pieces(study, checkpoint) or b"{}"
        if (model := match["model"]) is not None:
            return lambda: prompts(study, model, match["asked"], [int(match["place"])]) or b"{}"
        if (side := match["side"]) is not None:
            searched, words = match["searched"], unquote(match["words"])
            return None if searched in self._withheld else lambda: containing(study, side, searched, words)
        if match["benchmark"] in self._withheld:
            return None
        sample = (match["checkpoint"], match["benchmark"], match["policy"], int(match["question"]))
        return lambda: parquet(answers(study.samples(*sample)))
