"""The whole workflow on the committed micro pair, really sampled: what reruns, what does not, and that nothing is lost.

One small study (two policies and greedy, eight questions, four samples) is built once and then edited, harmed and
repaired by the tests in the order in which they stand.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from conftest import DEFAULT, ZOO, micro_study, write_config

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent


def study() -> dict[str, Any]:
    content = micro_study()
    content["benchmarks"]["math"]["regime"] = "none"
    return content


@dataclass
class Folder:
    """A working directory with its configuration, and the two commands that a user has."""

    path: Path
    config: dict[str, Any]
    first_run: str = ""

    def save(self) -> None:
        write_config(self.path, self.config)

    @property
    def first_time(self) -> int:
        """When the first of the results was written."""
        return min(path.stat().st_mtime_ns for path in (self.path / "results/manifests").rglob("*.json"))

    def run(self, *command: str, check: bool = True, sources: Path | None = None) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
        if sources:
            environment["PYTHONPATH"] = str(sources)
        done = subprocess.run(command, cwd=self.path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0 or not check, done.stdout + done.stderr
        return done

    def snakemake(
        self, *arguments: str, check: bool = True, sources: Path | None = None, root: Path = ROOT
    ) -> subprocess.CompletedProcess[str]:
        command = ["snakemake", "--snakefile", str(root / "Snakefile"), "--cores", "2"]
        command += ["--workflow-profile", str(ROOT / "profiles/default")]
        return self.run(*command, *arguments, check=check, sources=sources)

    def searchlens(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.run("searchlens", *arguments, check=check)

    def planned(self, sources: Path | None = None, root: Path = ROOT) -> dict[str, int]:
        """Jobs per rule of a dry run, by other sources or another workflow if they are given."""
        done = self.snakemake("-n", sources=sources, root=root)
        rows = [line.split() for line in (done.stdout + done.stderr).splitlines()]
        counts = {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit() and row[0].isidentifier()}
        return {rule: count for rule, count in counts.items() if rule != "total"}

    def shards(self) -> dict[str, tuple[bytes, int]]:
        """Content and time of every shard in the store."""
        found = sorted((self.path / "results/generations").glob("*/*/*/*.parquet"))
        return {str(path.relative_to(self.path)): (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    made = Folder(tmp_path_factory.mktemp("study"), study())
    made.save()
    done = made.snakemake()
    made.first_run = done.stdout + done.stderr
    yield made


def test_the_first_run_makes_everything_and_the_second_nothing(folder: Folder) -> None:
    assert len(folder.shards()) == 2 * 3
    assert list((folder.path / "results/figures/micro-1m/math").glob("*.svg"))
    assert (folder.path / "results/tables/udf_cost.csv").exists()
    assert folder.planned() == {}


def test_what_workers_sampled_is_what_the_workflow_samples_and_it_goes_on_from_there(
    folder: Folder, tmp_path: Path
) -> None:
    made = Folder(tmp_path, folder.config)
    made.save()
    workers = [subprocess.Popen([str(BIN / "searchlens"), "work", str(tmp_path)]) for _ in range(2)]
    assert [worker.wait() for worker in workers] == [0, 0]
    content = {path: content for path, (content, _) in folder.shards().items()}
    assert {path: content for path, (content, _) in made.shards().items()} == content
    planned = made.planned()
    assert "generate" not in planned and planned["score"] == 2


def test_a_landscape_that_comes_out_as_it_was_runs_nothing_again(folder: Folder) -> None:
    """Its files are new, and its signature has another time."""
    signatures = list((folder.path / "results/landscape").glob("*/*/provenance.json"))
    before = [path.read_bytes() for path in signatures]
    folder.snakemake("--until", "landscape", "--forcerun", "landscape")
    assert all(path.read_bytes() != content for path, content in zip(signatures, before, strict=True))
    assert folder.planned() == {}


@pytest.mark.parametrize(
    ("output", "rule"),
    [
        ("figures/micro-1m/math/gap_map_P.png", "figures"),
        ("tables/udf_cost.md", "tables"),
        ("agreement/micro-1m-rl/math.parquet", "agreement"),
        ("report.html", "report_page"),
    ],
)
def test_any_output_that_is_deleted_is_made_again(folder: Folder, output: str, rule: str) -> None:
    path = folder.path / "results" / output
    content = path.read_bytes()
    path.unlink()
    assert folder.planned()[rule] == 1
    path.write_bytes(content)
    os.utime(path, ns=(folder.first_time, folder.first_time))


@pytest.mark.parametrize(
    ("edited", "rules"),
    [
        (
            "grading/math.py",
            {
                *("score", "agreement", "landscape", "recovery", "measures", "figures", "overview", "tables"),
                *("explorer", "report_page"),
            },
        ),
        ("engines/transformers.py", set()),
    ],
)
def test_editing_a_file_runs_the_stages_that_depend_on_it(
    folder: Folder, tmp_path: Path, edited: str, rules: set[str]
) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "src/searchlens" / edited).open("a") as stream:
        stream.write("EDITED = 1\n")
    assert set(folder.planned(sources=tmp_path / "src")) - {"all"} == rules


def test_a_caption_makes_pages_again_and_nothing_else(folder: Folder, tmp_path: Path) -> None:
    shutil.copy(ROOT / "Snakefile", tmp_path)
    shutil.copytree(ROOT / "workflow", tmp_path / "workflow")
    assert folder.planned(root=tmp_path) == {}
    with (tmp_path / "workflow/report/tables/intervals.rst").open("a") as stream:
        stream.write("\nMore.\n")
    assert set(folder.planned(root=tmp_path)) - {"all"} == {"explorer", "report_page"}


DEPLOYED = """
configfile: "config/config.yaml"
module searchlens:
    snakefile: "{}/workflow/Snakefile"
    config: config
