"""Tokens per second of the embedded engine and of transformers' ``generate``, in turns, on one cell.

    python perf/engine.py

Both sample the same prompts under the same policies, in float32 with the same number of threads. ``generate`` gets the
batch size that is best for it, which is measured first. Two comparisons: every sample exactly ``FIXED_TOKENS`` long,
and samples that stop by themselves, of which only returned tokens count. Turns alternate, so that other load on the
machine slows both. A full cell takes some fifteen minutes, nearly
all in ``generate``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from searchlens.engines.base import Request, Sampling, complete
from searchlens.engines.transformers import TransformersEngine
from searchlens.seeds import sample_seed

ZOO = Path(__file__).parents[1] / "resources" / "zoo"
MODEL = ZOO / "micro-1m-base"
TOKENIZER = AutoTokenizer.from_pretrained(MODEL)
QUESTIONS, SAMPLES, THREADS = 150, 16, 1
TOKENS, FIXED_TOKENS = 128, 64
"""Most tokens of a sample, and tokens of every sample in the first comparison."""
POLICIES = {
    "temp_0.7": Sampling(0.7),
    "topp0.95_t1.0": Sampling(1.0, top_p=0.95),
    "topk20_t0.9": Sampling(0.9, top_k=20),
    "minp0.1_t0.9": Sampling(0.9, min_p=0.1),
}
BATCHES = (1, 4, 16, 64)  # questions per call of generate; times samples is rows


@dataclass(frozen=True)
class Cell:
    """The work: token ids of each question's prompt, and the tokens of each sample."""

    prompts: list[tuple[int, ...]]
    tokens: int
    stop: bool
    eos: int


def embedded(engine: TransformersEngine, cell: Cell, policy: str) -> int:
    """Sample a cell; return the number of returned tokens."""
    stop_ids = (cell.eos,) if cell.stop else ()
    requests = [
        Request(prompt, POLICIES[policy], sample_seed(policy, str(q), n), cell.tokens, stop_ids)
        for q, prompt in enumerate(cell.prompts)
        for n in range(SAMPLES)
    ]
    return sum(len(done.tokens) for _, done in complete(engine, requests))


def generate(model: Any, cell: Cell, policy: str, batch: int) -> int:
    """Sample a cell with transformers; return the number of tokens, each sample up to its end token."""
    count = 0
    for begin in range(0, len(cell.prompts), batch):
        prompts = [list(prompt) for prompt in cell.prompts[begin : begin + batch]]
        asked = TOKENIZER.pad({"input_ids": prompts}, return_tensors="pt")
        out = model.generate(**asked, **arguments(cell, policy))[:, asked["input_ids"].shape[1] :]
        ended = (out == cell.eos).int().cumsum(1) - (out == cell.eos).int()
        count += int((ended == 0).sum())
    return count


def arguments(cell: Cell, policy: str) -> dict[str, Any]:
    """Every sampling parameter, given explicitly; None for those without effect, so that they cost nothing."""
    sampling = asdict(POLICIES[policy])
    filters = {name: sampling[name] or None for name in ("temperature", "top_p", "top_k", "min_p")}
    if filters["top_p"] == 1:
        filters["top_p"] = None
    return filters | {
        "do_sample": True,
        "num_return_sequences": SAMPLES,
        "max_new_tokens": cell.tokens,
        "min_new_tokens": None if cell.stop else cell.tokens,
    }


def rate(sample: Callable[[], int]) -> float:
    """Tokens per second of one turn."""
    begin = time.perf_counter()
    return sample() / (time.perf_counter() - begin)


def best_batch(model: Any, cell: Cell) -> int:
    """Try all batch sizes on the questions of one largest batch."""
    policy = next(iter(POLICIES))
    part = replace(cell, prompts=cell.prompts[: max(BATCHES)])
    rates = {batch: rate(partial(generate, model, part, policy, batch)) for batch in BATCHES}
    summary = ", ".join(f"{batch * SAMPLES} rows {tokens:,.0f}" for batch, tokens in rates.items())
    best = max(rates, key=lambda batch: rates[batch])
    print(f"  generate, tok/s by batch size: {summary}; taking {best * SAMPLES} rows")
    return best


def compare(engine: TransformersEngine, model: Any, cell: Cell) -> None:
    """Print both rates and their ratio per policy."""
    batch = best_batch(model, cell)
    ratios = []
    for policy in POLICIES:
        ours = rate(partial(embedded, engine, cell, policy))
        theirs = rate(partial(generate, model, cell, policy, batch))
        ratios.append(ours / theirs)
        print(f"  {policy:15} embedded {ours:8,.0f} tok/s   generate {theirs:8,.0f} tok/s   ratio {ratios[-1]:.2f}")
    print(f"  lowest ratio {min(ratios):.2f}")


def main() -> None:
    engine = TransformersEngine(MODEL, threads=THREADS)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
    texts = [json.loads(line)["question"] for line in (ZOO / "benchmarks/math.jsonl").read_text().splitlines()]
    prompts = [tuple(TOKENIZER(f"Problem: {text}\nSolution:\n")["input_ids"]) for text in texts[:QUESTIONS]]
    eos = int(model.config.eos_token_id)
    print(f"{MODEL.name}, {THREADS} threads, {len(prompts)} questions, {SAMPLES} samples")
    print(f"Every sample {FIXED_TOKENS} tokens:")
    compare(engine, model, Cell(prompts, FIXED_TOKENS, False, eos))
    print(f"Samples stop by themselves, at most {TOKENS} tokens:")
    compare(engine, model, Cell(prompts, TOKENS, True, eos))


if __name__ == "__main__":
    main()
