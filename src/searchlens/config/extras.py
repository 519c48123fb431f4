"""Which extra of the package brings which library, and what is said where one is missing."""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec

from searchlens.errors import InputError

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
COMMANDS = dict.fromkeys(("equivalence", "benchmark-samplers", "simulate"), "searchlens_lab")
"""The same of commands."""
CLONED = {"zoo": "./resources/zoo", "lab": "./lab"}
"""Extra to where it lies in a clone of the repository."""


def missing(module: str) -> InputError:
    """The error for an optional module that is not installed, with the command that installs it."""
    return InputError(f"{module} is not installed here", installing(EXTRAS.get(module, module)))


def installing(extra: str) -> str:
    """The command that installs what an extra brings, or a library, by names: this package is in no registry."""
    if extra in CLONED:
        return f"pip install {CLONED[extra]} in a clone of the repository"
    listed = (text for found in metadata.distributions(name="searchlens") for text in found.requires or [])
    parts = [text.replace('"', "'").split("; extra == ") for text in listed]
    names = [f"'{name}'" for name, *extras in parts if extras == [f"'{extra}'"]] or [extra] * bool(parts)
    return f"pip install {' '.join(names)}" if names else f"pip install -e '.[{extra}]' in a clone of the repository"


def require(*modules: str) -> None:
    """Check that optional modules can be imported, without importing them; InputError names the first that cannot."""
    for module in modules:
        try:
            found = find_spec(module)
        except ModuleNotFoundError:  # the package that it is a part of
            found = None
        if found is None:
            raise missing(module)
