"""Sampling: one job is one pool of policies of one (checkpoint, benchmark), one engine start.

REQUIRED INPUTS: none; the manifest's name holds everything that decides the samples.
OUTPUTS: results/manifests/<checkpoint>/<benchmark>/pool-<hash>[.rN].json; shards beside it, in the store.
"""


def pool_of(wildcards):
    return GRID.find_pool(wildcards.model, wildcards.benchmark, f"{wildcards.pool}.json")


def gpus(wildcards):
    """One GPU where the checkpoint wants one and the store lacks something; none otherwise."""
    wants = GRID.config["checkpoints"][wildcards.model]["device"] == "cuda"
    return int(wants and any(True for _ in GRID.lacking(pool_of(wildcards))))


rule generate:
    """Sample what the store lacks of one pool."""
    output:
        f"{RESULTS}/manifests/{{model}}/{{benchmark}}/{{pool}}.json",
    log:
        f"{LOGS}/generate/{{model}}/{{benchmark}}/{{pool}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/generate/{{model}}/{{benchmark}}/{{pool}}.tsv"
    conda:
        "../envs/generate.yaml"
    threads: 1
    resources:
        gpu=gpus,
        mem_mb=4000,
        runtime=240,
    shell:
        """
        searchlens generate \
            --snapshot {SNAPSHOT:q} \
            --checkpoint {wildcards.model:q} \
            --benchmark {wildcards.benchmark:q} \
            --manifest {output:q} \
            --threads {threads} \
            2>&1 | tee {log:q}
        """
