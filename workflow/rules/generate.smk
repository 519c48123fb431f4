"""Sampling: one job is one pool of policies of one (checkpoint, benchmark), one engine start.

What a job asks for follows from the checkpoint and from what the store does not have of the pool: GPUs from device and
vllm.tensor_parallel, none if nothing is missing; memory from the weights; time from the planned tokens.

Slurm warns a job that is about to end with SIGTERM, which ends shell and tee at once and would take the sampling that
finishes its chunk along; the shell ignores it, searchlens does not.

REQUIRED INPUTS: none; the manifest's name holds everything that decides the samples.
OUTPUTS: results/manifests/<checkpoint>/<benchmark>/pool-<hash>[.rN].json; shards in the store.
"""


def get_pool(wildcards):
    """The pool that a manifest's name stands for."""
    return GRID.find_pool(wildcards.checkpoint, wildcards.benchmark, f"{wildcards.pool}.json")


def get_sampling_gpus(wildcards):
    """The checkpoint's GPUs if anything of the pool is missing in the store; none otherwise."""
    return GRID.gpus(wildcards.checkpoint) if any(True for _ in GRID.lacking(get_pool(wildcards))) else 0


rule generate:
    """Sample what is missing of one pool."""
    output:
        OUT.manifest("{checkpoint}", "{benchmark}", "{pool}"),
    log:
        layout.log("generate", "{checkpoint}", "{benchmark}", "{pool}"),
    benchmark:
        OUT.timing("generate", "{checkpoint}", "{benchmark}", "{pool}")
    # The longest jobs first, so that they run side by side and not one after the other.
    priority: 10
    conda:
        "../envs/generate.yaml"
    # One core, or four for each GPU, whose engine schedules, copies and compiles next to the samples' own work.
    threads: lambda wildcards: 4 * get_sampling_gpus(wildcards) or 1
    resources:
        gpu=lambda wildcards: get_gpu(get_sampling_gpus(wildcards)),
        gres=lambda wildcards: get_gres(get_sampling_gpus(wildcards)),
        # Slurm may otherwise take the GPUs of one engine from several nodes.
        nodes=1,
        mem_mb=larger(lambda wildcards: resources.memory_mb(GRID, wildcards.checkpoint)),
        runtime=longer(lambda wildcards: resources.minutes(GRID, get_pool(wildcards))),
    shell:
        """
        trap '' TERM USR1
        searchlens generate \
            --checkpoint {wildcards.checkpoint:q} \
            --benchmark {wildcards.benchmark:q} \
            --manifest {output:q} \
            --threads {threads} \
            2>&1 | tee {log:q}
        """
