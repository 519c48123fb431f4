"""Tokens per second of every controller: all searches at once, and one after the other, on one engine in one run.

    OMP_NUM_THREADS=1 python perf/controllers.py [--questions 256] [--device cuda]

The 1M Base model searches micro math questions. The baselines are in generated tokens per second, too:

``alone``     one search at a time, as published implementations do; on the first ``--alone`` questions
``of sweep``  the autoregressive sweep, 16 draws of ``topp0.95_t1.0`` for each question: the speed of the
              engine if nothing has to be decided
``of short``  the same sweep with texts cut at the search's mean tokens per request: the speed of the engine on
              requests of this length

``running`` is the mean number of rows that are decoded together, ``reused`` the share of prompt and prefix tokens that
were not computed again, ``kB each`` the growth of Python's memory per running search, without tensors.

With ``--processes`` as many processes share the device, as jobs of a study do, and each does all of that at the same
time as the others. Tokens are theirs together, in the time of the slowest.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from pathlib import Path
from threading import Barrier
from typing import Any, NamedTuple

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
    """What searches cost, the seconds that took, and the mean number of rows that were decoded together."""

    usage: Usage
    seconds: float
    running: float

    @property
    def rate(self) -> float:
        """Generated tokens per second."""
        return self.usage.generated / self.seconds

    @classmethod
    def together(cls, of_processes: Sequence[Timed]) -> Timed:
        """The same of processes that began at the same time."""
        usages, seconds, running = zip(*of_processes, strict=True)
        return cls(reduce(add, usages), max(seconds), sum(running))


class Line(NamedTuple):
    """A controller: all searches at once, the sweep with texts as short as its requests, one search after the other.

    ``memory`` is in bytes of Python objects per live search.
    """

    name: str
    all: Timed
    short: Timed
    alone: Timed
    memory: float


def at_once() -> None:
    """Wait for no other process."""


@dataclass(frozen=True)
class Bench:
    """An engine, and the questions to search; ``begin`` waits for other processes, whose runs have other numbers."""

    engine: TransformersEngine
    prompter: Prompter
    questions: Sequence[Question]
    process: int = 0
    begin: Callable[[], Any] = at_once

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
                seed = seeds.sample_seed("perf", question.id, i + self.process * runs)
                task = Task(prompt, seed, max_tokens, self.prompter.stop_ids, step_ids, self.prompter.text, answer)
                yield (q, i), start(task, policy)

    def timed(self, policy: Policy, runs: int, questions: int, live: int, max_tokens: int = MAX_TOKENS) -> Timed:
        """Run the searches."""
        self.begin()
        started, steps, usage = time.perf_counter(), self.engine.steps, Usage()
        for _, outcome in run(self.searches(policy, runs, questions, max_tokens), self.engine, live=live):
            if isinstance(outcome, Failure):
                raise RuntimeError(outcome.reason)
            usage += outcome.usage
        return Timed(usage, time.perf_counter() - started, usage.generated / max(self.engine.steps - steps, 1))

    def memory(self, policy: Policy, few: int) -> float:
        """Bytes of Python objects per live controller."""
        peaks = []
        for questions in (few, 2 * few):
            tracemalloc.start()
            self.timed(policy, 1, questions, live=questions)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        return (peaks[1] - peaks[0]) / few


def measured(args: argparse.Namespace, process: int = 0, begin: Callable[[], Any] = at_once) -> Iterator[Timed | Line]:
    """The sweep, and a line of each controller."""
    kind = ResidentEngine if args.device == "cuda" else TransformersEngine  # as the cohort's jobs ask for it
    engine = kind(MODEL, device=args.device, dtype=args.dtype, threads=1)
    questions = benchmarks.load(ZOO / "benchmarks/math.jsonl")[: args.questions]
    bench = Bench(engine, Prompter(MODEL, prompts.template("zoo")), questions, process, begin)
    sweep = parse(SWEEP)
    bench.timed(sweep, 2, min(64, len(questions)), live=4096)  # kernels are compiled on first use
    yield bench.timed(sweep, SAMPLES, len(questions), live=100_000)
    for name, spec in SPECS.items():
        policy = from_spec(name, spec)
        searches = bench.timed(policy, args.runs, len(questions), live=100_000)
        per_request = max(round(searches.usage.generated / searches.usage.requests), 1)
        yield Line(
            name,
            searches,
            bench.timed(sweep, SAMPLES, len(questions), live=100_000, max_tokens=per_request),
            bench.timed(policy, args.runs, min(args.alone, len(questions)), live=1),
            bench.memory(policy, args.memory) if args.memory else 0.0,
        )


def together(args: argparse.Namespace) -> Iterator[Timed | Line]:
    """The same of several processes."""
    context = multiprocessing.get_context("spawn")
    barrier, pipes = context.Barrier(args.processes), [context.Pipe(duplex=False) for _ in range(args.processes)]
    for number, (_, pipe) in enumerate(pipes):
        context.Process(target=_send, args=(args, number, barrier, pipe), daemon=True).start()
        pipe.close()  # a process that fails ends what the other end reads
    for _ in range(1 + len(SPECS)):
        of_processes = [pipe.recv() for pipe, _ in pipes]
        if isinstance(of_processes[0], Timed):
            yield Timed.together(of_processes)
            continue
        names, *timed, memory = zip(*of_processes, strict=True)
        yield Line(names[0], *map(Timed.together, timed), max(memory))


def _send(args: argparse.Namespace, process: int, barrier: Barrier, pipe: Any) -> None:
    try:
        for result in measured(args, process, barrier.wait):
            pipe.send(result)
    except BaseException:
        barrier.abort()  # or the others would wait for ever
        raise


def main() -> None:
    """Measure and print one line per controller."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=256)
    parser.add_argument("--alone", type=int, default=4, help="questions of the baseline")
    parser.add_argument("--runs", type=int, default=1, help="searches per question")
    parser.add_argument("--memory", type=int, default=32, help="controllers of the smaller run for (c); 0 skips it")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--processes", type=int, default=1)
    args = parser.parse_args()
    lines = measured(args) if args.processes == 1 else together(args)
    sweep = next(lines)
    assert isinstance(sweep, Timed)
    where = f"{args.device}, {args.processes} at a time" if args.processes > 1 else args.device
    print(
        f"{args.questions} questions on {where}; sweep: {sweep.usage.generated} tokens, {sweep.rate:,.0f} tok/s,",
        end=" ",
    )
    print(f"running {sweep.running:.0f}")
    print(f"{'controller':13} {'tokens':>9} {'requests':>8} {'running':>7} {'reused':>6} {'tok/s':>9}", end=" ")
    print(f"{'us each':>7} {'of sweep':>8} {'of short':>8} {'alone':>7} {'ratio':>6} {'kB each':>7}")
    for line in lines:
        assert isinstance(line, Line)
        usage, searches = line.all.usage, line.all
        print(
            f"{line.name:13} {usage.generated:9} {usage.requests:8} {searches.running:7.0f} "
            f"{usage.reused / (usage.prefilled + usage.reused):6.2f} {searches.rate:9,.0f} "
            f"{1e6 * searches.seconds / usage.requests:7.1f} {searches.rate / sweep.rate:8.2f} "
            f"{searches.rate / line.short.rate:8.2f} {line.alone.rate:7,.0f} {searches.rate / line.alone.rate:6.1f} "
            f"{line.memory / 1e3:7.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
