"""Tokens per second of vLLM under our driver: the autoregressive pool and power sampling against raw vLLM.

    python -P perf/vllm.py [--shape 7b] [--gpu H200] [--rows 1024] [--runs 3] [--only pool power]
    python -P perf/vllm.py --seconds 30 --warm 45    pool and power sampling without an end, between two measures of
                                                     the clock

Weights are random, in the shape of Qwen2.5, so texts mean nothing and never stop by themselves. Everything that decides
speed is scripted instead: prompts of 150 tokens, 16 searches or samples of each; the length of each text is drawn from
a lognormal law cut at ``CAP``, scaled to a mean of 645 tokens; power sampling accepts with probability .657. Each line
is one complete run, including its tail. With eight requests for each row, the default and the least for a line of the
pool, about nine tenths of its tokens come while the rows are full; with fewer the tail decides.

``raw``            ``LLM.generate`` on the requests of the autoregressive pool, with log-probabilities, in a process of
                   its own
``pool``           the same requests through engine and driver
``power``          chains of power sampling; ``of pool`` compares generated tokens per second
``power, alone``   one chain at a time, as published implementations do
``score``          texts of these lengths, two for each row, that are given; only with ``--only``
``prompts``        the same texts by vLLM's own log-probabilities of prompts, with the largest difference of log p

The columns after ``tok/s`` are of the window in which the rows are full, but for the sixteenth that the driver may
hold back: its tokens per second, its share of the run's seconds, milliseconds a step, and of these the processor time
of the thread that steps (``host``: scheduler, driver and searches; waiting for the GPU counts if the driver of the GPU
waits by spinning; with ``--processes`` the engines step elsewhere, and it is that of the driver and searches). ``of
limit`` is the window's rate over the roofline of the GPU (``searchlens.plan.cost``) for full rows and these lengths.
``cost.efficiency`` keeps it as ``share``, and ``host`` as ``host_ms``. The runs are made in turns, each line ``--runs``
times.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from searchlens.engines.base import Engine, Given, Request
from searchlens.engines.replicas import Replicas, share
from searchlens.engines.vllm import VllmEngine
from searchlens.plan.cost import GPUS, Limit, Shape, limit
from searchlens.search import power
from searchlens.search.driver import HELD_SHARE, Failure, Usage, run, start
from searchlens.search.policy import Policy, Texts, from_spec, parse
from searchlens.search.task import Search, Task
from searchlens.seeds import generator, sample_seed
from searchlens_lab.simulate import PAPER24

MEAN, CAP, SIGMA = 645, 2048, 0.7
PROMPT = 150
DTYPE = "bfloat16"
SAME_PROMPT = 16
ACCEPTANCE = 0.657
# Fewer blocks and steps than are sampled with, but continuations of about the same lengths.
POWER = {
    "local": {"temperature": 0.25},
    "controller": "power",
    "scheduler": {"name": "blocks", "blocks": 4, "steps": 1},
}
SHAPES = {
    "7b": {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28}
    | {"num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False},
    # To try this file on a CPU.
    "tiny": {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
    | {"num_key_value_heads": 2, "vocab_size": 1024, "tie_word_embeddings": True},
}
ROWS, REQUESTS_A_ROW, SEARCHES_A_ROW = 1024, 8, 4
ENDLESS = ("pool", "power")
ARCHITECTURE = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "max_position_embeddings": 32768}


@dataclass(frozen=True)
class Span:
    """What lies between the ends of two calls of ``step``: requests in the engine, steps, seconds, host's seconds."""

    requests: int
    steps: int
    seconds: float
    host: float


