"""What sampling jobs ask a scheduler for follows from weights and plan: computed here by hand."""

import json
import math
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import Make, Raw
from searchlens.config.limits import PART_ROWS
from searchlens.plan import cost

ROOT = Path(__file__).parents[2]


@pytest.fixture
def weighed(raw: Raw, tmp_path: Path) -> Raw:
    """Base with 2 GB of weights (a sparse file), declared so that nobody hashes them, and a measured speed."""
    size, length = 2_000_000_000, 100
    numbers = size - 8 - length
    header = json.dumps({"w": {"dtype": "U8", "shape": [numbers], "data_offsets": [0, numbers]}}).ljust(length)
    with (tmp_path / "base/model.safetensors").open("wb") as stream:
        stream.write(length.to_bytes(8, "little") + header.encode())
        stream.truncate(size)
    raw["checkpoints"]["toy-base"]["sha256"] = "0" * 64
    raw["pairs"]["toy"]["parameters"] = 1e9
    raw["cost"] = {"throughput": [{"parameters": 1e9, "tokens_per_second": 0.1, "source": "a test"}]}
    return raw


def test_memory_grows_with_the_weights(weighed: Raw, make_grid: Make) -> None:
    """4 GB and three times 2 GB (and the few bytes of the other files) embedded; 16 GB a worker and 3 GB in vLLM."""
    assert cost.memory_mb(make_grid(weighed), "toy-base") == 10_001
    assert cost.memory_mb(make_grid(weighed), "toy-rl") == 4_001
    weighed["checkpoints"]["toy-base"] |= {"engine": "vllm", "device": "cuda", "vllm": {"tensor_parallel": 4}}
    assert cost.memory_mb(make_grid(weighed), "toy-base") == 67_001
    weighed["checkpoints"]["toy-base"]["vllm"] = {"processes": 2}
    assert cost.memory_mb(make_grid(weighed), "toy-base") == 35_001