use rule * from searchlens
"""
"""What `snakedeploy deploy-workflow` writes."""


def test_a_deployed_copy_is_the_same_workflow(folder: Folder, tmp_path: Path) -> None:
    """All files of config/ count, although it names the first alone, and a run begins as everywhere."""
    (tmp_path / "Snakefile").write_text(DEPLOYED.format(ROOT))
    rest = study()
    (folder.path / "config/policies.yaml").write_text(yaml.safe_dump({"policies": rest.pop("policies")}))
    (folder.path / "config/config.yaml").write_text(yaml.safe_dump(rest))
    assert folder.planned(root=tmp_path) == {}
    snapshots = folder.path / "results/config"
    shutil.rmtree(snapshots)
    done = folder.snakemake(
        "results/landscape/micro-1m-rl/math/points.parquet", "--forcerun", "landscape", root=tmp_path
    )
    assert len(list(snapshots.iterdir())) == 1 and "BOPTR is left out" in done.stdout + done.stderr
    folder.save()
    assert folder.planned() == {}
    (tmp_path / "sources/searchlens").mkdir(parents=True)
    (tmp_path / "sources/searchlens/__init__.py").write_text("raise ModuleNotFoundError('No module named searchlens')")
    said = folder.snakemake("-n", check=False, sources=tmp_path / "sources", root=tmp_path)
    assert "in a clone of its repository: pip install '.[run]'" in said.stdout + said.stderr


def test_a_study_without_boptr_says_why(folder: Folder) -> None:
    why = "BOPTR is left out: it needs an anchor, but the study has no benchmark of role fitted with a regime"
    assert why in folder.first_run
    assert why in folder.searchlens("check").stdout
    assert why in folder.searchlens("plan").stdout
    assert not (folder.path / "results/boptr").exists()
    done = folder.searchlens("boptr", "results/landscape", "--output", "results", check=False)
    assert done.returncode == 2
    assert why in done.stderr


def test_what_an_earlier_run_made_and_the_study_leaves_out_is_set_aside(folder: Folder) -> None:
    """It would be shown as if it were current. Files of others stay where they are."""
    results, stale = folder.path / "results", {}
    names = ("boptr/errors.parquet", "figures/boptr/horizontal.svg", "tables/horizontal.csv", "tables/udf_local.html")
    mine = results / "tables/mine.csv"
    for path in (*(results / name for name in names), mine):
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"earlier,{path.stem}")
        stale[path.relative_to(results)] = path.read_text()
    (results / "report.html").unlink()
    done = folder.snakemake()
    assert "leaves out, are now in results/aside: 4 paths" in done.stdout + done.stderr
    assert mine.exists() and not any((results / name).exists() for name in names)
    (aside,) = (results / "aside").iterdir()
    assert {path.relative_to(aside): path.read_text() for path in aside.rglob("*.*")} == {
        path: text for path, text in stale.items() if path.stem != "mine"
    }
    mine.unlink()
    shutil.rmtree(results / "aside")
    assert folder.planned() == {}


def test_a_regime_brings_boptr_and_a_batch_is_sampled_for_it(folder: Folder) -> None:
    folder.config["benchmarks"]["math"]["regime"] = "math"
    folder.save()
    assert folder.planned() == {"all": 1, "boptr": 1, "transfer": 1, "explorer": 1, "report_page": 1}
    folder.config["checkpoints"]["micro-1m-base-7"] = {"path": str(ZOO / "micro-1m-base"), "seed": 7}
    folder.config["pairs"]["micro-1m"]["batches"] = {"7": {"base": "micro-1m-base-7"}}
    folder.save()
    planned = folder.planned()
    assert [planned.get(name) for name in ("generate", "score", "landscape", "boptr")] == [1] * 4
    assert "recovery" not in planned
    folder.config = study()
    folder.save()


def test_texts_are_scored_under_both_sides_if_a_policy_draws_from_the_model_itself(folder: Folder) -> None:
    folder.config["study"]["likelihood"] = {"questions": 4, "samples": 2}
    folder.save()
    assert "likelihood" not in folder.planned(), "temperature 0.6"
    folder.config["policies"]["mine"]["local"]["temperature"] = 1.0
    folder.save()
    planned = folder.planned()
    assert (planned["likelihood"], planned["tables"]) == (1, 1)
    folder.config = study()
    folder.save()


def test_editing_one_policy_samples_that_policy_only(folder: Folder) -> None:
    before = folder.shards()
    folder.config["policies"]["mine"]["local"]["temperature"] = 0.65
    folder.save()
    assert folder.planned()["generate"] == 2
    folder.snakemake("samples")
    after = folder.shards()
    assert {path: after[path] for path in before} == before
    assert len(after) == len(before) + 2


def test_reverting_it_samples_nothing(folder: Folder) -> None:
    before = folder.shards()
    folder.config["policies"]["mine"]["local"]["temperature"] = 0.6
    folder.save()
    assert "generate" not in folder.planned()
    folder.snakemake("samples")
    assert folder.shards() == before


def test_editing_anything_downstream_samples_nothing(folder: Folder) -> None:
    folder.config["recovery"] = {"epsilon": 0.05}
    folder.save()
    planned = folder.planned()
    assert "generate" not in planned
    assert planned["recovery"] == 1


def test_one_cell_by_its_path(folder: Folder) -> None:
    target = "results/landscape/micro-1m-base/math/points.parquet"
    (folder.path / target).unlink()
    (folder.path / target).with_name("hits.parquet").unlink()
    done = folder.snakemake(target)
    assert (folder.path / target).exists(), done.stderr


@pytest.mark.long
def test_lost_and_damaged_shards_are_reported_and_they_alone_are_made_again(folder: Folder) -> None:
    folder.snakemake()
    planned = folder.searchlens("plan", "--policies").stdout
    referenced = [line.split()[2] for line in planned.splitlines() if "micro-1m-" in line]
    before = {path: content for path, content in folder.shards().items() if any(key in path for key in referenced)}
    lost, flipped = (next(path for path in before if name in path) for name in ("micro-1m-base", "micro-1m-rl"))
    (folder.path / lost).unlink()
    content = bytearray(before[flipped][0])
    content[len(content) // 2] ^= 1
    (folder.path / flipped).write_bytes(content)

    planned = folder.searchlens("plan", "--policies").stdout
    assert sum(line.split()[3] == "damaged" for line in planned.splitlines() if "micro-1m-" in line) == 2
    verified = folder.searchlens("verify", check=False)
    assert verified.returncode == 2
    assert lost in verified.stdout
    assert flipped in verified.stdout

    assert folder.planned()["generate"] == 2
    folder.snakemake()
    after = folder.shards()
    assert {path: after[path][0] for path in before} == {path: before[path][0] for path in before}, (
        "sampling again gives the same bytes"
    )
    assert [path for path in before if after[path][1] != before[path][1]] == sorted([lost, flipped])
    assert folder.searchlens("verify").returncode == 0
    assert folder.planned() == {}


def test_rerun_samples_one_policy_again(folder: Folder) -> None:
    before = folder.shards()
    folder.searchlens("rerun", "--checkpoint", "micro-1m-base", "--benchmark", "math", "--policy", "mine")
    folder.snakemake("samples")
    after = folder.shards()
    assert {path: content for path, (content, _) in after.items()} == {path: one for path, (one, _) in before.items()}
    assert sum(after[path][1] != before[path][1] for path in before) == 1


def test_more_samples_extend_the_streams(folder: Folder) -> None:
    before = folder.shards()
    folder.config["samples"] = 8
    folder.save()
    folder.snakemake("samples")
    after = folder.shards()
    assert {path: after[path] for path in before} == before
    assert any(path.endswith("s00004-00008.parquet") for path in after)
    folder.config["samples"] = 4
    folder.save()


def test_a_job_asks_for_the_gpus_and_cores_of_its_engines(folder: Folder) -> None:
    """Two GPUs that share the weights, none if nothing is missing; two cores for each engine on a GPU, and two more."""
    asked = []
    for options in ({"tensor_parallel": 2}, {"processes": 1}, {"processes": 2}):
        folder.config = study()
        folder.config["checkpoints"]["micro-1m-base"] |= {"engine": "vllm", "device": "cuda", "vllm": options}
        folder.config["checkpoints"]["micro-1m-rl"]["device"] = "cuda"
        folder.save()
        done = folder.snakemake("-n", "samples", "--forceall", "--quiet", "progress", "--cores", "16")
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines()]
        gpus = [re.search(r"gpu=\d", line) for line in lines if "resources:" in line]
        asked.append((sorted(one[0] for one in gpus if one), [line for line in lines if "threads:" in line]))
    folder.config = study()
    folder.save()
    assert asked[0][0] == ["gpu=0", "gpu=2"]
    assert [threads for _, threads in asked[1:]] == [["threads: 4"], ["threads: 6"]]


def test_a_wrong_key_stops_planning_before_anything_starts(folder: Folder) -> None:
    folder.config["sample"] = 16
    folder.save()
    done = folder.snakemake("-n", check=False)
    assert done.returncode == 1
    assert "'sample' is unknown; did you mean 'samples'?" in done.stderr + done.stdout
    del folder.config["sample"]
    (folder.path / "overlay.yaml").write_text("samples: -3\n")
    done = folder.snakemake("-n", "--configfile", "overlay.yaml", check=False)
    assert "overlay.yaml: samples: must be an integer, >= 1" in done.stderr + done.stdout
    done = folder.snakemake("-n", "--config", "samples=1.5", check=False)
    assert "  --config: samples: must be an integer, >= 1" in done.stderr + done.stdout
    folder.save()


def test_changed_weights_are_refused_before_sampling(folder: Folder, tmp_path: Path) -> None:
    folder.config["checkpoints"]["micro-1m-base"]["sha256"] = "0" * 64
    folder.save()
    done = folder.searchlens("generate", "--checkpoint", "micro-1m-base", "--benchmark", "math", check=False)
    assert done.returncode == 2
    assert "has fingerprint" in done.stderr
    del folder.config["checkpoints"]["micro-1m-base"]["sha256"]
    folder.save()


@pytest.mark.long
def test_imported_samples_are_read_like_our_own(folder: Folder) -> None:
    """Both roles of an imported pair, graded, compared and drawn."""
    questions = [json.loads(line) for line in (ZOO / "benchmarks/math.jsonl").read_text().splitlines()[:8]]
    for role, right in (("base", 1), ("rl", 3)):
        rows = [
            {
                "question": q["id"],
                "sample": s,
                "text": f"So \\boxed{{{q['gold'] if s < right else 'x'}}}",
                "tokens": 5 + s,
            }
            for q in questions
            for s in range(4)
        ]
        path = folder.path / f"{role}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        folder.searchlens(
            "import", path.name, "--pair", "theirs", "--role", role, "--benchmark", "math", "--policy", DEFAULT
        )
    before = folder.shards()
    folder.snakemake("results/figures/theirs/math/same_policy_lines_P.svg")
    assert folder.shards() == before, "importing samples nothing"
    points = pl.read_parquet(folder.path / "results/landscape/theirs-rl/math/points.parquet")
    found = points.filter((pl.col("metric") == "P") & (pl.col("estimator") == "unbiased") & (pl.col("budget") == 1))
    assert found["value"].to_list() == [0.75]
    assert list((folder.path / "results/figures/theirs/math").glob("*.svg"))


FRAGILE = """
from pathlib import Path

