"""A checkpoint with a LoRA adapter is the checkpoint whose weights are W + scale · B A, on every installed engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from searchlens.engines.base import Engine, Given, Request
from searchlens.errors import InputError
from searchlens.store.checkpoints import SETTINGS, WEIGHTS, Adapter

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from test_engine_contract import TEMPERATURE, embedded, finish, given_texts, log_p_of, save, various, vllm  # noqa: E402

RANK, ALPHA = 3, 12
TARGETS = {"q_proj": "self_attn", "v_proj": "self_attn", "down_proj": "mlp"}
PLAIN = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "target_modules": [*TARGETS], "bias": "none"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("adapted"))


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def adapter(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Adapter:
    """An adapter that changes much, whose sum is put into ``model`` by hand."""
    from safetensors.torch import save_file

    path = tmp_path_factory.mktemp("adapter")
    torch.manual_seed(1)
    weights = {}
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in TARGETS:
            a, b = torch.randn(RANK, module.in_features), torch.randn(module.out_features, RANK)
            weights |= {f"base_model.model.{name}.lora_{part}.weight": 0.1 * w for part, w in (("A", a), ("B", b))}
            module.weight.data += ALPHA / RANK * 0.01 * b @ a
    save_file(weights, path / WEIGHTS)
    (path / SETTINGS).write_text(json.dumps(PLAIN))
    return Adapter.read(path)


@pytest.fixture(scope="module", params=[embedded, vllm], ids=lambda make: make.__name__)
def engine(request: pytest.FixtureRequest, folder: Path, adapter: Adapter) -> Iterator[Engine]:
    pytest.importorskip("peft" if request.param is embedded else "vllm")
    started: Engine = request.param(folder, adapter=adapter)
    yield started
    started.close()


def test_scores_are_those_of_the_sum(engine: Engine, model: Any) -> None:
    texts = given_texts(40)
    for text, scored in zip(texts, engine.score(texts), strict=True):
        np.testing.assert_allclose(scored.logprobs, log_p_of(model, text), atol=2e-4)


def test_samples_are_drawn_from_the_sum(engine: Engine, model: Any) -> None:
    """Every drawn token has the log probability that the sum gives it, so no request goes without the adapter."""
    requests: list[Request] = various([TEMPERATURE], 30)
    for request, done in zip(requests, finish(engine, requests), strict=True):
        if len(done.tokens):
            text = Given((*request.prompt, *request.prefix), tuple(done.tokens))
            np.testing.assert_allclose(done.logprobs, log_p_of(model, text), atol=2e-4)


def test_an_adapter_of_another_model_is_refused(adapter: Adapter, folder: Path, tmp_path: Path) -> None:
    """Otherwise vLLM would silently leave out the layers that it does not have."""
    from safetensors.torch import load_file, save_file

    weights = load_file(adapter.folder / WEIGHTS)
    (tmp_path / SETTINGS).write_text(json.dumps(PLAIN))
    others = {
        "longer": {name: torch.cat([weight, weight], 1) for name, weight in weights.items()},
        "another layer": {name.replace("layers.0", "layers.7"): weight for name, weight in weights.items()},
        "another kind": {name.replace("lora_A", "lora_embedding_A"): weight for name, weight in weights.items()},
    }
    adapter.require_fits(folder)
    for tensors in others.values():
        save_file(tensors, tmp_path / WEIGHTS)
        with pytest.raises(InputError, match=r"base_model.* fits no weight of"):
            Adapter.read(tmp_path).require_fits(folder)
    (tmp_path / WEIGHTS).write_bytes(b"cut off")
    with pytest.raises(InputError, match="no whole safetensors file"):
        Adapter.read(tmp_path).require_fits(folder)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(("target", "copied"), [("lm_head", True), ("embed_tokens", False), ("embed_tokens", True)])
def test_an_adapter_of_the_embedding_or_the_head_is_named(
    tied: bool, target: str, copied: bool, folder: Path, tmp_path: Path
) -> None:
    """As peft saves it: it is the right checkpoint, and the hint says what can be done."""
    pytest.importorskip("peft")
    from peft import LoraConfig, get_peft_model

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, tie_word_embeddings=tied)
    model.save_pretrained(tmp_path / "checkpoint")
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=[target, "q_proj"], init_lora_weights=False))
    adapted.save_pretrained(tmp_path, save_embedding_layers=copied)
    with pytest.raises(InputError, match=rf"{target}.* is LoRA on the embedding or the head") as refused:
        Adapter.read(tmp_path).require_fits(tmp_path / "checkpoint")
    assert "merge it into the checkpoint" in refused.value.hint
