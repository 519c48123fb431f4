"""Parallel jobs spread over the visible GPUs: real processes with real locks, and a made-up number of GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from searchlens.config.sampled import CheckpointSpec, VllmSpec
from searchlens.engines import kind
from searchlens.sampling import _job

JOB = """
import sys, torch
torch.cuda.device_count = lambda: int(sys.argv[1])
from searchlens.engines import kind
print(kind.take_gpu(), flush=True)
sys.stdin.read()
"""

Begin = Callable[[int], tuple[str, subprocess.Popen[str]]]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Start a job that sees this many GPUs, and wait until it has taken one; return the GPU and the process."""
    (tmp_path / "torch.py").write_text("class cuda: pass")  # importing the real one takes a job seconds
    environment = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
    environment |= {"TMPDIR": str(tmp_path), "PYTHONPATH": f"{tmp_path}:{Path(kind.__file__).parents[2]}"}
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with ExitStack() as stack:

        def start(gpus: int) -> tuple[str, subprocess.Popen[str]]:
            job = subprocess.Popen(
                [sys.executable, "-P", "-c", JOB, str(gpus)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(job.communicate)
            assert job.stdout
            return job.stdout.readline().strip(), job

        yield start


def test_jobs_take_the_gpu_that_fewest_have_taken(begin: Begin) -> None:
    """Seven jobs on three GPUs: three on the first, two on each other one; the GPU of killed jobs is taken next."""
    taken = [begin(3) for _ in range(7)]
    assert [gpu for gpu, _ in taken] == list("0120120")
    for killed in (taken[1][1], taken[4][1]):  # both of GPU 1, which is empty now, its slots open
        killed.kill()
        killed.wait()
    assert [begin(3)[0] for _ in range(3)] == ["1", "1", "1"]


@pytest.mark.parametrize(
    ("variable", "gpus"), [(None, ["0", "1", "2"]), ("4,2, 7", ["4", "2", "7"]), ("3,-1,5", ["3"])]
)
def test_gpus_have_the_names_that_they_are_shown_by(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, gpus: list[str]
) -> None:
    """If a user makes three of eight GPUs visible, jobs use these three; CUDA sees no GPU after a -1."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: len(gpus))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert kind.visible_gpus() == gpus


@pytest.mark.parametrize("gpus", [0, 1])
def test_a_single_gpu_is_not_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gpus: int) -> None:
    """The job of a scheduler sees one GPU, and keeps the name that the scheduler gave it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-5f2a")
    assert kind.take_gpu() is None
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-5f2a"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("device", "parallel", "takes"), [("cuda", 1, True), ("auto", 1, True), ("cuda", 2, False), ("cpu", 1, False)]
)
def test_a_job_of_one_gpu_takes_it_before_its_engine_starts(
    monkeypatch: pytest.MonkeyPatch, device: str, parallel: int, takes: bool
) -> None:
    """An engine over several GPUs uses all visible ones, and one on a CPU none."""
    calls: list[str] = []

    def engine(*_: Any, device: str, **given: Any) -> SimpleNamespace:
        calls.append("engine")
        return SimpleNamespace()

    monkeypatch.setattr("searchlens.engines.transformers.TransformersEngine", engine)
    monkeypatch.setattr("searchlens.engines.vllm.VllmEngine", engine)
    monkeypatch.setattr(_job, "take_gpu", lambda: calls.append("take"))
    spec = CheckpointSpec(device=device, engine="vllm", vllm=VllmSpec(tensor_parallel=parallel))
    _job.start_engine(Path("somewhere"), spec, max_rows=None, threads=1, adapter=None, masked=())
    assert calls == (["take", "engine"] if takes else ["engine"])
    calls.clear()
    _job.start_engine(
        Path("somewhere"), replace(spec, engine="transformers"), max_rows=None, threads=1, adapter=None, masked=()
    )
    assert calls == (["engine"] if device == "cpu" else ["take", "engine"]), "the options of another engine say nothing"
