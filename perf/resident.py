"""Rows that stay on the device against the other path of the embedded engine: draws, tokens per second, a step.

    OMP_NUM_THREADS=1 python perf/resident.py --device cuda

The 1M Base answers micro math questions on two engines of one process. Two parts:

1. The same requests under every filter and penalty, one by one and mixed: how many texts and ends are equal, and the
   largest differences of log p and of log q; then how many likely tokens are. At the end the other path against itself
   with half the rows, which shows what a batch of another size changes (see ``--dtype``).
2. The sweep of ``perf/controllers.py`` with 16 draws of each question, in turns; then with 256, where rows stay on the
   device.

On a CPU it shows that it runs; its speeds say nothing there.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from controllers import MAX_TOKENS, MODEL, SWEEP, ZOO, Bench

from searchlens import benchmarks
from searchlens.benchmarks import prompts
from searchlens.benchmarks.prompter import Prompter
from searchlens.engines.base import Completion, Request, Sampling, complete
from searchlens.engines.transformers import TransformersEngine
from searchlens.search.policy import parse
from searchlens.seeds import sample_seed
from searchlens_lab.resident.engine import ResidentEngine

ROWS, QUESTIONS, SAMPLES = 4096, 500, 16
SAMPLINGS = (
    Sampling(1.0),
    Sampling(0.7),
    Sampling(1.0, top_p=0.95),
    Sampling(0.9, top_k=20),
    Sampling(0.9, min_p=0.1),
    Sampling(1.0, typical_p=0.9),
    Sampling(0.0),
    Sampling(0.8, top_p=0.9, repetition_penalty=1.2, frequency_penalty=0.3),
    Sampling(0.25),
)


def requests_of(bench: Bench, questions: int, draws: range, sampling: Sampling, **wanted: int) -> list[Request]:
    """Return requests for the first questions."""
    prompts = bench.prompts[:questions]
    return [
        Request(
            prompt,
            sampling,
            sample_seed("x", str(number), draw),
            MAX_TOKENS,
            bench.prompter.stop_ids,
            **wanted,  # type: ignore[arg-type]
        )
        for number, prompt in enumerate(prompts)
        for draw in draws
    ]


def compare(name: str, engines: Sequence[TransformersEngine], requests: Sequence[Request]) -> None:
    """Print how many requests both engines answer alike, and how far their numbers are apart."""
    plain, resident = (
        [text for _, text in sorted(complete(engine, requests), key=lambda one: one[0])] for engine in engines
    )
    pairs = [
        (one, other)
        for one, other in zip(plain, resident, strict=True)
        if one.finish == other.finish and np.array_equal(one.tokens, other.tokens)
    ]
    p, q = (
        max(float(np.abs(getattr(one, key) - getattr(other, key)).max()) for one, other in pairs)
        for key in ("logprobs", "sampling_logprobs")
    )
    print(f"{name:22} {len(pairs)} of {len(plain)} equal; log p {p:.1e}, log q {q:.1e}{_likely(pairs)}")


def _likely(pairs: Sequence[tuple[Completion, Completion]]) -> str:
    """Say how many likely tokens are equal, and how far their log p are apart; nothing if none were wanted."""
    wanted = [(one, other) for one, other in pairs if one.top_tokens is not None]
    if not wanted:
        return ""
    equal = np.concatenate([(one.top_tokens == other.top_tokens).ravel() for one, other in wanted])
    apart = max(float(np.abs(one.top_logprobs - other.top_logprobs).max()) for one, other in wanted)
    return f"; likely tokens {equal.sum()} of {equal.size} equal, log p {apart:.1e}"


def compare_all(
    bench: Bench, engines: Sequence[TransformersEngine], smaller: TransformersEngine, questions: int
) -> None:
    """Compare both engines, one sampling at a time and mixed, and one of them with a smaller one."""
    mixed: list[Request] = []
    for number, sampling in enumerate(SAMPLINGS):
        compare(f"sampling {number + 1}", engines, requests_of(bench, questions, range(8), sampling))
        draws = range(100 * number, 100 * number + 8)
        mixed += requests_of(bench, questions, draws, sampling, measures=number % 2 == 0)
    compare("mixed", engines, mixed)
    compare("with likely tokens", engines, requests_of(bench, questions, range(1000, 1008), Sampling(1.0), top=5))
    compare("other, half the rows", (engines[0], smaller), mixed)


def print_speeds(benches: dict[str, Bench], turns: int) -> None:
    """Print tokens per second of the sweep, in turns, then what rows on the device can do beyond it."""
    sweep = parse(SWEEP)
    for bench in benches.values():
        bench.timed(sweep, 2, 64, live=4096)  # kernels are compiled on first use

    def timed(name: str, draws: int) -> None:
        bench = benches[name]
        drawn = bench.timed(sweep, draws, len(bench.questions), live=100_000)
        print(f"sweep of {draws}, {name:8} {drawn.usage.generated} tokens, {drawn.rate:9,.0f} tok/s")

    for _ in range(turns):
        for name in benches:
            timed(name, SAMPLES)
    timed("resident", 16 * SAMPLES)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--compared", type=int, default=64, help="questions of the first part")
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    questions = benchmarks.read([ZOO / "benchmarks/math.jsonl"]).questions[:QUESTIONS]
    prompter = Prompter(MODEL, prompts.template("zoo"))

    def engine(kind: type[TransformersEngine], rows: int) -> TransformersEngine:
        return kind(MODEL, device=args.device, dtype=args.dtype, max_rows=rows, threads=1)

    engines = {"other": engine(TransformersEngine, ROWS), "resident": engine(ResidentEngine, ROWS)}
    benches = {name: Bench(engine, prompter, questions) for name, engine in engines.items()}
    compare_all(benches["other"], list(engines.values()), engine(TransformersEngine, ROWS // 2), args.compared)
    print_speeds(benches, args.turns)


if __name__ == "__main__":
    main()
