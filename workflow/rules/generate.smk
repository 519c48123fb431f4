"""Sampling: one job is one pool of policies of one (checkpoint, benchmark), one engine start.

What a job asks for follows from the checkpoint and from what the store lacks of the pool: GPUs from device and
vllm.tensor_parallel, none where nothing is lacking; memory from the weights; time from the planned tokens.

Slurm warns a job that is about to end with SIGTERM, which ends shell and tee at once and would take the sampling that
finishes its chunk along; the shell ignores it, searchlens does not.

REQUIRED INPUTS: none; the manifest's name holds everything that decides the samples.
OUTPUTS: results/manifests/<checkpoint>/<benchmark>/pool-<hash>[.rN].json; shards beside it, in the store.
"""


rule generate:
    """Sample what the store lacks of one pool."""
    output:
        f"{RESULTS}/manifests/{{model}}/{{benchmark}}/{{pool}}.json",
    log:
        f"{LOGS}/generate/{{model}}/{{benchmark}}/{{pool}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/generate/{{model}}/{{benchmark}}/{{pool}}.tsv"
    # The longest jobs first, so that they run side by side and not one after the other.
    priority: 10
    conda:
        "../envs/generate.yaml"
    threads: cores
    resources:
        gpu=sampling_gpu,
        gres=sampling_gres,
        # Slurm may otherwise take the GPUs of one engine from several nodes.
        nodes=1,
        mem_mb=larger(host_memory),
        runtime=longer(planned_minutes),
    shell:
        """
        trap '' TERM USR1
        searchlens generate \
            --checkpoint {wildcards.model:q} \
            --benchmark {wildcards.benchmark:q} \
            --manifest {output:q} \
            --threads {threads} \
            2>&1 | tee {log:q}
        """