@dataclass(frozen=True)
class Window:
    """The spans in which rows were full: generated tokens, steps, seconds, host's seconds; 0 if there were none."""

    tokens: float = 0.0
    steps: int = 0
    seconds: float = 0.0
    host: float = 0.0

    @classmethod
    def of(cls, spans: Sequence[Span], rows: int, generated: int) -> Window:
        """The window of a run. A step draws a token for each row, but for the few whose prompt it computes in part."""
        full = [span for span in spans if span.requests >= rows - rows // HELD_SHARE]
        drawn, of_full = (sum(span.steps * min(span.requests, rows) for span in part) for part in (spans, full))
        steps = sum(span.steps for span in full)
        tokens = generated * of_full / max(drawn, 1)
        return cls(tokens, steps, sum(span.seconds for span in full), sum(span.host for span in full))

    @property
    def rate(self) -> float:
        """Tokens per second; not a number if rows were never full."""
        return self.tokens / self.seconds if self.steps else math.nan


@dataclass(frozen=True)
class Line:
    """One run; ``generated`` counts all tokens that were drawn, also those that no candidate has."""

    name: str
    requests: int
    generated: int
    seconds: float
    full: Window = Window()

    @property
    def rate(self) -> float:
        """Generated tokens per second, of the whole run with its tail."""
        return self.generated / self.seconds

    @property
    def steady(self) -> float:
        """Generated tokens per second while the rows are full, or of the whole run if they never were."""
        return self.rate if math.isnan(self.full.rate) else self.full.rate


class Watched:
    """An engine whose calls of ``step`` are timed; everything else is the engine's own."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._requests = engine, 0
        self.spans: list[Span] = []
        self._before = time.perf_counter(), time.thread_time(), engine.steps

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def add(self, request_id: int, request: Request) -> None:
        """Queue a request."""
        self._engine.add(request_id, request)
        self._requests += 1

    def step(self) -> list[tuple[int, Any]]:
        """Let the engine finish some requests."""
        done = self._engine.step()
        now = time.perf_counter(), time.thread_time(), self._engine.steps
        seconds, host, steps = (after - before for after, before in zip(now, self._before, strict=True))
        self.spans.append(Span(self._requests, int(steps), seconds, host))
        self._before = now
        self._requests -= len(done)
        return done  # type: ignore[return-value]


def lengths(number: int) -> list[int]:
    """Scripted lengths of texts; a function of their number alone."""
    draws = generator("perf", "lengths").lognormal(0.0, SIGMA, number)
    low, high = 1.0, float(CAP)
    for _ in range(60):  # bisection for the scale, because cutting lowers the mean
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(draws * middle, CAP).mean() < MEAN else (low, middle)
    return [max(1, int(length)) for length in np.minimum(draws * high, CAP)]


def prompt(number: int, vocab: int) -> tuple[int, ...]:
    """Token ids of a made-up question."""
    return tuple(generator("perf", "prompt", number // SAME_PROMPT).integers(3, vocab, PROMPT).tolist())


def pool_requests(texts: Sequence[int], vocab: int) -> list[Request]:
    """The autoregressive pool, its policies in turn, for texts of these lengths."""
    local = [parse(name).local for name in PAPER24]
    return [
        Request(prompt(i, vocab), local[i % len(local)], sample_seed("perf", str(i), 0), length, ())
        for i, length in enumerate(texts)
    ]


def started(policies: Sequence[Policy], texts: Sequence[int], vocab: int) -> list[tuple[int, Search]]:
    """Searches under policies in turn, whose texts have these lengths."""
    searches = []
    for i, length in enumerate(texts):
        task = Task(prompt(i, vocab), sample_seed("perf", str(i), 0), length, (), (), lambda _: "", lambda _: None)
        searches.append((i, start(task, policies[i % len(policies)])))
    return searches


def _endless(searches: Callable[[], list[tuple[int, Search]]]) -> Iterator[tuple[int, Search]]:
    """The same searches again and again, each time from their start."""
    for number in count():
        part = searches()
        for place, (_, search) in enumerate(part):
            yield number * len(part) + place, search


def driven(
    name: str,
    searches: Iterable[tuple[int, Search]],
    engine: Engine,
    warm: float = 0.0,
    seconds: float = math.inf,
    **options: Any,
) -> Line:
    """One run through the driver, or the rate of endless searches in the ``seconds`` after the first ``warm`` ones.

    After endless ones the engine is not idle. Their tokens are counted by steps and rows, so those of a row whose
    prompt is computed in part are counted, too.
    """
    watched, usage, begun, first = Watched(engine), Usage(), time.perf_counter(), 0
    for _, outcome in run(searches, watched, **options):  # type: ignore[arg-type]
        if isinstance(outcome, Failure):
            raise RuntimeError(outcome.reason)
        past = time.perf_counter() - begun
        if past < warm:
            first = len(watched.spans)
            continue
        usage += outcome.usage
        if past > warm + seconds:
            break
    spans = watched.spans[first:]
    if seconds < math.inf:
        usage = usage._replace(generated=sum(span.steps * min(span.requests, engine.max_rows) for span in spans))
    full = Window.of(spans, watched.max_rows, usage.generated)
    return Line(name, usage.requests, usage.generated, sum(span.seconds for span in spans), full)


def raw(folder: str, args: argparse.Namespace) -> Iterator[Line]:
    """``LLM.generate`` on the requests of the pool, once for each turn."""
    from vllm import LLM, SamplingParams  # noqa: PLC0415  # the process of the other runs does not need it

    model = LLM(
        folder,
        load_format="dummy",
        skip_tokenizer_init=True,
        dtype=DTYPE,
        quantization=args.quantization,
        max_num_seqs=args.rows,
        max_model_len=PROMPT + CAP + 8,
        enable_prefix_caching=True,
        disable_log_stats=True,
        enforce_eager=args.device == "cpu",
        generation_config="vllm",
        **({"block_size": 32, "kv_cache_memory_bytes": 2**30} if args.device == "cpu" else {}),
    )
    requests = pool_requests(lengths(args.requests), SHAPES[args.shape]["vocab_size"])
    params = [
        SamplingParams(
            temperature=request.sampling.temperature,
            top_p=request.sampling.top_p,
            top_k=request.sampling.top_k,
            min_p=request.sampling.min_p,
            seed=request.seed,
            max_tokens=request.max_tokens,
            ignore_eos=True,
            detokenize=False,
            logprobs=0,
        )
        for request in requests
    ]
    texts = [{"prompt_token_ids": list(request.prompt)} for request in requests]
    warm = [SamplingParams(max_tokens=8, ignore_eos=True, detokenize=False, logprobs=0, seed=1)] * len(texts[:64])
    model.generate(texts[:64], warm, use_tqdm=False)
    engine, plain_step, spans = model.llm_engine, model.llm_engine.step, []

    def step() -> Any:
        requests, begun = engine.get_num_unfinished_requests(), time.perf_counter()
        outputs = plain_step()
        spans.append(Span(requests, 1, time.perf_counter() - begun, math.nan))  # it steps elsewhere
        return outputs

    engine.step = step
    for _ in range(args.runs):
        model.reset_prefix_cache()
        spans.clear()
        started = time.perf_counter()
        outputs = model.generate(texts, params, use_tqdm=False)
        seconds = time.perf_counter() - started
        tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
        yield Line("raw", len(outputs), tokens, seconds, Window.of(spans, args.rows, tokens))


def _started(folder: str, args: argparse.Namespace) -> VllmEngine | Replicas:
    together: dict[str, Any] = {"max_rows": args.rows, "threads": None, "gpu_memory_utilization": args.memory}
    together["kv_cache_memory_bytes"] = None
    start = partial(
        VllmEngine,
        folder,
        device=args.device,
        dtype=DTYPE,
        quantization=args.quantization,
        max_model_len=PROMPT + CAP + 8,
        max_cudagraph_capture_size=args.graph,
        tensor_parallel=args.gpus,
        enforce_eager=args.eager,
        batch_invariant=args.invariant,
        fuse_allreduce_rms=None if args.gpus == 1 else False,
        load_format="dummy",
        **share(together, args.processes),
    )
    return start() if args.processes == 1 else Replicas(start, args.processes)


def ours(folder: str, args: argparse.Namespace) -> Iterator[Line]:
    """All runs through searchlens' engine."""
    vocab, pool = SHAPES[args.shape]["vocab_size"], [parse(name) for name in PAPER24]
    works = {
        "pool": partial(started, pool, lengths(args.requests), vocab),
        "power": partial(started, [from_spec("power", POWER)], lengths(args.searches), vocab),
    }
    power.PowerSampling._log_ratio = lambda *_: math.log(ACCEPTANCE)  # type: ignore[method-assign]
    if args.seconds:
        for name in args.only or works:
            engine = _started(folder, args)  # a new one for each, because the last is not idle
            yield driven(name, _endless(works[name]), engine, args.warm, args.seconds)
            engine.close()
        return
    engine = _started(folder, args)
    driven("warm-up", started(pool, lengths(64), vocab), engine, group=1)
    for _ in range(args.runs):
        for name in args.only or (*works, "power, alone"):
            if name == "score":
                assert isinstance(engine, VllmEngine), "with one process"
                yield from scored(engine, args.rows, vocab)
            elif name == "power, alone":
                yield driven(name, works["power"]()[:1], engine, live=1)
            elif name != "raw":
                yield driven(name, works[name](), engine)
    engine.close()


def scored(engine: VllmEngine, rows: int, vocab: int) -> Iterator[Line]:
    """Scoring of given texts, by given tokens and by vLLM's prompts."""
    from vllm import SamplingParams  # noqa: PLC0415

    texts = lengths(2 * rows)
    random = generator("perf", "given")
    given = [Given(prompt(i, vocab), tuple(random.integers(3, vocab, n).tolist())) for i, n in enumerate(texts)]
    engine.clear()
    begun = time.perf_counter()
    ours = engine.score(given)
    yield Line("score", len(given), sum(texts), time.perf_counter() - begun)
    engine.clear()
    begun = time.perf_counter()
    options = {"prompt_logprobs": 0, "flat_logprobs": True, "skip_reading_prefix_cache": True, "detokenize": False}
    for i, text in enumerate(given):
        params = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True, **options)
        engine._engine.add_request(str(i), {"prompt_token_ids": [*text.prompt, *text.tokens]}, params)
    theirs: dict[int, Any] = {}
    while len(theirs) < len(given):
        theirs |= {int(out.request_id): out.prompt_logprobs.logprobs for out in engine._engine.step() if out.finished}
    line = Line("prompts", len(given), sum(texts), time.perf_counter() - begun)
    off = max(np.abs(theirs[i][-n:] - ours[i].logprobs).max() for i, n in enumerate(texts))
    print(f"largest difference of log p: {off:.3g}", flush=True)
    yield line