from searchlens.catalogue import table
from searchlens.reporting.tables.samples import health


@table("fragile", stage="study")
def fragile(context):
    if Path("broken").exists():
        raise ZeroDivisionError("it divides")
    return health(context)
"""


@pytest.mark.long
def test_a_table_that_fails_costs_no_page_and_is_tried_again_until_it_is_made(folder: Folder) -> None:
    folder.config = {**study(), "extensions": ["fragile.py"]}
    folder.config["benchmarks"]["math"] |= {"regime": "math", "samples": 2}
    folder.save()
    (folder.path / "fragile.py").write_text(FRAGILE)
    (folder.path / "broken").touch()
    said = "table fragile: ZeroDivisionError: it divides; log: logs/tables.log"
    for _ in range(2):
        done = folder.snakemake(check=False)
        assert done.returncode == 1 and said in done.stdout + done.stderr
        assert said in (folder.path / "results/report.html").read_text()
        assert said in folder.searchlens("status").stdout
        assert (folder.path / "results/explorer.html").exists()
        assert folder.planned() == {"all": 1, "tables": 1, "explorer": 1, "report_page": 1}
    (folder.path / "broken").unlink()
    folder.snakemake()
    assert said not in (folder.path / "results/report.html").read_text()
    assert folder.planned() == {}
    assert "BOPTR is left out: math has 2 samples, the largest budget is 4" in folder.searchlens("check").stdout
