"""A real Slurm on this machine for the tests: controller, nodes with simulated GPUs, and munge, all in one folder.

Everything runs on loopback, in the foreground, with a configuration of its own (``SLURM_CONF``): a Slurm that is
installed and configured here is neither read nor touched, and stopping ends exactly what was started.

Not covered, because no cgroups are used: memory limits (OUT_OF_MEMORY never happens), the isolation of cores and GPUs,
and accounting (``sacct``).
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch")
PACKAGES = ("slurm-wlm", "slurm-wlm-basic-plugins", "munge")

CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerParameters=bf_interval=2,sched_interval=5,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
MinJobAge=3600
KillWait=5
SlurmdTimeout=10
GresTypes=gpu
{nodes}
PartitionName=gpu Nodes=ALL Default=YES MaxTime=1-0 PriorityTier=10 PreemptMode=off
PartitionName=spare Nodes=ALL MaxTime=1-0 PriorityTier=1
"""


def why_not() -> str:
    """Why no Slurm can be started here; empty where it can."""
    if os.geteuid():
        return "starting a Slurm needs root"
    if all(map(shutil.which, PROGRAMS)):
        return ""
    if not shutil.which("apt-get"):
        return "Slurm is not installed, and there is no apt-get to install it with"
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-qq", "--no-install-recommends", *PACKAGES]):
        done = subprocess.run(["apt-get", *command], env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"Slurm is not installed, and apt-get {command[0]} failed: {done.stderr.strip()[-200:]}"
    return ""


def until(true: Callable[[], object], what: str, seconds: float = 240) -> None:
    """Wait until something holds; AssertionError when it never does."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not after {seconds:g} s: {what}"
        time.sleep(0.5)  # each look starts a client of Slurm


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class Cluster:
    """A running Slurm; ``environment`` is what its clients need.

    Parameters
    ----------
    nodes, cpus, gpus : int
        Nodes, and what each of them pretends to have.
    """

    def __init__(self, nodes: int = 2, cpus: int = 4, gpus: int = 2) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # short: sockets have at most 107 characters
        self.conf = self.folder / "slurm.conf"
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        self.environment = {**os.environ, "SLURM_CONF": str(self.conf), "PATH": path}
        self.nodes = [f"node{i + 1}" for i in range(nodes)]
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._configure(cpus, gpus)

    def _configure(self, cpus: int, gpus: int) -> None:
        host, (ctld, *ports) = socket.gethostname().split(".")[0], _free_ports(1 + len(self.nodes))
        lines, gres = [], []
        for i, (node, port) in enumerate(zip(self.nodes, ports, strict=True)):
            lines.append(
                f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory=64000"
                f" Gres=gpu:{gpus} State=UNKNOWN"
            )
            files = [self.folder / f"gpu{i * gpus + k}" for k in range(gpus)]
            for path in files:
                path.touch()
            gres += [f"NodeName={node} Name=gpu File={path}" for path in files]
        self.conf.write_text(CONF.format(host=host, ctld=ctld, folder=self.folder, nodes="\n".join(lines)))
        (self.folder / "gres.conf").write_text("\n".join(gres) + "\n")
        (self.folder / "state").mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        self.folder.chmod(0o755)
        # Snakemake's job step takes SLURM_CONF from its environment, as every variable of Slurm's; srun needs it.
        srun = self.folder / "bin/srun"
        srun.parent.mkdir()
        srun.write_text(f'#!/bin/sh\nSLURM_CONF={self.conf} exec {shutil.which("srun")} "$@"\n')
        srun.chmod(0o755)

    def start(self) -> "Cluster":
        """Start every daemon and wait until the nodes are usable."""
        files = [f"--{name}-file={self.folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
        self._spawn("munged", "munged", "--foreground", f"--socket={self.folder}/munge.socket", *files)
        until((self.folder / "munge.socket").exists, "munge answers")
        self.start_controller()
        for node in self.nodes:
            self.start_node(node)
        until(lambda: self.idle_nodes() == set(self.nodes), "all nodes are idle")
        return self

    def _spawn(self, name: str, *command: str, **variables: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                env={**self.environment, **variables},
                stdout=log,
                stderr=log,
            )

    def start_controller(self) -> None:
        """Start the controller; it knows the jobs of an earlier one."""
        self._spawn("slurmctld", "slurmctld", "-D")

    def start_node(self, node: str) -> None:
        """Start the daemon of one node."""
        self._spawn(node, "slurmd", "-D", "-N", node, SLURMD_NODENAME=node)  # as its jobs have it

    def stop(self) -> None:
        """End every job and every daemon, and remove the folder."""
        self.command("scancel", "--user=root", check=False)
        for name in reversed(list(self._daemons)):
            self.kill(name)
        for pid in self.processes():
            _end(pid)
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self, name: str) -> None:
        """SIGKILL one daemon; jobs that it started go on."""
        daemon = self._daemons.pop(name)
        daemon.kill()
        daemon.wait()

    def fail_node(self, node: str) -> None:
        """What a node's power failure does: daemon and jobs end at once, and nobody is told."""
        self.kill(node)
        self.end_jobs(node)

    def cut_off(self, node: str) -> None:
        """What a broken network does: the daemon is silent, the jobs are there; stopped, so that they can be woken."""
        self.kill(node)
        for pid in self.processes(f"SLURMD_NODENAME={node}"):
            os.kill(pid, signal.SIGSTOP)

    def end_jobs(self, node: str) -> None:
        """SIGKILL everything that a node runs."""
        for pid in self.processes(f"SLURMD_NODENAME={node}"):
            _end(pid)

    def processes(self, *variables: str) -> list[int]:
        """Processes of this Slurm: clients, daemons and jobs, or those of them that have these variables."""
        wanted = {f"SLURM_CONF={self.conf}", *variables}
        return [pid for pid, found in _environments() if wanted <= found]

    def command(self, *words: str, check: bool = True) -> str:
        """Output of one client of Slurm."""
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0 or not check, f"{words}: {done.stderr}"
        return done.stdout

    def idle_nodes(self) -> set[str]:
        """Names of nodes without jobs."""
        return set(self.command("sinfo", "-h", "-N", "-t", "idle", "-o", "%N", check=False).split())

    def jobs(self, *states: str) -> dict[str, str]:
        """Id to state of the jobs that Slurm remembers, or of those in some states."""
        lines = self.command("squeue", "-h", "--states=all", "-o", "%i %T", check=False).splitlines()
        found = dict(line.split() for line in lines)
        return {job: state for job, state in found.items() if not states or state in states}

    def script(self, job: str) -> str:
        """What a job runs."""
        return self.command("scontrol", "write", "batch_script", job, "-")

    def show(self, job: str) -> dict[str, str]:
        """What the controller knows of a job."""
        words = self.command("scontrol", "show", "job", job, "--oneliner").split()
        return dict(word.split("=", 1) for word in words if "=" in word)


def _end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _environments() -> list[tuple[int, set[str]]]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            found.append((int(folder.name), set((folder / "environ").read_text(errors="replace").split("\0"))))
        except OSError:
            continue
    return found
