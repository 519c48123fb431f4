"""A checkpoint from a GGUF file of Gemma 3 on vLLM, which alone of the engines runs it, against transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from searchlens.benchmarks import Question, prompts
from searchlens.benchmarks.prompter import Prompter
from searchlens.engines.base import Request, Sampling
from searchlens_lab.pretrained.convert import convert
from test_pretrained import Make, make, model  # noqa: F401

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytest.importorskip("vllm", reason="vllm is not installed")

from searchlens.engines.base import Engine  # noqa: E402
from searchlens.store.checkpoints import Adapter  # noqa: E402
from searchlens_lab.pretrained.train import Learner  # noqa: E402
from test_engine_contract import finish, vllm  # noqa: E402
from test_engine_zoo import log_p  # noqa: E402

BOS, EOS, PAD = 2, 1, 0
LENGTH = 24
ASKED = ("the capital of the capital is", "of", "7+7 is", "is the cap of 7 the capital of is of the")


def test_greedy_texts_and_log_probabilities_are_those_of_transformers(make: Make, tmp_path: Path) -> None:  # noqa: F811
    """Over texts longer than the window of the local layers, from prompts that begin with ``<bos>`` once."""
    folder = tmp_path / "out"
    convert(make(), folder, "float32")
    prompter = Prompter(folder, prompts.template("plain"))
    asked = [tuple(prompter.prompts([Question(str(i), text, "")])[0]) for i, text in enumerate(ASKED)]
    assert [prompt.count(BOS) for prompt in asked] == [1] * len(asked)
    assert {prompt[0] for prompt in asked} == {BOS}
    network = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    require_same(vllm(folder), asked, network)


def test_an_adapter_that_was_trained_here_is_added(make: Make, tmp_path: Path) -> None:  # noqa: F811
    """To every layer of which it has matrices; vLLM keeps it beside the weights, training adds it to them."""
    folder = tmp_path / "out"
    convert(make(), folder, "float32")
    learner = Learner(folder, "cpu", rank=3)
    torch.manual_seed(0)
    for weight in learner.model.parameters():
        if weight.requires_grad:
            weight.data = (0.3 * torch.randn_like(weight)).to(torch.bfloat16).float()
    learner.save(tmp_path / "adapter")
    asked = [tuple(learner.prompt(text)) for text in ASKED]
    require_same(vllm(folder, adapter=Adapter.read(tmp_path / "adapter")), asked, learner.model)


def require_same(engine: Engine, asked: list[tuple[int, ...]], network: Any) -> None:
    """The engine draws from the distribution of a network, and greedily its likeliest tokens."""
    requests = [Request(prompt, Sampling(t), 1, LENGTH, (EOS,)) for prompt in asked for t in (0.0, 1.0)]
    drawn = finish(engine, requests)
    engine.close()
    for request, done in zip(requests, drawn, strict=True):
        tokens = done.tokens.tolist()
        wanted = log_p(network, request.prompt, tokens, PAD)
        np.testing.assert_allclose(done.logprobs, wanted[np.arange(len(tokens)), tokens], atol=1e-4)
        if request.sampling.temperature == 0:
            assert tokens == wanted.argmax(1).tolist()
