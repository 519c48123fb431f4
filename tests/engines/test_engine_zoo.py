"""The shipped pair on every installed engine: real prompts, their answers, and searches."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from searchlens.benchmarks.prompts import template
from searchlens.engines.base import Engine, Request, Sampling
from searchlens.search.driver import Result, run, start
from searchlens.search.policy import Policy, from_spec
from searchlens.search.task import Task

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from test_engine_contract import embedded, finish, reference, resident, vllm  # noqa: E402

ZOO = Path(__file__).parents[2] / "resources" / "zoo"
EOS, PAD = 0, 1
CONTROLLERS = ("power", "entropy_tree", "step_beam")
LINE = 2  # any token will do as the end of a thought


def questions(folder: Path, count: int) -> list[tuple[int, ...]]:
    from tokenizers import Tokenizer

    tokenizer, render = Tokenizer.from_file(str(folder / "tokenizer.json")), template("zoo").render
    lines = (ZOO / "benchmarks" / "math.jsonl").read_text().splitlines()[:count]
    return [tuple(tokenizer.encode(render(json.loads(line)["question"])).ids) for line in lines]


def searched(controller: str) -> Policy:
    return from_spec(controller, {"local": {"temperature": 0.9, "top_p": 0.95}, "controller": controller})


def log_p(model: Any, prompt: tuple[int, ...], tokens: list[int], pad: int = PAD) -> np.ndarray:
    """Log-probabilities of every token that can be drawn, before each of `tokens`."""
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1].double()
    logits[:, pad] = -torch.inf
    return np.asarray(logits.log_softmax(-1))


@pytest.mark.parametrize("make", [embedded, resident, vllm], ids=lambda make: make.__name__)
@pytest.mark.parametrize("name", ["micro-1m-base", "micro-1m-rl"])
@pytest.mark.long
def test_zoo_pair(make: Callable[[Path], Engine], name: str) -> None:
    """Greedy and sampled answers stop by themselves; they and searches have the log-probabilities of a forward pass."""
    folder = ZOO / name
    model = reference(folder)
    prompts = questions(folder, 6)
    engine = make(folder)
    requests = [
        Request(prompt, Sampling(t), seed, 160, (EOS,)) for prompt in prompts for t in (0.0, 1.0) for seed in (1, 2)
    ]
    answers = finish(engine, requests)
    tasks = [Task(prompt, 7, 60, (EOS,), (LINE,), decode=str, answer=tuple) for prompt in prompts[:4]]
    jobs = [((i, name), start(task, searched(name))) for i, task in enumerate(tasks) for name in CONTROLLERS]
    outcomes = dict(run(jobs, engine))
    engine.close()
    assert np.mean([completion.finish == "stop" for completion in answers]) > 0.9
    for request, done in zip(requests, answers, strict=True):
        tokens = done.tokens.tolist()
        wanted = log_p(model, request.prompt, tokens)
        at = np.arange(len(tokens))
        np.testing.assert_allclose(done.logprobs, wanted[at, tokens], atol=1e-4)
        if request.sampling.temperature == 0:
            assert (wanted[at, tokens] >= wanted.max(1) - 1e-4).all()
    for (i, _), outcome in outcomes.items():
        assert isinstance(outcome, Result), outcome
        for candidate in outcome.candidates:
            tokens = candidate.tokens.tolist()
            wanted = log_p(model, tasks[i].prompt, tokens)[np.arange(len(tokens)), tokens]
            np.testing.assert_allclose(candidate.logprobs, wanted, atol=1e-4)
