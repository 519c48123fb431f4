"""The first pair from nothing: tokenizer, corpus, Base, RL and measurements."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import AutoTokenizer

from searchlens_lab.zoo import model as models
from searchlens_lab.zoo.card import BASE, RECORD, RL
from searchlens_lab.zoo.corpus import build_corpus
from searchlens_lab.zoo.evaluate import POLICIES, claims, measure
from searchlens_lab.zoo.pretrain import pretrain
from searchlens_lab.zoo.recipe import Recipe
from searchlens_lab.zoo.rlvr import train_rlvr
from searchlens_lab.zoo.tasks import Split
from searchlens_lab.zoo.tokenizer import train_tokenizer

_T = TypeVar("_T")


def train(folder: Path, recipe: Recipe, device: str, base: Path | None = None) -> None:
    """Train a pair into ``folder`` and record recipe and curves in ``training.json``.

    ``base``: folder of a Base from which RLVR starts instead of pretraining one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    seconds: dict[str, float] = {}
    started = time.monotonic()
    record: dict[str, Any] = {"recipe": asdict(recipe)}
    if base is None:
        tokenizer = _timed(seconds, "tokenizer", lambda: train_tokenizer(recipe))
        text = tokenizer.backend_tokenizer.to_str()
        corpus = _timed(seconds, "corpus", lambda: build_corpus(recipe, text, os.cpu_count() or 1))
        trained, curve = _timed(seconds, "pretraining", lambda: pretrain(corpus, recipe, device))
        record["corpus"] = {"documents": len(corpus.lengths), "tokens": len(corpus.flat)}
        record["pretraining"] = curve
        models.save(trained, tokenizer, folder / BASE)
    else:
        tokenizer = AutoTokenizer.from_pretrained(base, trust_remote_code=False)
        models.save(models.load(base), tokenizer, folder / BASE)
    start = models.load(folder / BASE, device)
    rl, record["rlvr"] = _timed(seconds, "rlvr", lambda: train_rlvr(start, tokenizer.backend_tokenizer, recipe))
    models.save(rl, tokenizer, folder / RL)
    record["seconds"] = seconds | {"total": round(time.monotonic() - started, 1)}
    record["hardware"] = torch.cuda.get_device_name() if device.startswith("cuda") else "CPU"
    _write(folder / RECORD, record)


def evaluate(folder: Path, device: str, split: Split, scale: float = 1.0) -> bool:
    """Measure the pair in ``folder`` on ``split`` and record the numbers; returns whether all claims hold."""
    recipe = Recipe()
    record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    started = time.monotonic()
    numbers, outcomes = {}, {}
    for name in (BASE, RL):
        tokenizer = AutoTokenizer.from_pretrained(folder / name, trust_remote_code=False)
        model = models.load(folder / name, device)
        numbers[name], outcomes[name] = measure(
            model, tokenizer.backend_tokenizer, recipe, split, tuple(POLICIES), scale
        )
    results = claims(numbers[BASE], numbers[RL], outcomes[BASE], outcomes[RL])
    record[split] = {"models": numbers, "claims": results}
    record["seconds"][split] = round(time.monotonic() - started, 1)
    record["seconds"]["total"] = round(record["seconds"]["total"] + record["seconds"][split], 1)
    _write(folder / RECORD, record)
    for claim, result in results.items():
        print(f"{split}: {'holds' if result['holds'] else 'FAILS'}: {claim}: {result['value']}")
    return all(result["holds"] for result in results.values())


def _timed(seconds: dict[str, float], stage: str, work: Callable[[], _T]) -> _T:
    started = time.monotonic()
    result = work()
    seconds[stage] = round(time.monotonic() - started, 1)
    print(f"{stage}: {seconds[stage]} s", flush=True)
    return result


def _write(path: Path, record: dict[str, Any]) -> None:
    path.write_text(json.dumps(record, separators=(",", ":")) + "\n", encoding="utf-8")
