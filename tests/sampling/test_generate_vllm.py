"""A pool through vLLM, as `snakemake` has it sampled: killed in the middle, resumed, and nothing twice."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from conftest import micro_study, write_config
from searchlens.errors import counted

if importlib.util.find_spec("vllm") is None:
    pytest.skip("vllm is not installed", allow_module_level=True)

QUESTIONS, SAMPLES = 32, 4
POLICIES = ["temp_0.7", "topp0.9_t0.9", "typical0.9_t1.0", "topp0.95_t1.0"]


def study() -> dict[str, Any]:
    """Four policies, greedy and a search on the micro Base model; chunks of eight questions."""
    content = micro_study(questions=QUESTIONS, samples=SAMPLES, chunk_samples=8 * SAMPLES)
    content["benchmarks"]["math"] |= {"pool": "four", "searches": "chains"}
    chain = {"controller": "power", "scheduler": {"name": "blocks", "blocks": 4, "steps": 2}}
    content["policies"] = {**dict.fromkeys([*POLICIES, "greedy"]), "chain": {"local": {"temperature": 0.5}, **chain}}
    content["pools"] = {"four": POLICIES, "chains": ["chain"]}
    return content


def files(folder: Path, ending: str) -> list[Path]:
    return sorted((folder / "results/generations").rglob(f"*.{ending}"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory whose study differs from one on the embedded engine by one value."""
    folder = tmp_path_factory.mktemp("study")
    return written(folder, {"engine": "vllm"})


def written(folder: Path, engine: dict[str, Any]) -> Path:
    """Write the study with an engine for Base into a folder."""
    config = study()
    config["checkpoints"]["micro-1m-base"] |= engine
    write_config(folder, config)
    return folder


def generate(threads: int) -> list[str]:
    command = [sys.executable, "-m", "searchlens", "generate", "--checkpoint", "micro-1m-base"]
    return [*command, "--benchmark", "math", "--threads", str(threads)]


def test_a_killed_pool_resumes_and_nothing_is_there_twice(folder: Path) -> None:
    command = generate(threads=1)
    running = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while running.poll() is None and len(files(folder, "chunk")) < 2:
        time.sleep(0.01)
    os.kill(running.pid, signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL, "it must be killed before it is done, or nothing is tested"
    chunks, shards = files(folder, "chunk"), {path: path.read_bytes() for path in files(folder, "parquet")}
    assert chunks

    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f" samples in {counted(len(chunks), 'chunk')} are there already" in done.stderr
    assert {path: path.read_bytes() for path in shards} == shards
    assert not files(folder, "chunk")
    frames = [pl.read_parquet(path) for path in files(folder, "parquet")]
    assert sorted(frame.height for frame in frames) == [QUESTIONS, *[QUESTIONS * SAMPLES] * (len(POLICIES) + 1)]
    for frame in frames:
        assert frame.n_unique(["question", "sample"]) == frame.height
        assert set(frame["finish"]) <= {"stop", "length"}
        assert (frame["logprobs"].list.len() == frame["n_tokens"]).all() and (frame["mean_logprob"] <= 0).all()
        assert frame.height == QUESTIONS or frame["text"].n_unique() > QUESTIONS


def test_shards_say_what_made_them(folder: Path) -> None:
    import torch
    import vllm

    told = [json.loads(path.read_text()) for path in files(folder, "json")]
    runner = "second" if torch.cuda.is_available() else "first"
    assert {one["engine"] for one in told} == {
        f"vllm {vllm.__version__} ({runner} model runner) torch {torch.__version__}"
    }
    assert all(one["prefilled"] > 0 for one in told)
    (chain,) = (one for one in told if one["policies"] == ["chain"])
    assert chain["requests"] > chain["rows"] and chain["generated"] > chain["tokens"] and chain["reused"] > 0
    assert all(one["mean_running"] > 1 and one["wall_seconds"] > 0 for one in told)


def test_two_processes_draw_the_samples_of_one(folder: Path, tmp_path: Path) -> None:
    """Protects studies: the number of processes may change between two jobs, so names and texts may not follow it."""
    drawn = {path.relative_to(folder): pl.read_parquet(path) for path in files(folder, "parquet")}
    assert len(drawn) == len(POLICIES) + 2, "the first test has drawn them"
    written(tmp_path, {"engine": "vllm", "vllm": {"processes": 2}})
    done = subprocess.run(generate(threads=2), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [path.relative_to(tmp_path) for path in files(tmp_path, "parquet")] == [*drawn]
    for name, one in drawn.items():
        two = pl.read_parquet(tmp_path / name).sort("question", "sample")
        same = ["question", "sample", "text", "tokens", "finish"]
        assert two.select(same).equals(one.sort("question", "sample").select(same))
        for column in ("logprobs", "sampling_logprobs"):
            off = two[column].explode() - one.sort("question", "sample")[column].explode()
            assert off.abs().max() < 1e-4, column  # type: ignore[operator]
    told = [json.loads(path.read_text()) for path in files(tmp_path, "json")]
    assert all(one["mean_running"] > 1 for one in told)
    (chain,) = (one for one in told if one["policies"] == ["chain"])
    assert chain["reused"] > 0