def show(line: Line, rates: dict[str, float], bound: Limit) -> None:
    """Print one line; full rows compared with the latest ones of the pool and of raw vLLM, and with the limit."""
    rates[line.name] = line.steady
    full, steps = line.full, line.full.steps or math.nan
    print(
        f"{line.name:13} {line.requests:8} {line.generated:9} {line.seconds:7.1f} {line.rate:9,.0f} "
        f"{full.rate:9,.0f} {full.seconds / line.seconds:6.2f} {1e3 * full.seconds / steps:7.2f} "
        f"{1e3 * full.host / steps:6.2f} "
        f"{line.steady / rates['pool'] if 'pool' in rates else math.nan:7.2f} "
        f"{line.steady / rates['raw'] if 'raw' in rates else math.nan:6.2f} "
        f"{line.steady / bound.tokens_per_second:8.2f}",
        flush=True,
    )


def most(args: argparse.Namespace) -> Limit:
    """The roofline of the GPU for full rows, and texts with the lengths of the pool."""
    shape = Shape.read(ARCHITECTURE | SHAPES[args.shape])
    assert shape is not None, "the architecture is a known one"
    context = PROMPT + Texts(tuple(sorted(lengths(args.requests))), CAP).running
    options = {"utilization": args.memory, "processes": args.processes}
    return limit(shape, GPUS[args.gpu].times(args.gpus), args.rows, context, dtype=DTYPE, **options)


