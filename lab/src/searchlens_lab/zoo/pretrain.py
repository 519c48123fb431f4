"""Pretraining: next-token prediction on the corpus, and what a training leaves behind: its state and its numbers."""

from __future__ import annotations

import gzip
import json
import math
import time
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from tqdm import trange

from searchlens.store.files import replace
from searchlens.zoo import record_file
from searchlens_lab.zoo.corpus import PAD, Tokens
from searchlens_lab.zoo.model import Decoder, compute_dtype, forward_in, token_log_probs
from searchlens_lab.zoo.recipe import Pretraining, Recipe


class StateFile:
    """The last saved state of one training; the file is replaced whole or not at all."""

    def __init__(self, path: Path, every: float = 20.0) -> None:
        self.path, self.every = path, every
        self.last = time.monotonic()

    def load(self, device: str) -> dict[str, Any] | None:
        """The saved state with tensors on ``device``; None if there is no file."""
        if not self.path.exists():
            return None
        state: dict[str, Any] = torch.load(self.path, map_location=device, weights_only=True)
        return state

    def due(self) -> bool:
        """Whether the last save was at least ``every`` seconds ago."""
        return time.monotonic() - self.last >= self.every

    def save(self, state: dict[str, Any]) -> None:
        """Replace the saved state."""
        replace(self.path, partial(torch.save, state))
        self.last = time.monotonic()

    def clear(self) -> None:
        """Delete the file, once the training's result is written."""
        self.path.unlink(missing_ok=True)


def write_record(folder: Path, job: str, record: Mapping[str, Any]) -> None:
    """Write the record of a job; the file is replaced whole or not at all."""
    content = gzip.compress((json.dumps(record) + "\n").encode(), mtime=0)
    replace(record_file(folder, job), lambda path: path.write_bytes(content))


_LOG_EVERY = 100  # steps between two points of the curve


class _Batches:
    """Documents on the device, in batches of about ``tokens`` tokens; documents of a batch have similar lengths."""

    def __init__(self, corpus: Tokens, tokens: int, device: str) -> None:
        self.lengths = corpus.lengths.astype(np.int64)
        self.tokens = tokens
        self.flat = torch.from_numpy(corpus.flat.astype(np.int16)).to(device)
        self.starts = torch.from_numpy(np.cumsum(self.lengths) - self.lengths).to(device)
        self.sizes = torch.from_numpy(self.lengths).to(device)
        self.prompts = torch.from_numpy(corpus.prompts.astype(np.int64)).to(device)

    def epochs(self, rng: np.random.Generator) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the document numbers of one batch after the other, endlessly."""
        while True:
            order = np.argsort(self.lengths + rng.uniform(0, 8, len(self.lengths)))
            longest = np.maximum.accumulate(self.lengths[order])
            batches, first = [], 0
            while first < len(order):
                guess = min(len(order), first + max(1, self.tokens // int(longest[first])))
                last = first + max(1, self.tokens // int(longest[guess - 1]))
                batches.append(order[first:last])
                first = last
            rng.shuffle(batches)
            yield from batches

    def gather(self, numbers: npt.NDArray[np.int64], prompt_weight: float) -> tuple[Tensor, Tensor]:
        """Right-padded ids and the loss weight of every id, both (documents, length)."""
        documents = torch.from_numpy(numbers).to(self.flat.device)
        length = -(-int(self.lengths[numbers].max()) // 16) * 16
        at = torch.arange(length, device=documents.device)[None]
        inside = at < self.sizes[documents][:, None]
        flat = (self.starts[documents][:, None] + at).clamp_max(len(self.flat) - 1)
        ids = torch.where(inside, self.flat[flat].long(), PAD)
        weights = torch.where(at < self.prompts[documents][:, None], prompt_weight, 1.0) * inside
        return ids, weights


def learning_rate(recipe: Pretraining, step: int) -> float:
    """Linear warm-up, then cosine decay to ``final_lr`` of the peak."""
    decay = 0.5 * (1 + math.cos(math.pi * step / recipe.steps))
    return recipe.lr * min(1.0, (step + 1) / recipe.warmup) * (recipe.final_lr + (1 - recipe.final_lr) * decay)


def optimizer_for(model: Decoder, betas: tuple[float, float], weight_decay: float, device: str) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices only; :func:`update` sets the learning rate."""
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=0.0, betas=betas, fused=device.startswith("cuda"))


def update(optimizer: torch.optim.AdamW, model: Decoder, lr: float, clip: float) -> None:
    """Take one optimizer step at ``lr`` with the gradients clipped to norm ``clip``; clears the gradients."""
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def pretrain(
    corpus: Tokens, recipe: Recipe, device: str, state_file: StateFile | None = None, start: Decoder | None = None
) -> tuple[Decoder, list[dict[str, float]]]:
    """Train a model, in float32, by next-token prediction, from ``start`` or from random weights by the recipe's seed.

    With a saved state, training resumes from it and gives the result of an uninterrupted run. The curve has a point
    every 100 steps: ``tokens`` read so far without padding, and the mean ``loss`` in nats per weighted token.
    """
    settings = recipe.pretraining
    model = Decoder(recipe.shape, recipe.model_seed).to(device)
    if start is not None:
        model.load_state_dict(start.state_dict())
    optimizer = optimizer_for(model, settings.betas, settings.weight_decay, device)
    data = _Batches(corpus, settings.tokens, device)
    batches = data.epochs(np.random.default_rng(recipe.model_seed))
    curve: list[dict[str, float]] = []
    first, seen, losses, started = 0, 0, torch.zeros((), device=device), time.monotonic()
    if state := state_file and state_file.load(device):
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first, seen, losses, curve = state["step"], state["seen"], state["losses"], state["curve"]
        started -= state["seconds"]
    progress = trange(first, settings.steps, desc="pretraining", mininterval=10)
    for step, numbers in zip(progress, islice(batches, first, None), strict=False):
        ids, weights = data.gather(numbers, settings.prompt_weight)
        log_probs = token_log_probs(forward_in(model, ids, compute_dtype(device)), ids)
        loss = -(log_probs * weights[:, 1:]).sum() / weights[:, 1:].sum()
        loss.backward()
        update(optimizer, model, learning_rate(settings, step), settings.clip)
        seen += int(data.lengths[numbers].sum())
        losses += loss.detach()
        if (step + 1) % _LOG_EVERY == 0:
            mean = round(float(losses) / _LOG_EVERY, 4)
            seconds = round(time.monotonic() - started, 1)
            curve.append({"step": step + 1, "tokens": seen, "loss": mean, "seconds": seconds})
            progress.set_postfix(loss=mean, tokens=f"{seen / 1e6:.0f}M", refresh=False)
            losses.zero_()
        if state_file and state_file.due():
            state_file.save(
                {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "step": step + 1,
                    "seen": seen,
                    "losses": losses,
                    "curve": curve,
                    "seconds": time.monotonic() - started,
                }
            )
    return model, curve
