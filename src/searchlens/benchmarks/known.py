"""Known benchmarks: those that circulate, with their source, licence, size, and place on the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from searchlens import catalogue
from searchlens.config.boptr import Regime
from searchlens.errors import InputError, unknown

OWN = "jsonl"
"""The family of the project's own format, which is not a known benchmark."""


@dataclass(frozen=True, slots=True)
class HubSplit:
    """One split of a dataset on the Hugging Face hub."""

    id: str
    """``owner/name``."""
    split: str = "test"
    config: str = ""
    """Empty for a dataset that has one configuration only."""
    gated: bool = False
    """Its terms have to be accepted on the hub. Such a dataset is not downloaded, it is read from the user's file."""


@dataclass(frozen=True, slots=True)
class KnownBenchmark:
    """A known benchmark: the options of ``catalogue.family``, which decorates the function that reads its rows."""

    name: str
    """Also starts the ids of its questions."""
    file: Path
    """The source file that declares it."""
    title: str
    grader: str
    """Name of the grader that is meant for it."""
    licence: str
    """As the source states it; it does not settle the rights in contest problems."""
    regime: Regime | Literal[""] = ""
    """g(d) of BOPTR, as the paper assigns it; empty if it has none."""
    hub: str = ""
    split: str = "test"
    config: str = ""
    gated: bool = False
    """``hub``, ``split``, ``config``, ``gated``: as in ``HubSplit``; an empty ``hub`` means that the hub does not have
    it."""
    sizes: Mapping[int, str] = field(default_factory=dict)
    """Number of rows to the source that has as many; empty if no size is known."""
    parts: tuple[str, ...] = ()
    """Benchmarks that make up this one, one file each, in this order."""
    shuffled: bool = False
    """Questions are ordered by their hashes, so that the first N of a large set are a fair sample whatever the order of
    its file. Ids still count the rows of the file."""
    repeats: bool = False
    """Published files hold some questions more than once. Of other benchmarks a file with a repeated question is
    refused."""

    @property
    def splits(self) -> list[HubSplit]:
        """Its place on the hub: one split for each of its parts, or one; none if the hub does not have it."""
        if self.parts:
            return [split for part in self.parts for split in known_benchmark(part).splits]
        return [HubSplit(self.hub, self.split, self.config, self.gated)] if self.hub else []

    @property
    def terms(self) -> str:
        """Why its rows are not to be shown in plain text; empty if they may be."""
        is_gated = self.gated or any(split.gated for split in self.splits)
        return f"{self.title} is gated ({self.licence})" if is_gated else ""


def family_names() -> tuple[str, ...]:
    """Names of all families: the project's own format, then the known benchmarks."""
    return OWN, *catalogue.declared("family")


def known_benchmarks() -> dict[str, KnownBenchmark]:
    """All known benchmarks by name, in the order in which they are listed."""
    return {name: _known(declaration) for name, declaration in catalogue.declared("family").items()}


def known_benchmark(family: str) -> KnownBenchmark:
    """The known benchmark of a name. Raises InputError if it is unknown; the message lists all families."""
    declarations = catalogue.declared("family")
    if family not in declarations:
        raise InputError(f"benchmark family {unknown(family, family_names())}")
    return _known(declarations[family])


def _known(declaration: catalogue.Declaration) -> KnownBenchmark:
    try:
        return KnownBenchmark(declaration.name, declaration.path, **declaration.options)
    except TypeError as error:
        what = str(error).replace("KnownBenchmark.__init__()", "its decorator")
        raise InputError(f"benchmark family {declaration.name!r} of {declaration.path}: {what}") from None
