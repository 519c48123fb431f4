"""The micro pair sampled through a real Slurm of two nodes, and harmed in every way that a cluster knows.

    make test-slurm     as root; installs Debian's Slurm where there is none

Whatever happens, the samples are those of a local run, what was finished is not drawn again, and no shard is there that
is not whole. Not covered, because nothing enforces them in such a Slurm: memory limits and the isolation of GPUs; nor
accounting, two hosts, a network file system.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cluster import Cluster, until, why_not
from storm import run_storm, sampled
from study import Run, Study, configuration

ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED")
BASE = "micro-1m-base"


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
    study = Study(tmp_path_factory.mktemp("local") / "whole", configuration(questions=6, samples=4))
    assert study.start("--cores", "1").wait() == 0, study.log()
    return study


@pytest.fixture(scope="module")
def base(slurm: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Base alone, in chunks of 16 samples that a fault can come between, run here."""
    study = Study(tmp_path_factory.mktemp("local") / "base", configuration(questions=16, samples=10))
    assert study.start("--cores", "1", study.manifest(BASE)).wait() == 0, study.log()
    return study


def assert_same(study: Study, reference: Study) -> None:
    """Every shard, and every sample once; provenance aside, which stands beside the shards."""
    ours, theirs = study.shards(), reference.shards()
    assert ours.keys() == theirs.keys()
    for name, frame in ours.items():
        assert frame.equals(theirs[name]), name
        assert frame.select("question", "sample").is_unique().all()
    assert not list(study.path.glob("results/generations/*/*/*/chunks/*")), "chunks are left over"
    assert " 0 damaged" in study.call("searchlens", "verify")


def assert_sound(study: Study, reference: Study) -> None:
    """What is there in the middle of a run is whole, and right."""
    theirs = reference.shards()
    assert all(frame.equals(theirs[name]) for name, frame in study.shards().items())


# ---- without harm


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
    on_cluster = {"rule_generate", "rule_score", "rule_readings", "rule_boptr", "rule_explorer"}
    assert {one["Comment"].split("_wildcards")[0] for one in told} == on_cluster
    assert all("'gpu_request=gpu' " in slurm.script(one["JobId"]) for one in told), "jobs lack the profile's settings"
    for path in whole.path.glob("results/landscape/*/*/*.parquet"):
        assert path.read_bytes() == (study.path / path.relative_to(whole.path)).read_bytes()


def test_samples_are_those_of_a_local_run(slurm: Cluster, base: Study, tmp_path: Path) -> None:
    """On a cluster that wants GPUs asked for as generic resources."""
    study = Study(tmp_path / "study", base.config, slurm.environment)
    before = set(slurm.jobs())
    assert study.slurm(study.manifest(BASE), gpu="gres=gpu:1").wait() == 0, study.log()
    assert_same(study, base)
    (job,) = set(slurm.jobs()) - before
    assert slurm.show(job)["TresPerNode"] == "gres:gpu:1"


# ---- faults


@dataclass
class Harmed:
    """A run of Base through Slurm, in the middle of its job.

    Attributes
    ----------
    job : str
        Slurm's id of it.
    kept : int
        Samples that were finished before the harm.
    """

    slurm: Cluster
    study: Study
    run: Run
    job: str
    kept: int

    @property
    def node(self) -> str:
        return self.slurm.show(self.job)["NodeList"]

    def processes(self, program: str) -> list[int]:
        """Processes of the job whose command line holds a word."""
        return [pid for pid in self.slurm.processes(f"SLURM_JOB_ID={self.job}") if program in _command(pid)]

    def hold(self) -> None:
        """Stop it until Slurm tells it to end, which continues it, or it might be done before Slurm comes to that."""
        for pid in self.processes("bin/searchlens generate"):
            os.kill(pid, signal.SIGSTOP)

    def restart_now(self) -> None:
        """Slurm holds a requeued job back for two minutes; these tests do not wait for them."""
        until(lambda: self.slurm.jobs()[self.job] == "PENDING", "the job is back in the queue", 120)
        until(self._is_restarted, "the job runs again", 120)

    def _is_restarted(self) -> bool:
        self.slurm.command("scontrol", "update", f"JobId={self.job}", "StartTime=now", check=False)
        return self.slurm.jobs()[self.job] != "PENDING"


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""


