"""What other distributions add to this one, and which extra brings which library, with what is said without it.

A distribution names a module as an entry point of group ``searchlens``; its ``ADDON`` says which commands, sections of
the configuration and stages with their tables there are. Everything in it is named, not imported, because the planner
reads it.

Standard library only, because the planner imports it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from searchlens.errors import InputError

GROUP = "searchlens"
"""Group of the entry points."""
VARIABLE = "SEARCHLENS_ADDONS"
"""Environment variable that passes the modules to processes that see packages without their entry points."""

EXTRAS = {
    "snakemake": "run",
    "huggingface_hub": "hub",
    "shtab": "completion",
    "searchlens_zoo": "zoo",
    "searchlens_lab": "lab",
    "torch": "torch",
    "transformers": "torch",
    "tokenizers": "torch",
    "safetensors": "torch",
    "nltk": "ifeval",
    "langdetect": "ifeval",
    "immutabledict": "ifeval",
    "peft": "lora",
    "gguf": "gguf",
    "sentencepiece": "gguf",
    "google.protobuf": "gguf",
}
"""Module to the extra that installs it. The library of an engine has an extra of its own name, or none; every other
module that is used comes with the package itself."""
SECTIONS = {"equivalence": "searchlens_lab"}
"""Section of the configuration to the module of ``EXTRAS`` that declares it."""
COMMANDS = dict.fromkeys(("equivalence", "benchmark-samplers", "simulate", "convert"), "searchlens_lab")
"""The same of commands."""
CLONED = {"zoo": "./resources/zoo", "lab": "./lab"}
"""Extra to where it lies in a clone of the repository."""


@dataclass(frozen=True)
class Stage:
    """A stage of a run."""

    module: str
    """What the stage runs; its code is tracked."""
    plan: str
    """Module with ``made(grid)``: those of ``tables`` that a study makes, none if it leaves the stage out."""
    rules: Path
    """File for Snakemake with a rule of the name of the stage, whose output it appends to ``ADDED``."""
    tables: Sequence[str]
    """Stages of tables (``@table(..., stage=...)``)."""


@dataclass(frozen=True)
class Addon:
    """What a distribution adds."""

    package: str
    """Its package."""
    commands: str
    """Module with ``add_to(commands)``, as those of ``searchlens.cli``."""
    captions: Path
    """Folder of captions, as ``workflow/report``."""
    sections: Mapping[str, str] = field(default_factory=dict)
    """Section of the configuration to a module with ``RECORD``, the dataclass of its options, ``MEANING``, and
    ``errors(config)``."""
    declares: Sequence[str] = ()
    """Modules that declare things of the catalogue."""
    stages: Mapping[str, Stage] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Folder of its package."""
        return path_of(self.package).parent


@cache
def modules() -> Sequence[str]:
    """Every module that says what is added here."""
    named = filter(None, os.environ.get(VARIABLE, "").split(os.pathsep))
    return list(dict.fromkeys([*named, *(found.value for found in metadata.entry_points(group=GROUP))]))


@cache
def addons() -> Sequence[Addon]:
    """All that is added here."""
    return [import_module(name).ADDON for name in modules()]


def stages() -> Mapping[str, Stage]:
    """All stages that are added, by name."""
    return {name: stage for addon in addons() for name, stage in addon.stages.items()}


def made(grid: Any) -> Mapping[str, Sequence[str]]:
    """The added stages that a study has, each with the stages of its tables."""
    found = {name: import_module(stage.plan).made(grid) for name, stage in stages().items()}
    return {name: tables for name, tables in found.items() if tables}


def path_of(module: str) -> Path:
    """File of a module, which is not imported; of a package its ``__init__``."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"no module {module}", name=module)
    return Path(spec.origin)


def missing(module: str) -> InputError:
    """The error for an optional module that is not installed, with the command that installs it."""
    return InputError(f"{module} is not installed here", installing(EXTRAS.get(module, module)))


def installing(extra: str) -> str:
    """The command that installs what an extra brings, or a library, by names: this package is in no registry."""
    if extra in CLONED:
        return f"pip install {CLONED[extra]} in a clone of the repository"
    if (required := requirements(extra)) is None:
        return f"pip install -e '.[{extra}]' in a clone of the repository"
    return f"pip install {' '.join(map(repr, required)) or extra}"


def requirements(extra: str) -> list[str] | None:
    """What an extra requires, as written; None where this package is not installed."""
    listed = [text for found in metadata.distributions(name="searchlens") for text in found.requires or []]
    parts = [text.replace('"', "'").split("; extra == ") for text in listed]
    return [name for name, *extras in parts if extras == [f"'{extra}'"]] if parts else None


def require(*modules: str) -> None:
    """Check that optional modules can be imported, without importing them; InputError names the first that cannot."""
    for module in modules:
        try:
            found = find_spec(module)
        except ModuleNotFoundError:  # the package that it is a part of
            found = None
        if found is None:
            raise missing(module)
