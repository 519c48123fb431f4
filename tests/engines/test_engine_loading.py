"""Checkpoints are read to the bit as transformers reads them, and mostly without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from searchlens.engines import _llama  # noqa: E402
from test_engine_contract import save  # noqa: E402

ZOO = Path(__file__).parents[2] / "resources/zoo"
FOLDERS = sorted(path.parent for path in ZOO.rglob("model.safetensors"))


def check_same(folder: Path, dtype: Any) -> None:
    """Every number that is read equals what transformers reads, to the bit."""
    ours = _llama.load(folder, dtype)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    assert ours.shape.max_len == theirs.config.max_position_embeddings
    assert ours.eps == theirs.config.rms_norm_eps
    assert ours.attention_scaling == theirs.model.rotary_emb.attention_scaling
    assert torch.equal(ours.inverse_frequencies, theirs.model.rotary_emb.inv_freq)
    wanted = theirs.state_dict()
    assert ours.tensors.keys() == wanted.keys()
    for name, tensor in ours.tensors.items():
        assert tensor.dtype == wanted[name].dtype == dtype
        assert torch.equal(tensor, wanted[name]), name
    head, embedding = (ours.tensors[name] for name in ("lm_head.weight", "model.embed_tokens.weight"))
    tied = wanted["lm_head.weight"].data_ptr() == wanted["model.embed_tokens.weight"].data_ptr()
    assert (head.data_ptr() == embedding.data_ptr()) == tied


@pytest.mark.parametrize("name", [str(path.relative_to(ZOO)) for path in FOLDERS])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_zoo_is_read_as_transformers_reads_it(name: str, dtype: str) -> None:
    """Protects every text and log-probability of the micro zoo, and the start of its jobs."""
    check_same(ZOO / name, getattr(torch, dtype))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint with weights of its own for the head, as transformers writes it."""
    return save(tmp_path / "model")


def test_a_folder_that_transformers_wrote_is_read_as_it_reads_it(folder: Path) -> None:
    """Protects models whose head is not the embedding."""
    check_same(folder, torch.float32)


def test_a_job_on_the_zoo_does_without_transformers() -> None:
    """Protects the start of jobs, in a process of its own."""
    code = (
        "import sys\n"
        "import searchlens.sampling\n"
        "from searchlens.engines.base import Request, Sampling, complete\n"
        "from searchlens.engines.transformers import TransformersEngine\n"
        f"engine = TransformersEngine({str(ZOO / 'micro-1m-base')!r}, device='cpu', max_rows=4, threads=1)\n"
        "((_, done),) = complete(engine, [Request((5, 6), Sampling(), 1, 4, ())])\n"
        "assert len(done.tokens) == 4\n"
        "print([name for name in sys.modules if name.partition('.')[0] == 'transformers'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