@pytest.fixture
def harmed(slurm: Cluster, base: Study, tmp_path: Path) -> Iterator[Callable[..., Harmed]]:
    """Starts a run and returns once a fifth of its samples is finished; at the end, nothing of it is left running."""
    started: list[Run] = []

    def start(**resources: Any) -> Harmed:
        study = Study(tmp_path / "study", base.config, slurm.environment)
        before = set(slurm.jobs())
        started.append(study.slurm(study.manifest(BASE), **resources))
        total = sum(frame.height for frame in base.shards().values())
        until(lambda: study.kept() > total / 5, "a fifth of the samples is finished", 120)
        (job,) = set(slurm.jobs()) - before
        return Harmed(slurm, study, started[-1], job, study.kept())

    yield start
    for run in started:
        if run.process.poll() is None:
            run.kill()
    slurm.command("scancel", "--user=root")
    until(lambda: not set(slurm.jobs().values()) - set(ENDED), "all jobs have ended")


def assert_resumed(one: Harmed, base: Study) -> None:
    """The run succeeds, the samples are right, and the last job drew nothing that was finished before the harm."""
    assert one.run.wait() == 0, one.study.log()
    assert_same(one.study, base)
    total = sum(frame.height for frame in base.shards().values())
    assert one.study.drawn()[0] <= total - one.kept


def scancel(one: Harmed) -> None:
    """By hand."""
    one.slurm.command("scancel", one.job)


def time_limit(one: Harmed) -> None:
    """Met in a few seconds, noticed within half a minute; Slurm warns, and ends what is left after KillWait."""
    one.hold()
    one.slurm.command("scontrol", "update", f"JobId={one.job}", "EndTime=now+5")


def requeue(one: Harmed) -> None:
    """By an administrator; the same job starts again."""
    one.slurm.command("scontrol", "requeue", one.job)
    one.restart_now()


def killed_engine(one: Harmed) -> None:
    """As by the kernel when memory runs out, which no limit does here."""
    for pid in one.processes("bin/searchlens generate"):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("fault", [killed_engine, scancel, time_limit, requeue])
def test_a_job_that_is_ended_resumes(
    harmed: Callable[..., Harmed], base: Study, fault: Callable[[Harmed], None]
) -> None:
    one = harmed()
    fault(one)
    assert_sound(one.study, base)
    assert_resumed(one, base)


def test_a_preempted_job_resumes(harmed: Callable[..., Harmed], base: Study) -> None:
    """By a job of a partition of higher priority that takes both nodes whole."""
    one = harmed(slurm_partition="spare")
    one.hold()
    one.slurm.command("sbatch", "--partition=gpu", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 5")
    one.restart_now()
    assert_sound(one.study, base)
    assert_resumed(one, base)


def test_a_job_whose_node_dies_resumes_on_another(harmed: Callable[..., Harmed], base: Study) -> None:
    """Nobody says so: Slurm finds the node silent."""
    one = harmed()
    first = one.node
    try:
        one.slurm.fail_node(first)
        one.restart_now()
        assert_sound(one.study, base)
        assert_resumed(one, base)
        assert one.node != first
    finally:
        one.slurm.start_node(first)
        until(lambda: one.slurm.idle_nodes() == set(one.slurm.nodes), "the node is back")


def test_an_orphan_and_its_replacement_write_at_once(harmed: Callable[..., Harmed], base: Study) -> None:
    """A node is cut off with its job, which goes on unseen; Slurm starts the job elsewhere. They share the work."""
    one = harmed()
    first, orphans = one.node, one.processes("bin/searchlens generate") + one.processes("tee ")
    try:
        one.slurm.cut_off(first)
        one.restart_now()
        until(lambda: set(one.processes("bin/searchlens generate")) - set(orphans), "the replacement runs")
        for pid in orphans:
            os.kill(pid, signal.SIGCONT)
        assert_resumed(one, base)
        until(lambda: not set(orphans) & set(one.processes("bin/searchlens generate")), "the orphan ends, too")
        assert_same(one.study, base)
    finally:
        one.slurm.end_jobs(first)
        one.slurm.start_node(first)
        until(lambda: one.slurm.idle_nodes() == set(one.slurm.nodes), "the node is back")


def test_a_dead_controller_is_started_again_beside_its_jobs(harmed: Callable[..., Harmed], base: Study) -> None:
    """Its job goes on, a second run submits another one for the same samples, and both end well."""
    one = harmed()
    one.run.kill()
    assert one.slurm.jobs("RUNNING")
    one.study.call("snakemake", "--unlock")
    one.run = one.study.slurm(one.study.manifest(BASE))
    assert one.run.wait() == 0, one.study.log()
    until(lambda: not one.slurm.jobs("RUNNING", "PENDING", "COMPLETING"), "the orphan has ended", 120)
    assert_same(one.study, base)


# ---- many jobs

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