def _mistake(args: argparse.Namespace) -> str | None:
    if args.requests < REQUESTS_A_ROW * args.rows:
        return f"--requests {args.requests}: {args.rows} rows need at least {REQUESTS_A_ROW * args.rows}"
    if args.seconds and not {*(args.only or ENDLESS)} <= {*ENDLESS}:
        return f"--only {' '.join(args.only)}: with --seconds some of {', '.join(ENDLESS)}"
    if (args.gpus > 1 or args.eager) and not args.seconds:
        return "--gpus and --eager: with --seconds, because raw vLLM runs on one GPU, with graphs"
    if args.gpus > 1 and args.processes > 1:
        return f"--gpus {args.gpus}: with --processes 1"
    return None


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="7b")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--quantization", help="of the weights, such as fp8; the limit stays that of bfloat16")
    parser.add_argument("--rows", type=int, help=f"of all processes together; default: {ROWS} for each")
    parser.add_argument("--processes", type=int, default=1, help="engines that share the GPU, each with the weights")
    parser.add_argument("--gpus", type=int, default=1, help="with --seconds: GPUs that share the weights")
    parser.add_argument("--eager", action="store_true", help="with --seconds: without CUDA graphs and compilation")
    parser.add_argument("--invariant", action="store_true", help="kernels whose bits do not depend on the batch")
    parser.add_argument("--memory", type=float, default=0.9, help="share of the GPU's memory")
    parser.add_argument("--graph", type=int, help="most tokens of a step that runs as a CUDA graph; default: --rows")
    parser.add_argument("--gpu", choices=GPUS, default="H200", help="the kind that this runs on, for its limit")
    parser.add_argument("--requests", type=int, help=f"of the pool; default and least: {REQUESTS_A_ROW} x rows")
    parser.add_argument("--searches", type=int, help=f"chains of power sampling, {SEARCHES_A_ROW} x rows")
    parser.add_argument("--seconds", type=float, help="of pool and power sampling without an end")
    parser.add_argument("--warm", type=float, default=45, help="with --seconds: seconds before them")
    parser.add_argument("--runs", type=int, default=3, help="of each line, in turns")
    parser.add_argument("--only", nargs="+", help="names of lines, in this order; raw goes first")
    parser.add_argument("--baseline", metavar="FOLDER", help=argparse.SUPPRESS)  # the process that runs raw vLLM
    args = parser.parse_args()
    if not sys.flags.safe_path:
        parser.error("run it by python -P: otherwise this file takes the place of the package vllm")
    args.rows = args.rows or ROWS * args.processes
    args.requests = args.requests or REQUESTS_A_ROW * args.rows
    args.searches = args.searches or SEARCHES_A_ROW * args.rows
    if mistake := _mistake(args):
        parser.error(mistake)
    return args


