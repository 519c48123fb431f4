"""The micro pair sampled through a real Slurm of two nodes, and harmed in every way that a cluster knows.

    make test-slurm     as root; installs Debian's Slurm where there is none

Whatever happens, the samples are those of a local run, what was finished is not drawn again, and no shard is there that
is not whole. Not covered, because nothing enforces them in such a Slurm: memory limits and the isolation of GPUs; nor
accounting, two hosts, a network file system.
"""

import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import Cluster, until, why_not
from faults import BASE, Sampling, attempt
from study import BIN, Study, micro_study, run_storm, sampled
from test_tutorials import commands, follow


@pytest.fixture(scope="module")
def slurm() -> Iterator[Cluster]:
    """Two nodes of four cores and one GPU each."""
    if not os.environ.get("SEARCHLENS_SLURM"):
        pytest.skip("starts a Slurm of its own and takes a while: `make test-slurm`")
    if reason := why_not():
        pytest.skip(reason)
    cluster = Cluster(nodes=2, cpus=4, gpus=1)
    try:
        yield cluster.start()
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def whole(slurm: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Study:
    """The whole study, run here."""
    study = Study(tmp_path_factory.mktemp("local") / "whole", micro_study(questions=6, samples=4))
    assert study.start("--cores", "1").wait() == 0, study.log()
    return study


@pytest.fixture(scope="module")
def base(slurm: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Base alone, in chunks of 16 samples that a fault can come between, run here."""
    study = Study(tmp_path_factory.mktemp("local") / "base", micro_study(questions=16, samples=10))
    assert study.start("--cores", "1", study.manifest(BASE)).wait() == 0, study.log()
    return study


def assert_same(study: Study, reference: Study) -> None:
    """Every shard, and every sample once; provenance aside, which stands beside the shards."""
    ours, theirs = study.shards(), reference.shards()
    assert ours.keys() == theirs.keys()
    for name, frame in ours.items():
        assert frame.equals(theirs[name]), name
        assert frame.select("question", "sample").is_unique().all()
    # A killed process may leave a file that it was writing, which `prune` finds.
    assert not list(study.path.glob("results/generations/*/*/*/chunks/[!.]*")), "chunks are left over"
    assert " 0 damaged" in study.call("searchlens", "verify")


def test_the_study_is_that_of_a_local_run(slurm: Cluster, whole: Study, tmp_path: Path) -> None:
    """Sampling on both nodes; also on the cluster what may take long. The stages of seconds run beside Snakemake."""
    study = Study(tmp_path / "study", whole.config, slurm.environment)
    before = set(slurm.jobs())
    assert study.slurm("all").wait() == 0, study.log()
    assert_same(study, whole)
    told = [slurm.show(job) for job in set(slurm.jobs()) - before]
    sampling = [one for one in told if one["Comment"].startswith("rule_generate")]
    assert [one["TresPerJob"] for one in sampling] == ["gres:gpu:1"] * 2
    assert {one["NodeList"] for one in sampling} == set(slurm.nodes)
    on_cluster = {"rule_generate", "rule_score", "rule_measures", "rule_boptr", "rule_explorer"}
    assert {one["Comment"].split("_wildcards")[0] for one in told} == on_cluster
    assert all("'gpu_request=gpu' " in slurm.script(one["JobId"]) for one in told), "jobs lack the profile's settings"
    for path in whole.path.glob("results/landscape/*/*/*.parquet"):
        assert path.read_bytes() == (study.path / path.relative_to(whole.path)).read_bytes()


def test_the_tutorial(slurm: Cluster, tmp_path: Path) -> None:
    """docs/start-slurm.md from its first to its last command, on four questions; Slurm is asked every two seconds."""
    quick = r"""sed -i 's/aime: {/aime: {questions: 4, /' config/own.yaml
sed -i 's/\(checks:\) 40/\1 2/; $ a seconds-between-status-checks: 2' profiles/slurm/config.yaml
"""
    begin, snakemake, rest = commands("docs/start-slurm.md").partition("snakemake ")
    variables = {**slurm.environment, "PATH": f"{BIN}:{slurm.environment['PATH']}"}
    printed = follow("", tmp_path, begin + quick + snakemake + rest, **variables)
    assert "micro-1m/aime: N=1:" in printed
    assert (tmp_path / "trial/results/report.html").exists()


def test_samples_are_those_of_a_local_run(slurm: Cluster, base: Study, tmp_path: Path) -> None:
    """On a cluster that wants GPUs asked for as generic resources."""
    study = Study(tmp_path / "study", base.config, slurm.environment)
    before = set(slurm.jobs())
    assert study.slurm(study.manifest(BASE), gpu="gres=gpu:1").wait() == 0, study.log()
    assert_same(study, base)
    (job,) = set(slurm.jobs()) - before
    assert slurm.show(job)["TresPerNode"] == "gres:gpu:1"


@pytest.fixture
def sampling(slurm: Cluster, base: Study, tmp_path: Path) -> Iterator[Sampling]:
    """A run of Base; at the end, nothing of it is left running."""
    yield Sampling(slurm, Study(tmp_path / "study", base.config, slurm.environment), random.Random(1))
    slurm.command("scancel", "--user=root")
    until(lambda: slurm.idle_nodes() == set(slurm.nodes), "all nodes are idle")


def a_fifth_is_finished(one: Sampling, base: Study) -> int:
    """Wait for it; samples of all."""
    total = sum(frame.height for frame in base.shards().values())
    until(lambda: one.study.kept() > total / 5, "a fifth of the samples is finished")
    return total


@pytest.mark.parametrize(
    "kind", ["killed", "cancelled", "time_limit", "requeued", "preempted", "node_failed", "two_heads"]
)
def test_a_fault_loses_and_doubles_nothing(slurm: Cluster, base: Study, tmp_path: Path, kind: str) -> None:
    """The samples are those of a local run, and nothing that was finished is drawn again."""
    line = attempt(slurm, base, tmp_path / "study", kind, random.Random(kind))
    slurm.command("scancel", "--user=root")
    until(lambda: slurm.idle_nodes() == set(slurm.nodes), "all nodes are idle")
    assert (line["lost"], line["double"], line["error"]) == (0, 0, "")


def test_a_run_submits_a_job_again_that_was_killed(sampling: Sampling, base: Study) -> None:
    """As by the kernel when memory runs out, which no limit does here."""
    sampling.start_head()
    assert sampling.head
    total, kept = a_fifth_is_finished(sampling, base), sampling.study.kept()
    for pid in sampling.processes():
        os.kill(pid, signal.SIGKILL)
    assert sampling.head.wait() == 0, sampling.study.log()
    assert_same(sampling.study, base)
    assert sampling.study.drawn()[0] <= total - kept


def test_an_orphan_and_its_replacement_write_at_once(slurm: Cluster, sampling: Sampling, base: Study) -> None:
    """A node is cut off with its job, which goes on unseen; Slurm starts the job elsewhere. They share the work."""
    sampling.submit()
    a_fifth_is_finished(sampling, base)
    first, orphans = sampling.node(), sampling.processes()
    stopped = slurm.processes(f"SLURM_JOB_ID={sampling.job}")
    try:
        slurm.cut_off(first)
        until(lambda: sampling.hurry() and set(sampling.processes()) - set(orphans), "the replacement runs")
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        sampling.recover()
        until(lambda: not set(orphans) & set(sampling.processes()), "the orphan ends, too")
        assert_same(sampling.study, base)
    finally:
        slurm.end_jobs(first)
        slurm.start_node(first)


JOBS = 200


def test_a_storm_of_two_hundred_jobs(slurm: Cluster, tmp_path: Path) -> None:
    """None is lost, none runs twice, and the controller stays below 500 MB.

    Nor does packing that changed sample anything anew: what these jobs find was made by two.
    """
    study = sampled(tmp_path / "study", slurm.environment, JOBS)
    before, shards = set(slurm.jobs()), study.shards()
    storm = run_storm(study)
    assert storm.status == 0, study.log()
    assert [state for job, state in slurm.jobs().items() if job not in before] == ["COMPLETED"] * JOBS
    manifests = [json.loads(path.read_text()) for path in study.path.glob("results/manifests/*/*/*.json")]
    alone = [one["generations"][0]["id"] for one in manifests if len(one["generations"]) == 1]
    assert len(alone) == len(set(alone)) == JOBS
    assert study.shards().keys() == shards.keys()
    assert storm.peak_mb <= 500
