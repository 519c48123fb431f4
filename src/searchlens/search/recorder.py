"""The recorder: what one search did, as rows that a table or a page can show.

Controllers and evaluators say what they do by ``task.note(kind, **values)``. A recorder takes these notes, counts what
the engine draws meanwhile, and numbers the nodes. Nothing that it does reaches the search.

A note gives nodes by names: any hashable value that no other node of the run has. Notes of these kinds make rows:

``node``, ``end``, ``rollout``
    A text: ``node`` (its name), ``parent`` (the name of the node that it grew from), ``start`` (how many tokens of the
    parent's text it keeps), and ``path`` (a ``Trace``, whole, which the recorder keeps, because evaluators may speak of
    it), or its own ``tokens``, ``logp``, ``logq`` and ``finish``. An ``end`` is a path of thoughts that was drawn to
    its end. A rollout is drawn to judge a path; it gives ``of``, the ``Trace`` of that path, in place of a parent. A
    note ``node`` on a node that has a row adds to that row.
``scored``, ``chosen``, ``iteration``
    ``nodes``: nodes that an evaluator scored together (``scores``, in their order), those that were kept, and those of
    a descent from the root to a leaf; ``node`` of an iteration is the text that it ended with.
``judged``
    Why an evaluator scored a path (``path``) as it did.

``step`` says which rows belong together; without one, a row has the last that was given. Other values are columns of
``COLUMNS``, or go into ``detail``. When the search has ended, ``finish`` adds a row ``sample`` for each candidate,
``failed`` if it failed, and ``cut`` if its record is not whole, because it was longer than allowed or a note was wrong.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from searchlens.engines.base import Completion
from searchlens.search.driver import Usage
from searchlens.search.task import Ask, Candidate, Search, Trace, through
from searchlens.store.columns import TRACES

COLUMNS = tuple(name for name in TRACES if name not in ("question", "id", "run", "row"))
"""Keys of every row: the columns that a search can fill."""

TEXTS = ("node", "end", "rollout")
"""Kinds of rows that have tokens of their own."""

ROW_BYTES, TOKEN_BYTES = 100, 12
"""What a row and a token of it count for the limit, before compression."""
_WINDOW = 8  # tokens before a part of a text with which it is decoded, since characters may be cut into tokens

Row = dict[str, Any]


class Recorder:
    """Records one search: rows with keys of ``COLUMNS``, null without one, in the order in which they were begun.

    ``requests`` and ``generated`` of a row are what the engine did between the note before and this one. The limit is
    in bytes, by ``ROW_BYTES`` and ``TOKEN_BYTES``, texts and details included. Beyond it no row is added, except what
    ``finish`` adds.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], limit: int) -> None:
        self.rows: list[Row] = []
        self._decode, self._limit = decode, limit
        self._bytes = self._left_out = self._step = 0
        self._mistake = ""
        self._requests = self._generated = 0
        self._numbers: dict[Hashable, int] = {}
        self._nodes: dict[int, Row] = {}
        self._judged: dict[int, tuple[Trace, int]] = {}

    def watch(self, search: Search) -> Search:
        """The same search; what the engine draws for it is counted."""

        def counted(asks: list[Ask]) -> Generator[list[Ask], list[Any], list[Any]]:
            replies = yield asks
            drawn = [len(reply.tokens) for reply in replies if isinstance(reply, Completion)]
            self._requests += len(drawn)
            self._generated += sum(drawn)
            return replies

        return through(search, counted)

    def note(self, kind: str, **values: Any) -> None:
        """Take one note. A wrong one is no reason for the search to fail: the record says so, and ends with it."""
        try:
            if not self._mistake and (row := self._row(kind, values)) is not None:
                self._count(row)
                self._fill(row, values)
                for number, score in zip(row["nodes"], row["scores"], strict=True) if kind == "scored" else ():
                    if number in self._nodes:
                        self._nodes[number]["score"] = score
        except Exception as error:  # whatever a controller of one's own may pass
            self._mistake = f"{type(error).__name__}: {error}"

    def _count(self, row: Row) -> None:
        """Add to a row what the engine did since the last note."""
        row["requests"] += self._requests
        row["generated"] += self._generated
        self._requests = self._generated = 0

    def finish(self, candidates: Sequence[Candidate], failure: str = "", usage: Usage | None = None) -> None:
        """The search has ended, with its candidates or a failure; ``usage`` is what it cost, if that is known."""
        self._step += 1
        whole = not (self._left_out or self._mistake)
        texts = self._texts_of(candidates)
        for sample, candidate in enumerate(candidates):
            row = self._new("sample")
            row |= {"sample": sample, "finish": candidate.finish, "score": candidate.score}
            found = texts.get(tuple(candidate.tokens.tolist()), [])
            if found:
                row["node"] = found[0]
                found.append(found.pop(0))  # equal candidates are different leaves, as long as there are some
            elif whole:
                trace = Trace(candidate.tokens, candidate.logprobs, candidate.sampling_logprobs)
                self._fill(row, {"start": 0, "path": trace})
        if failure:
            self._new("failed")["detail"] = json.dumps({"reason": failure})
        if not whole:
            self._new("cut")["detail"] = json.dumps({"notes": self._left_out, "mistake": self._mistake or None})
        if usage is not None:
            self._requests = usage.requests - sum(row["requests"] for row in self.rows)
            self._generated = usage.generated - sum(row["generated"] for row in self.rows)
        self._count(self.rows[-1])

    # ---- rows

    def _row(self, kind: str, values: Mapping[str, Any]) -> Row | None:
        """The row that a note is about; None if the record is full."""
        name, self._step = values.get("node"), values.get("step", self._step)
        if kind == "node" and (number := self._numbers.get(name)) in self._nodes:
            return self._nodes[number]  # type: ignore[index]  # it is in there
        if self._bytes > self._limit:
            self._left_out += 1
            return None
        row = self._new(kind)
        if kind in TEXTS:
            row["node"] = self._numbers.setdefault(name, len(self._numbers))
            self._nodes[row["node"]] = row
        elif name is not None:
            row["node"] = self._numbers.get(name)
        return row

    def _new(self, kind: str) -> Row:
        row: Row = {"step": self._step, "kind": kind, "requests": 0, "generated": 0}
        self.rows.append(row)
        self._bytes += ROW_BYTES
        return row

    def _fill(self, row: Row, values: Mapping[str, Any]) -> None:
        others = {key: value for key, value in values.items() if key not in ("node", "step")}
        path, judged = others.pop("path", None), others.pop("of", None)
        if judged is not None:
            row["parent"] = self._judged.get(id(judged), (judged, None))[1]
        for key in ("parent", "same_as"):
            if key in others:
                row[key] = self._numbers.get(others.pop(key))
        if "nodes" in others:
            row["nodes"] = [self._numbers.get(name) for name in others.pop("nodes")]
        if row["kind"] == "judged" and path is not None:
            row["node"] = self._judged.get(id(path), (path, None))[1]
        elif path is not None:
            start = others["start"]
            others |= path.after(start)
            if "node" in row:
                self._judged[id(path)] = path, row["node"]  # the path is kept, so that its id stays its own
        for key in [key for key in others if key in COLUMNS]:
            value = others.pop(key)
            row[key] = value.copy() if isinstance(value, np.ndarray) else value  # a view would keep all of its array
        if others:
            known = row.get("detail", "{}")
            row["detail"] = json.dumps(json.loads(known) | {key: _plain(value) for key, value in others.items()})
            self._bytes += len(row["detail"]) - len(known)
        if "tokens" in row and "text" not in row:
            own = [int(token) for token in row["tokens"]]
            before = text_of(self._nodes, row.get("parent"), row["start"], _WINDOW)
            both, head = self._decode([*before, *own]), self._decode(before) if before else ""
            # As it stands in the whole text.
            row["text"] = both[len(head) :] if both.startswith(head) else self._decode(own)
            self._bytes += TOKEN_BYTES * len(row["tokens"]) + len(row["text"])
        self._bytes += sum(8 * len(values[key]) for key in ("nodes", "scores") if key in values)

    # ---- samples

    def _texts_of(self, candidates: Iterable[Candidate]) -> dict[tuple[int, ...], list[int]]:
        """Nodes whose texts are those of the candidates, the last first."""
        wanted = {tuple(candidate.tokens.tolist()) for candidate in candidates}
        ends = {(len(text), text[-1]) for text in wanted}
        found: dict[tuple[int, ...], list[int]] = {}
        for number, row in reversed(self._nodes.items()):
            own = row.get("tokens", ())
            if not len(own) or row.get("accepted") is False or "same_as" in row or row["kind"] == "rollout":
                continue
            if (row["start"] + len(own), own[-1]) not in ends:
                continue
            text = tuple(text_of(self._nodes, number))
            if text in wanted:
                found.setdefault(text, []).append(number)
        return found