def test_time_is_twice_the_planned_tokens_and_a_start(weighed: Raw, make_grid: Make) -> None:
    """Three policies of 4 samples and greedy of 1, 6 questions, 4 tokens (half of 8) at 0.1 a second: 52 minutes."""
    grid = make_grid(weighed)
    (pool,) = grid.jobs.pools("toy-base", "sums")
    expected = (3 * 4 + 1) * 6 * 4 / 0.1 / 60
    assert cost.minutes(grid, pool) == -int(-(30 + 0.4 + 2 * expected) // 1)


def test_jobs_with_more_to_draw_come_first(raw: Raw, make_grid: Make) -> None:
    """Between the comparison of engines (15) and what reads samples (5); the order is that of the planned tokens."""
    ranks = []
    for samples in (400, 4_000, 4_000_000):
        raw["samples"] = samples
        grid = make_grid(raw)
        (pool,) = grid.jobs.pools("toy-base", "sums")
        tokens = sum(grid.jobs.tokens("sums", generation) for generation in pool.generations)
        ranks.append(cost.priority(grid, pool))
        assert ranks[-1] == pytest.approx(10 + tokens / (tokens + 1e9), abs=1e-6)
    assert sorted(set(ranks)) == ranks and ranks[0] > 10 and ranks[-1] < 11


def test_a_full_store_asks_for_the_start_alone(weighed: Raw, make_grid: Make, publish: Any) -> None:
    grid = make_grid(weighed)
    (pool,) = grid.jobs.pools("toy-base", "sums")
    for generation in pool.generations:
        publish(grid, "toy-base", "sums", generation)
    assert cost.minutes(make_grid(weighed), pool) == 30


def test_memory_of_a_cell_follows_from_its_plan(raw: Raw, make_grid: Make) -> None:
    """Each formula by hand; more samples never ask for less, and a landscape reads at most a part of them at a time."""
    asked = []
    for samples in (4, 4_000, 400_000):
        raw["samples"] = samples
        grid = make_grid(raw)
        counts = cost.samples(grid, "toy-base", "sums")
        assert counts == [6 * samples] * 3 + [6]
        estimates = 6 * sum(sum(6 * budget <= n for budget in grid.study.read_budgets("sums")) for n in counts)
        part = max(6 * samples, min(sum(counts), PART_ROWS))
        found = cost.landscape_mb(grid, "toy-base", "sums")
        assert found == math.ceil(400 + 0.6e-3 * part + 0.45e-3 * estimates)
        assert cost.recovery_mb(grid, "toy", "sums") == math.ceil(400 + 0.7e-3 * estimates)
        graded = cost.score_mb(grid, "toy-base", "sums")
        texts = 1.3e-6 * 4.5 * cost.assumed_length(grid.config, "sums").tokens * max(counts)
        assert graded == math.ceil(400 + 0.8e-3 * part + texts)
        asked.append((found, graded))
    assert asked == sorted(asked)


def test_a_failed_job_asks_for_more_memory_next_time() -> None:
    """Every stage that may outgrow its memory goes through ``larger``."""
    rules = "".join(path.read_text() for path in sorted((ROOT / "workflow/rules").glob("*.smk")))
    assert not re.findall(r"mem_mb=(?!larger\()", rules)


def test_the_page_about_clusters_says_where_each_rule_runs() -> None:
    """What may take long is a job, which gets more time at each attempt."""
    folders = (ROOT / "workflow/rules", ROOT / "lab/src/searchlens_lab/equivalence")
    rules = "".join(path.read_text() for folder in folders for path in sorted(folder.glob("*.smk")))
    _, *parts = re.split(r"^ *rule ?(\w*):$", rules, flags=re.MULTILINE)
    local = {name: "localrule: True" in body for name, body in zip(parts[::2], parts[1::2], strict=True)}
    assert local.pop(""), "landscape and recovery of recorded cells, named in a loop"
    rows = re.findall(
        r"^\| ([\w, ]+) \| (on Snakemake's machine|one job)", (ROOT / "docs/cluster.md").read_text(), re.M
    )
    assert {name: where != "one job" for names, where in rows for name in names.split(", ")} == local
    assert all("runtime=longer(" in body for body in parts[1::2] if "localrule: True" not in body)


def test_without_a_speed_a_job_asks_for_the_longest(weighed: Raw, make_grid: Make) -> None:
    """Twice 120 minutes, 30 of start and 0.4 of reading."""
    del weighed["cost"]
    grid = make_grid(weighed)
    assert cost.minutes(grid, grid.jobs.pools("toy-base", "sums")[0]) == 271


def test_a_checkpoint_that_is_not_pinned_has_no_known_size(raw: Raw, make_grid: Make) -> None:
    """So that a study can be planned before it is pinned."""
    raw["checkpoints"]["toy-base"] = {"hub": "maker/model"}
    assert cost.weights_bytes(make_grid(raw), "toy-base") == 0


# ---- what a profile says of its cluster


def planned(raw: Raw, folder: Path, *settings: str, options: Sequence[str] = ()) -> str:
    """The resources of every job of a dry run, or its error."""
    for name in ("config", "models", "benchmarks", "policies", "boptr"):
        (folder / "config").mkdir(exist_ok=True)
        (folder / f"config/{name}.yaml").write_text(yaml.safe_dump(raw if name == "config" else {}))
    snakemake = [str(Path(sys.executable).parent / "snakemake"), "--snakefile", str(ROOT / "Snakefile"), *options]
    command = [*snakemake, "-n", "--cores", "1", "--quiet", "progress", "--config", *settings, "--", "samples"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).splitlines()
    return "\n".join(line for line in lines if done.returncode or "runtime=" in line)


def own_profile(folder: Path, name: str = "mine", **config: Any) -> list[str]:
    """Options that name a user's copy of the profile, edited; without what needs the executor to be installed."""
    shipped = yaml.safe_load((ROOT / "profiles/slurm/config.yaml").read_text())
    content = {key: value for key, value in shipped.items() if key != "executor" and not key.startswith("slurm-")}
    content["config"] |= config
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "config.yaml").write_text(yaml.safe_dump(content))
    return ["--profile", name]


