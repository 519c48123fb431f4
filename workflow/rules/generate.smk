"""Sampling: one job is one pool of policies of one (checkpoint, benchmark), one engine start.

What a job asks for follows from the checkpoint and from what the store does not have of the pool: GPUs from device and
vllm.tensor_parallel, none if nothing is missing; memory from the weights; time from the planned tokens.

Slurm warns a job before it kills it by SIGTERM, which would end shell and tee, and with them the sampling that is
finishing its chunks. So does SIGHUP, when a terminal is closed. So the shell ignores the signals, and searchlens handles
them; a SIGHUP that `nohup` has everything ignore stays ignored.

REQUIRED INPUTS: none; the manifest's name holds everything that decides the samples.
OUTPUTS: results/manifests/<checkpoint>/<benchmark>/pool-<hash>[.rN].json; shards in the store.
"""


rule generate:
    """Sample what is missing of one pool."""
    output:
        OUT.manifest("{checkpoint}", "{benchmark}", "{pool}"),
    log:
        layout.log("generate", "{checkpoint}", "{benchmark}", "{pool}"),
    benchmark:
        OUT.timing("generate", "{checkpoint}", "{benchmark}", "{pool}")
    priority: lambda wildcards: cost.priority(GRID, get_pool(wildcards))
    conda:
        "../envs/generate.yaml"
    threads: lambda wildcards: get_sampling_threads(wildcards)
    resources:
        gpu=lambda wildcards: get_gpu(get_sampling_gpus(wildcards)),
        gres=lambda wildcards: get_gres(get_sampling_gpus(wildcards)),
        # Without it Slurm may take the GPUs of one engine from several nodes.
        nodes=1,
        mem_mb=larger(lambda wildcards: cost.memory_mb(GRID, wildcards.checkpoint)),
        runtime=longer(lambda wildcards: cost.minutes(GRID, get_pool(wildcards))),
    shell:
        """
        trap '' TERM USR1 HUP
        (
            trap - HUP
            exec searchlens generate \
                --checkpoint {wildcards.checkpoint:q} \
                --benchmark {wildcards.benchmark:q} \
                --manifest {output:q} \
                --threads {threads}
        ) 2>&1 | tee {log:q}
        """
