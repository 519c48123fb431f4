"""Every file that the page of `searchlens view` may ask for, by name.

Files of the results folder are given as they are. Questions, answers and texts of tokens are made when they are first
asked for, and kept in memory within a bound; nothing is written.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from searchlens.api.study import Study
from searchlens.errors import InputError
from searchlens.reporting import explorer_texts
from searchlens.reporting.explorer_index import RESULTS, Index

MEMORY, MOST = 256 * 2**20, 1000
"""Bytes of made files that are kept, and how many files."""

_READABLE = ("landscape", "recovery", "readings", "boptr", "tables", "figures", "scores")
"""Folders of results without texts: everything in them is given."""
_WITH_TEXTS = ("generations", "recorded", "traces")
"""Folders with a folder for each checkpoint, and in it one for each benchmark: given unless texts are withheld."""
_SUFFIXES = {".parquet", ".csv", ".svg", ".md"}

_MADE = re.compile(
    r"questions/(?P<questions>[^/]+)\.parquet"
    r"|answers/(?P<checkpoint>[^/]+)/(?P<benchmark>[^/]+)/(?P<policy>[^/]+)/(?P<question>[0-9]{1,9})\.parquet"
    r"|pieces/(?P<pieces>[^/]+)\.json"
    r"|prompts/(?P<model>[^/]+)/(?P<asked>[^/]+)/(?P<place>[0-9]{1,9})\.json"
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
        made = Index(self._study, self._may_have, by_ranges=True, left_out=self._left_out()).made()
        return json.dumps(made, ensure_ascii=False, default=str).encode()

    def _left_out(self) -> list[str]:
        return [
            f"Questions, texts and answers of {title}: {reason}."
            for name, title in {name: spec.title or name for name, spec in self._study.benchmarks.items()}.items()
            if (reason := self._study.withheld(name))
        ]

    def _may_have(self, name: str) -> bool:
        """Whether the index may name a file. Whether a made one can be had is found out when it is asked for."""
        if name.startswith(f"{RESULTS}/"):
            return self.path(name) is not None
        parts = name.split("/")
        if parts[0] == "questions":
            return parts[1].removesuffix(".parquet") not in self._withheld
        if parts[0] == "prompts":
            is_open = parts[2] not in self._withheld and self._study.source(*parts[1:3]) == "sampled"
            return is_open and self._has_vocabulary(parts[1])
        if parts[0] == "answers":
            return parts[2] not in self._withheld and self._study.source(*parts[1:3]) != "recorded"
        if parts[0] == "pieces":
            return self._has_vocabulary(parts[1].removesuffix(".json"))
        return False

    def _has_vocabulary(self, checkpoint: str) -> bool:
        try:
            return self._study.vocabulary(checkpoint).exists()
        except InputError:
            return False

    # ---- files of the results folder

    def path(self, name: str) -> Path | None:
        """The file of a name that begins with ``results/``; None if there is none, or it is not to be given.

        A name is taken literally: it has no empty part, no ``.`` and no ``..``. What a link leads to outside of the
        folder is not given.
        """
        parts = name.split("/")
        if parts[0] != RESULTS or len(parts) < 3 or any(part in ("", ".", "..") or "\0" in part for part in parts):
            return None
        if not self._is_open(parts[1:]) or Path(parts[-1]).suffix not in _SUFFIXES:
            return None
        try:
            path = self._root.joinpath(*parts[1:]).resolve(strict=True)
        except OSError:
            return None
        return path if path.is_relative_to(self._root) and path.is_file() else None

    def _is_open(self, parts: list[str]) -> bool:
        if parts[0] in _READABLE:
            return True
        return parts[0] in _WITH_TEXTS and len(parts) > 4 and parts[2] not in self._withheld

    # ---- files that are made

    def made(self, name: str) -> bytes | None:
        """The content of a file that is made on request; None if there is none. An ``InputError`` if what it is made of
        is not here.
        """
        make = self._maker(name)
        if make is None:
            return None
        with self._making[hash(name) % len(self._making)]:  # the same file is made once, others at the same time
            kept = self._recall(name)
            if kept is not None:
                return kept
            content = make()
            if content is not None:
                self._keep(name, content)
            return content

    def _recall(self, name: str) -> bytes | None:
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
            return self._kept.get(name)

    def _keep(self, name: str, content: bytes) -> None:
        with self._lock:
            self._kept[name] = content
            while len(self._kept) > MOST or (len(self._kept) > 1 and sum(map(len, self._kept.values())) > MEMORY):
                self._kept.popitem(last=False)

    def _maker(self, name: str) -> Callable[[], bytes | None] | None:
        match = _MADE.fullmatch(name)
        if match is None:
            return None
        study = self._study
        if (benchmark := match["questions"]) is not None:
            return None if benchmark in self._withheld else lambda: _questions(study, benchmark)
        if (checkpoint := match["pieces"]) is not None:
            return lambda: explorer_texts.pieces(study, checkpoint) or b"{}"
        if (model := match["model"]) is not None:
            return lambda: explorer_texts.prompts(study, model, match["asked"], [int(match["place"])]) or b"{}"
        if match["benchmark"] in self._withheld:
            return None
        return lambda: _answers(study, match["checkpoint"], match["benchmark"], match["policy"], int(match["question"]))


def _questions(study: Study, benchmark: str) -> bytes:
    return explorer_texts.parquet(explorer_texts.questions(study.questions(benchmark)))


def _answers(study: Study, checkpoint: str, benchmark: str, policy: str, question: int) -> bytes:
    return explorer_texts.parquet(explorer_texts.answers(study.samples(checkpoint, benchmark, policy, question)))