@pytest.mark.long
def test_gpus_are_asked_for_as_the_cluster_wants(weighed: Raw, tmp_path: Path) -> None:
    """Base runs on two GPUs of a cluster that counts them as generic resources; no job is longer than it takes."""
    weighed["checkpoints"]["toy-base"] |= {"engine": "vllm", "device": "cuda", "vllm": {"tensor_parallel": 2}}
    told = planned(weighed, tmp_path, "gpu_request=gres:a100", "max_minutes=45")
    base = next(line for line in told.splitlines() if "gres=gpu:a100:2" in line)
    assert "gpu=0" in base
    assert "mem_mb=35001" in base
    assert {int(minutes) for minutes in re.findall(r"runtime=(\d+)", told)} <= {45, 60}
    assert "gpu=2" in planned(weighed, tmp_path, "gpu_request=gpu")


def test_settings_that_no_cluster_has_are_refused(raw: Raw, tmp_path: Path) -> None:
    assert "gpu_request: 'gpus'; allowed: gpu, gres" in planned(raw, tmp_path, "gpu_request=gpus")
    assert "max_minutes: 'day'; allowed: whole minutes" in planned(raw, tmp_path, "max_minutes=day")


@pytest.mark.long
def test_settings_of_a_profile_are_kept_beside_those_of_the_command_line(raw: Raw, tmp_path: Path) -> None:
    """Snakemake alone would drop all of `config` in the profile; what both have is that of the command line."""
    raw["checkpoints"]["toy-base"] |= {"engine": "vllm", "device": "cuda"}
    profile = own_profile(tmp_path, gpu_request="gres:a100", max_minutes=45)
    told = planned(raw, tmp_path, "pool_size=1", options=profile)
    assert "gres=gpu:a100:1" in told and len(told.splitlines()) > 2
    assert {int(minutes) for minutes in re.findall(r"runtime=(\d+)", told)} <= {45, 60}
    assert "gres=gpu:h200:1" in planned(raw, tmp_path, "gpu_request=gres:h200", options=profile)
    wrong = own_profile(tmp_path, max_minutes="day")
    assert "max_minutes: 'day'; allowed" in planned(raw, tmp_path, "pool_size=1", options=wrong)


@pytest.mark.long
def test_values_of_the_command_line_are_read_as_in_a_file(raw: Raw, tmp_path: Path) -> None:
    """Snakemake alone makes texts of numbers inside of mappings; a wrong one is said to be of the command line."""
    raw["recovery"] = {"epsilon": 0.05}
    assert "runtime=" in planned(raw, tmp_path, "recovery={epsilon: 0.04}", "budgets=[1, 2]", "default_policy=null")
    said = planned(raw, tmp_path, "recovery={epsilon: much}")
    assert "--config: recovery.epsilon: must be a number" in said and "config.yaml: recovery" not in said
    assert "--config: budgets: [1, 2 is not YAML" in planned(raw, tmp_path, "budgets=[1, 2")
    profile = own_profile(tmp_path, recovery={"epsilon": "much"})
    assert "profile: recovery.epsilon: must be a number" in planned(raw, tmp_path, "pool_size=1", options=profile)


@pytest.mark.parametrize("option", ["--config", "--configfile"])
def test_an_option_of_which_snakemake_takes_the_last_alone_is_refused(raw: Raw, tmp_path: Path, option: str) -> None:
    value = "pool_size=1" if option == "--config" else "config/models.yaml"
    twice = [option, value, option if option == "--config" else "--configfiles", value]
    assert f"{option} is given" in planned(raw, tmp_path, "pool_size=1", options=twice)
