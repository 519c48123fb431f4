"""Tokens per second of the embedded engine and of transformers' ``generate``, in turns, on one cell.

    python perf/engine.py [--model DIR] [--questions N] [--samples N] [--threads N] [--repeats N]

Both sample the same prompts under the same policies, in float32 with the same number of threads. ``generate`` gets the
batch size that is best for it, which is measured first. Two comparisons: every sample exactly ``--fixed-tokens`` long,
and samples that stop by themselves, of which only returned tokens count. Turns alternate, so that other load on the
machine slows both; the ratio is the median over the turns of a policy. A full cell takes some fifteen minutes, nearly
all in ``generate``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from searchlens.engines.base import Request, Sampling, complete
from searchlens.engines.transformers import TransformersEngine
from searchlens.seeds import sample_seed

ZOO = Path(__file__).parents[1] / "resources" / "zoo"
POLICIES = {
    "temp_0.7": Sampling(0.7),
    "topp0.95_t1.0": Sampling(1.0, top_p=0.95),
    "topk20_t0.9": Sampling(0.9, top_k=20),
    "minp0.1_t0.9": Sampling(0.9, min_p=0.1),
}
BATCHES = (1, 4, 16, 64)  # questions per call of generate; times samples is rows


@dataclass(frozen=True)
class Cell:
    """The work: token ids of each question's prompt, samples of each, and their tokens."""

    prompts: list[tuple[int, ...]]
    samples: int
    tokens: int
    stop: bool
    eos: int


def prompts_of(model: Path, questions: int) -> list[tuple[int, ...]]:
    texts = [json.loads(line)["question"] for line in (ZOO / "benchmarks/math.jsonl").read_text().splitlines()]
    tokenizer = AutoTokenizer.from_pretrained(model)
    return [tuple(tokenizer(f"Problem: {text}\nSolution:\n")["input_ids"]) for text in texts[:questions]]


def embedded(engine: TransformersEngine, cell: Cell, policy: str) -> int:
    """Sample a cell; return the number of returned tokens."""
    stop_ids = (cell.eos,) if cell.stop else ()
    requests = [
        Request(prompt, POLICIES[policy], sample_seed(policy, str(q), n), cell.tokens, stop_ids)
        for q, prompt in enumerate(cell.prompts)
        for n in range(cell.samples)
    ]
    return sum(len(done.tokens) for _, done in complete(engine, requests))


def generate(model: Any, cell: Cell, policy: str, batch: int) -> int:
    """Sample a cell with transformers; return the number of tokens, each sample up to its end token."""
    count = 0
    for begin in range(0, len(cell.prompts), batch):
        ids, mask = left_padded(cell.prompts[begin : begin + batch], model.config.pad_token_id)
        out = model.generate(ids, attention_mask=mask, **arguments(cell, policy))[:, ids.shape[1] :]
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
        "num_return_sequences": cell.samples,
        "max_new_tokens": cell.tokens,
        "min_new_tokens": None if cell.stop else cell.tokens,
    }


def left_padded(prompts: list[tuple[int, ...]], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(map(len, prompts))
    ids = torch.tensor([[pad] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    return ids, mask


def rate(sample: Callable[[], int]) -> float:
    """Tokens per second of one turn."""
    begin = time.perf_counter()
    return sample() / (time.perf_counter() - begin)


def best_batch(model: Any, cell: Cell) -> int:
    """Try all batch sizes on the questions of one largest batch."""
    policy = next(iter(POLICIES))
    part = Cell(cell.prompts[: max(BATCHES)], cell.samples, cell.tokens, cell.stop, cell.eos)
    rates = {batch: rate(partial(generate, model, part, policy, batch)) for batch in BATCHES}
    summary = ", ".join(f"{batch * cell.samples} rows {tokens:,.0f}" for batch, tokens in rates.items())
    best = max(rates, key=lambda batch: rates[batch])
    print(f"  generate, tok/s by batch size: {summary}; taking {best * cell.samples} rows")
    return best


def compare(engine: TransformersEngine, model: Any, cell: Cell, repeats: int) -> None:
    """Print both rates and their ratio per policy."""
    batch = best_batch(model, cell)
    ratios = []
    for policy in POLICIES:
        turns = [
            (rate(partial(embedded, engine, cell, policy)), rate(partial(generate, model, cell, policy, batch)))
            for _ in range(repeats)
        ]
        ours, theirs = zip(*turns, strict=True)
        ratio = statistics.median(a / b for a, b in turns)
        ratios.append(ratio)
        print(
            f"  {policy:15} embedded {statistics.median(ours):8,.0f} tok/s   "
            f"generate {statistics.median(theirs):8,.0f} tok/s   ratio {ratio:.2f}"
        )
    print(f"  lowest ratio {min(ratios):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=ZOO / "micro-1m-base")
    parser.add_argument("--questions", type=int, default=150)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128, help="most tokens of a sample")
    parser.add_argument("--fixed-tokens", type=int, default=64, help="tokens of every sample in the first comparison")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=1)
    args = parser.parse_args()
    engine = TransformersEngine(args.model, threads=args.threads)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    prompts = prompts_of(args.model, args.questions)
    eos = int(model.config.eos_token_id)
    print(f"{args.model.name}, {args.threads} threads, {len(prompts)} questions, {args.samples} samples")
    print(f"Every sample {args.fixed_tokens} tokens:")
    compare(engine, model, Cell(prompts, args.samples, args.fixed_tokens, False, eos), args.repeats)
    print(f"Samples stop by themselves, at most {args.tokens} tokens:")
    compare(engine, model, Cell(prompts, args.samples, args.tokens, True, eos), args.repeats)


if __name__ == "__main__":
    main()
