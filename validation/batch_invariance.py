"""Whether samples of vLLM depend on the batch: bytes of tokens, log p, log q and measures, drawn in several ways.

    python validation/batch_invariance.py --rows 64 --output 64.json
    python validation/batch_invariance.py --rows 1024 --output 1024.json && cmp 64.json 1024.json

Random weights in a shape of ``perf/vllm.py`` (``--plain``: without ``batch_invariant``, for comparison). 300 requests
under 26 policies are drawn all at once, again, with fewer in flight and in reverse. Texts are continued with their
prefixes cached and not, and scored. Each line says for how many every byte is equal.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import runpy
import tempfile
from collections.abc import Sequence
from pathlib import Path

from searchlens.engines.base import Completion, Given, Request, RequestError, Sampling
from searchlens.engines.vllm import VllmEngine
from searchlens.search.policy import parse
from searchlens.seeds import generator, sample_seed
from searchlens_lab.simulate import PAPER24

POLICIES = [
    *(parse(name).local for name in PAPER24),
    Sampling(1.0, typical_p=0.9),
    Sampling(0.8, repetition_penalty=1.2, frequency_penalty=0.3),
]


def run(engine: VllmEngine, requests: Sequence[Request], most: int = 10**9, *, clear: bool = True) -> list[Completion]:
    """Draw requests, at most so many in flight."""
    if clear:
        engine.clear()
    todo, live, done = list(enumerate(requests))[::-1], 0, dict[int, Completion]()
    while len(done) < len(requests):
        while todo and live < most:
            engine.add(*todo.pop())
            live += 1
        for i, completion in engine.step():
            if isinstance(completion, RequestError):
                raise completion
            done[i] = completion
            live -= 1
    return [done[i] for i in range(len(requests))]


def bytes_of(done: Completion) -> bytes:
    """All that is returned of a request with measures."""
    assert done.entropies is not None and done.certainties is not None
    arrays = (done.tokens, done.logprobs, done.sampling_logprobs, done.entropies, done.certainties)
    return b"".join(array.tobytes() for array in arrays)


def say(what: str, some: Sequence[bytes], others: Sequence[bytes]) -> None:
    """Print how many are equal."""
    equal = sum(one == other for one, other in zip(some, others, strict=True))
    print(f"{what}: {equal} of {len(some)}", flush=True)


def main() -> None:
    """Draw and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--shape", default="7b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--plain", action="store_true")
    options = parser.parse_args()
    speed = runpy.run_path(str(Path(__file__).parents[1] / "perf" / "vllm.py"))
    shape = speed["ARCHITECTURE"] | speed["SHAPES"][options.shape] | {"torch_dtype": "bfloat16"}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(shape))
        engine = VllmEngine(
            folder,
            device=options.device,
            max_rows=options.rows,
            max_model_len=1024,
            load_format="dummy",
            batch_invariant=not options.plain,
        )
        compare(engine, options.output)


def compare(engine: VllmEngine, output: Path) -> None:
    """Draw in all ways, and keep the digests."""
    lengths, vocab = generator("bits", "lengths"), engine.vocab_size
    requests = [
        Request(
            tuple(generator("bits", "p", i // 8).integers(3, vocab, 20 + (i // 8) % 90).tolist()),
            POLICIES[i % len(POLICIES)],
            sample_seed("bits", str(i), 0),
            int(lengths.integers(1, 100)),
            measures=True,
        )
        for i in range(300)
    ]
    drawn = run(engine, requests)
    first = [*map(bytes_of, drawn)]
    say("again", first, [*map(bytes_of, run(engine, requests))])
    say("64 in flight", first, [*map(bytes_of, run(engine, requests, 64))])
    say("7 in flight", first[:60], [*map(bytes_of, run(engine, requests[:60], 7))])
    say("in reverse", first, [*map(bytes_of, run(engine, requests[::-1]))][::-1])
    continued = [
        request._replace(
            prefix=tuple(done.tokens[: 1 + (i * 7) % len(done.tokens)].tolist()), seed=request.seed ^ 1, max_tokens=30
        )
        for i, (request, done) in enumerate(zip(requests, drawn, strict=True))
    ]
    computed = [*map(bytes_of, run(engine, continued))]
    run(engine, requests)
    cached = [*map(bytes_of, run(engine, continued, clear=False))]
    say("prefix from the cache", computed, cached)
    scores = engine.score(
        [Given(one.prompt, tuple(done.tokens.tolist())) for one, done in zip(requests, drawn, strict=True)]
    )
    say("scored", [done.logprobs.tobytes() for done in drawn], [score.logprobs.tobytes() for score in scores])
    output.write_text(json.dumps([hashlib.sha256(one).hexdigest() for one in (*first, *computed)]))


if __name__ == "__main__":
    main()