def text_of(
    nodes: Mapping[int, Mapping[str, Any]], number: int | None, length: int | None = None, last: int | None = None
) -> list[int]:
    """The tokens of the whole text of a node, None for the empty text, from rows of one run that have tokens.

    Only its beginning of ``length`` tokens, if given, and of that only the ``last`` tokens.
    """
    parts: list[Sequence[int]] = []
    missing = math.inf if last is None else last
    while number is not None and missing > 0:
        row = nodes[number]
        own = row.get("tokens")
        own = () if own is None else own[: None if length is None else max(0, length - row["start"])]
        parts.append(own)
        missing -= len(own)
        length = row["start"] if length is None else min(length, row["start"])
        number = row.get("parent")
    text = [int(token) for part in reversed(parts) for token in part]
    return text if last is None else text[-last:]


def samples_of(rows: Sequence[Mapping[str, Any]]) -> dict[int, list[int]]:
    """The tokens of every sample of one run, from the rows of its record; not of those that a cut record lacks."""
    nodes = {row["node"]: row for row in rows if row["kind"] in TEXTS}
    samples = {}
    for row in rows:
        if row["kind"] == "sample" and (row["node"] is not None or row["tokens"] is not None):
            samples[row["sample"]] = text_of(nodes, row["node"]) if row["node"] is not None else row["tokens"]
    return samples


def differing_run(rows: pl.DataFrame, samples: pl.DataFrame) -> tuple[str, int] | None:
    """Id of the question, and number, of the first run whose record (``TRACES``) has other samples than are stored."""
    stored = samples.join(
        rows.select("id", "run").unique(), left_on=["question", "run"], right_on=["id", "run"], how="semi"
    )
    tokens = {(row[0], row[1]): row[2] for row in stored.select("question", "sample", "tokens").iter_rows()}
    for (name, run), of_run in rows.group_by("id", "run", maintain_order=True):
        for sample, drawn in samples_of(of_run.to_dicts()).items():
            if (kept := tokens.get((name, sample))) is not None and drawn[: len(kept)] != kept:
                return str(name), int(run)  # type: ignore[call-overload]
    return None


def _plain(value: Any) -> Any:
    """A value that JSON has."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)
