"""Tokens per second of every controller: all searches at once, and one after the other, on one engine in one run.

    OMP_NUM_THREADS=1 python perf/controllers.py [--questions 256] [--device cuda] [--controllers power ...]

The 1M Base model searches micro math questions. The baselines are in generated tokens per second, too:

``alone``     one search at a time, as published implementations do; on the first ``--alone`` questions
``of sweep``  the autoregressive sweep, ``--samples`` draws of ``topp0.95_t1.0`` for each question: the speed of the
              engine if nothing has to be decided
``of short``  the same sweep with texts cut at the search's mean tokens per request: the speed of the engine on
              requests of this length

``running`` is the mean number of rows that are decoded together, ``reused`` the share of prompt and prefix tokens that
were not computed again, ``kB each`` the growth of Python's memory per running search, without tensors.
"""

from __future__ import annotations

import argparse
import json
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from searchlens import policies, seeds
from searchlens.benchmarks import Question, prompts
from searchlens.engines.transformers import TransformersEngine
from searchlens.generate import Prompter
from searchlens.grading import grader
from searchlens.search.driver import Failure, Usage, run, start
from searchlens.search.task import Search, Task

ZOO = Path(__file__).parents[1] / "resources" / "zoo"
LINE = {"name": "thought", "delimiter": "\n", "max_tokens": 48}
SPECS = {
    "power": {"local": {"temperature": 0.25}, "controller": "power"},
    "entropy_tree": {"controller": "entropy_tree", "transition": {"name": "branch", "gap": 2}},
    "thought_tree": {"controller": "thought_tree", "transition": LINE},
    "mcts": {"controller": "mcts", "transition": LINE},
    "step_beam": {"controller": "step_beam", "transition": LINE},
    "beam": {"controller": "beam"},
}
SWEEP = "topp0.95_t1.0"
MAX_TOKENS = 128


@dataclass(frozen=True)
class Bench:
    """An engine, and the questions to search."""

    engine: TransformersEngine
    prompter: Prompter
    questions: list[Question]

    @cached_property
    def prompts(self) -> list[tuple[int, ...]]:
        """Token ids of the questions, which a job computes once."""
        return [self.prompter.encode(question) for question in self.questions]

    def searches(
        self, policy: policies.Policy, runs: int, questions: int, max_tokens: int
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

    def timed(
        self, policy: policies.Policy, runs: int, questions: int, live: int, max_tokens: int = MAX_TOKENS
    ) -> tuple[Usage, float, int]:
        """What the searches cost, the seconds that took, and the engine's steps."""
        started, steps, usage = time.perf_counter(), self.engine.steps, Usage()
        for _, outcome in run(self.searches(policy, runs, questions, max_tokens), self.engine, live=live):
            if isinstance(outcome, Failure):
                raise RuntimeError(outcome.reason)
            usage += outcome.usage
        return usage, time.perf_counter() - started, self.engine.steps - steps

    def memory(self, policy: policies.Policy, few: int) -> float:
        """Bytes of Python objects per live controller."""
        peaks = []
        for questions in (few, 2 * few):
            tracemalloc.start()
            self.timed(policy, 1, questions, live=questions)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        return (peaks[1] - peaks[0]) / few


def main() -> None:
    """Measure and print one line per controller."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=256)
    parser.add_argument("--alone", type=int, default=4, help="questions of the baseline")
    parser.add_argument("--samples", type=int, default=16, help="of the autoregressive sweep")
    parser.add_argument("--runs", type=int, default=1, help="searches per question")
    parser.add_argument("--memory", type=int, default=32, help="controllers of the smaller run for (c); 0 skips it")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--controllers", nargs="+", choices=SPECS, default=list(SPECS))
    args = parser.parse_args()
    model = ZOO / "micro-1m-base"
    rows = [json.loads(line) for line in (ZOO / "benchmarks" / "math.jsonl").read_text().splitlines()]
    questions = [Question(row["id"], row["question"], "", {}) for row in rows[: args.questions]]
    bench = Bench(
        TransformersEngine(model, device=args.device, threads=args.threads),
        Prompter(model, prompts.template("zoo")),
        questions,
    )
    sweep = policies.parse(SWEEP)
    bench.timed(sweep, 2, min(64, len(questions)), live=4096)  # kernels are compiled on first use

    usage, seconds, steps = bench.timed(sweep, args.samples, len(questions), live=100_000)
    plain = usage.generated / seconds
    print(f"{len(questions)} questions on {args.device}; sweep: {usage.generated} tokens, {plain:,.0f} tok/s,", end=" ")
    print(f"running {usage.generated / max(steps, 1):.0f}")
    print(
        f"{'controller':13} {'tokens':>9} {'requests':>8} {'running':>7} {'reused':>6} {'tok/s':>8} {'of sweep':>8}",
        end="",
    )
    print(f" {'of short':>8} {'alone':>7} {'ratio':>6} {'kB each':>7}")
    for name in args.controllers:
        policy = policies.from_spec(name, SPECS[name])
        usage, seconds, steps = bench.timed(policy, args.runs, len(questions), live=100_000)
        per_request = max(round(usage.generated / usage.requests), 1)
        short, short_seconds, _ = bench.timed(sweep, args.samples, len(questions), live=100_000, max_tokens=per_request)
        alone, alone_seconds, _ = bench.timed(policy, args.runs, min(args.alone, len(questions)), live=1)
        speed, slow = usage.generated / seconds, alone.generated / alone_seconds
        reused, running = usage.reused / (usage.prefilled + usage.reused), usage.generated / max(steps, 1)
        memory = f"{bench.memory(policy, args.memory) / 1e3:7.0f}" if args.memory else f"{'-':>7}"
        print(
            f"{name:13} {usage.generated:9} {usage.requests:8} {running:7.0f} {reused:6.2f} {speed:8,.0f}"
            f" {speed / plain:8.2f} {speed * short_seconds / short.generated:8.2f} {slow:7,.0f} {speed / slow:6.1f}"
            f" {memory}",
            flush=True,
        )


if __name__ == "__main__":
    main()
