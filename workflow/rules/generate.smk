"""Sampling: one job is one pool of policies of one (checkpoint, benchmark), one engine start.

What a job asks for follows from the checkpoint: GPUs from its device and vllm.tensor_parallel, none where nothing is
lacking.

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
        gpu=gpus,
        mem_mb=host_memory,
        runtime=240,
    shell:
        """
        searchlens generate \
            --checkpoint {wildcards.model:q} \
            --benchmark {wildcards.benchmark:q} \
            --manifest {output:q} \
            --threads {threads} \
            2>&1 | tee {log:q}
        """
