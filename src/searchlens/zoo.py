"""The trained pairs, for use as a library: ``from searchlens.zoo import load_pair``."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from searchlens.config import addons, project
from searchlens.errors import InputError
from searchlens.store import yaml_text

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

FIRST = "micro-1m"
"""The pair of docs/zoo.md; all others belong to the cohort."""


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """Base and RL of a pair, with the tokenizer that they share."""

    name: str
    base: PreTrainedModel
    rl: PreTrainedModel
    """``base``, ``rl``: as transformers loads them."""
    tokenizer: PreTrainedTokenizerFast
    record: dict[str, Any]
    """How they were trained: recipes and curves by job (``base``, ``rl``, ``dev-base``, ``dev-rl``); for micro-1m the
    content of ``training.json``."""


def load_pair(name: str, folder: Path | None = None, dtype: str = "float32") -> LoadedPair:
    r"""Load a pair of the zoo.

    Parameters
    ----------
    name : str
        ``micro-1m``, or a pair of the cohort such as ``anchor`` or ``orz``.
    folder : Path, optional
        Folder in which the cohort was made (``--output``); by default that of the repository; of ``micro-1m`` also the
        package ``searchlens-zoo``.
    dtype : str
        Type of the weights, as transformers names it.

    Raises
    ------
    InputError
        If there is no such pair, its weights are not in the folder, or the cohort is asked for without its
        repository; or transformers is not installed.

    Examples
    --------
    >>> pair = load_pair("micro-1m")
    >>> ids = pair.tokenizer("Problem: Compute 3*14+25.\nSolution:\n", return_tensors="pt")
    >>> pair.tokenizer.decode(pair.rl.generate(**ids, max_new_tokens=40, do_sample=False)[0])[-22:-13]
    'boxed{67}'
    """
    root = folder or (project.zoo() if name == FIRST else project.cohort())
    bases = {FIRST: f"{FIRST}-base"}
    if name != FIRST:  # three pairs have another pair's Base
        cohort = yaml_text.read(project.root() / "config" / "zoo.yaml")["pairs"]
        bases |= {pair: entry["base"] for pair, entry in cohort.items()}
    if name not in bases:
        raise InputError(f"there is no pair '{name}' in the zoo", f"the pairs are {', '.join(bases)}")
    folders = {"base": root / bases[name], "rl": root / f"{name}-rl"}
    for missing in (path for path in folders.values() if not path.is_dir()):
        raise InputError(f"{missing}: no such folder", "train it: python -m searchlens_lab.zoo cohort --help")
    if name == FIRST:
        record = json.loads((root / "training.json").read_text(encoding="utf-8"))
    else:
        origin = bases[name].removesuffix("-base")
        jobs = {
            "base": f"base-{origin}",
            "rl": f"rl-{name}",
            "dev-base": f"dev-{origin}-base",
            "dev-rl": f"dev-{name}-rl",
        }
        made = {key: read_record(root, job) for key, job in jobs.items()}
        record = {key: value for key, value in made.items() if value}
    addons.require("transformers", "torch")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    models = {
        side: AutoModelForCausalLM.from_pretrained(
            path, dtype=dtype, trust_remote_code=False, use_safetensors=True
        ).eval()
        for side, path in folders.items()
    }
    tokenizer = AutoTokenizer.from_pretrained(folders["rl"], trust_remote_code=False)
    return LoadedPair(name, models["base"], models["rl"], tokenizer, record)


def record_file(folder: Path, job: str) -> Path:
    """The record of a training job in a cohort's folder; it exists once the job is done."""
    return folder / "records" / f"{job}.json.gz"


def read_record(folder: Path, job: str) -> dict[str, Any]:
    """The record of a job; empty if there is none."""
    file = record_file(folder, job)
    return json.loads(gzip.decompress(file.read_bytes())) if file.exists() else {}
