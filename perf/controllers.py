"""Tokens per second of every controller: all searches at once, and one after the other, on one engine in one run.

    OMP_NUM_THREADS=1 python perf/controllers.py [--questions 256] [--device cuda]

The 1M Base model searches micro math questions. The baselines are in generated tokens per second, too:

``alone``     one search at a time, as published implementations do; on the first ``--alone`` questions
``of sweep``  the autoregressive sweep, 16 draws of ``topp0.95_t1.0`` for each question: the speed of the
              engine if nothing has to be decided
``of short``  the same sweep with texts cut at the search's mean tokens per request: the speed of the engine on
              requests of this length
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from searchlens import benchmarks, seeds
from searchlens.benchmarks import Question, prompts
from searchlens.benchmarks.prompter import Prompter
from searchlens.engines.transformers import TransformersEngine
from searchlens.grading import grader
from searchlens.search.driver import Failure, Usage, run, start
from searchlens.search.policy import Policy, from_spec, parse
from searchlens.search.task import Search, Task
from searchlens_lab.resident.engine import ResidentEngine

ZOO = Path(__file__).parents[1] / "resources/zoo"
MODEL = ZOO / "micro-1m-base"
LINE = {"name": "thought", "delimiter": "\n", "max_tokens": 48}
SPECS = {
    "power": {"local": {"temperature": 0.25}, "controller": "power"},
    "entropy_tree": {"controller": "entropy_tree", "transition": {"name": "branch", "gap": 2}},
    "thought_tree": {"controller": "thought_tree", "transition": LINE},
    "mcts": {"controller": "mcts", "transition": LINE},
    "step_beam": {"controller": "step_beam", "transition": LINE},
    "beam": {"controller": "beam"},
}
SWEEP, SAMPLES = "topp0.95_t1.0", 16
MAX_TOKENS = 128


class Timed(NamedTuple):
    """What searches cost, and the seconds that took."""

    usage: Usage
    seconds: float

    @property
    def rate(self) -> float:
        """Generated tokens per second."""
        return self.usage.generated / self.seconds


@dataclass(frozen=True)
class Bench:
    """An engine, and the questions to search."""

    engine: TransformersEngine
    prompter: Prompter
    questions: Sequence[Question]

    @cached_property
    def prompts(self) -> list[tuple[int, ...]]:
        """Token ids of the questions, which a job computes once."""
        return [self.prompter.prompts([question])[0] for question in self.questions]

    def searches(
        self, policy: Policy, runs: int, questions: int, max_tokens: int
    ) -> Iterator[tuple[tuple[int, int], Search]]:
        """``runs`` searches of each of the first questions."""
        grade = grader("math")
        step_ids = self.prompter.tokens_with(policy.delimiter) if policy.delimiter else ()

        def answer(tokens: object) -> str | None:
            return grade.extract(self.prompter.text(tokens), True).answer  # type: ignore[arg-type]

        for q, question in enumerate(self.questions[:questions]):
            prompt = self.prompts[q]
            for i in range(runs):
                seed = seeds.sample_seed("perf", question.id, i)
                task = Task(prompt, seed, max_tokens, self.prompter.stop_ids, step_ids, self.prompter.text, answer)
                yield (q, i), start(task, policy)

    def timed(self, policy: Policy, runs: int, questions: int, live: int, max_tokens: int = MAX_TOKENS) -> Timed:
        """Run the searches."""
        started, usage = time.perf_counter(), Usage()
        for _, outcome in run(self.searches(policy, runs, questions, max_tokens), self.engine, live=live):
            if isinstance(outcome, Failure):
                raise RuntimeError(outcome.reason)
            usage += outcome.usage
        return Timed(usage, time.perf_counter() - started)


def main() -> None:
    """Measure and print one line per controller."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=256)
    parser.add_argument("--alone", type=int, default=4, help="questions of the baseline")
    parser.add_argument("--runs", type=int, default=1, help="searches per question")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    kind = ResidentEngine if args.device == "cuda" else TransformersEngine  # as the cohort's jobs ask for it
    engine = kind(MODEL, device=args.device, dtype="float32", threads=1)
    questions = benchmarks.read([ZOO / "benchmarks/math.jsonl"]).questions[: args.questions]
    bench, count = Bench(engine, Prompter(MODEL, prompts.template("zoo")), questions), len(questions)
    policy = parse(SWEEP)
    bench.timed(policy, 2, min(64, count), live=4096)  # kernels are compiled on first use
    sweep = bench.timed(policy, SAMPLES, count, live=100_000)
    print(f"{count} questions on {args.device}; sweep: {sweep.usage.generated} tokens, {sweep.rate:,.0f} tok/s")
    print(f"{'controller':13} {'tokens':>9} {'requests':>8} {'tok/s':>9}", end=" ")
    print(f"{'of sweep':>8} {'of short':>8} {'alone':>7} {'ratio':>6}")
    for name, spec in SPECS.items():
        search = from_spec(name, spec)
        found = bench.timed(search, args.runs, count, live=100_000)
        usage, mean = found.usage, max(round(found.usage.generated / found.usage.requests), 1)
        short = bench.timed(policy, SAMPLES, count, live=100_000, max_tokens=mean)
        alone = bench.timed(search, args.runs, min(args.alone, count), live=1)
        print(
            f"{name:13} {usage.generated:9} {usage.requests:8} {found.rate:9,.0f} "
            f"{found.rate / sweep.rate:8.2f} {found.rate / short.rate:8.2f} "
            f"{alone.rate:7,.0f} {found.rate / alone.rate:6.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