def main() -> None:
    """Measure and print."""
    args = _arguments()
    if args.baseline:
        Path(args.baseline, "raw.json").write_text(json.dumps([asdict(line) for line in raw(args.baseline, args)]))
        return
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    print(f"{'run':13} {'requests':>8} {'generated':>9} {'seconds':>7} {'tok/s':>9} {'full t/s':>9}", end=" ")
    print(f"{'share':>6} {'ms/step':>7} {'host':>6} {'of pool':>7} {'of raw':>6} {'of limit':>8}", flush=True)
    bound = most(args)
    if args.device == "cuda" and bound.rows < args.rows:  # requests that wait would be counted as rows that draw
        raise SystemExit(f"--rows {args.rows}: the memory has room for {bound.rows}, by the limit of {args.gpu}")
    rates: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        shape = ARCHITECTURE | SHAPES[args.shape] | {"torch_dtype": DTYPE}
        Path(folder, "config.json").write_text(json.dumps(shape))
        if not args.seconds and (not args.only or "raw" in args.only):
            command = [sys.executable, "-P", __file__, *sys.argv[1:], "--baseline", folder]
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            for entry in json.loads(Path(folder, "raw.json").read_text()):
                show(Line(**{**entry, "full": Window(**entry["full"])}), rates, bound)
        for line in ours(folder, args):
            show(line, rates, bound)
    print(
        f"limit: {bound.tokens_per_second:,.0f} tokens/s of {args.gpus} {args.gpu}: {bound.rows} rows (bound by"
        f" {bound.rows_bound_by}) of {bound.context:.0f} tokens"
    )


if __name__ == "__main__":
    main()
