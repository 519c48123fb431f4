"""Recovery: is the RL default curve inside the Base landscape, and along which path?

REQUIRED INPUTS: the landscapes of both checkpoints of a pair on one benchmark.
OUTPUTS: results/recovery/<pair>/<benchmark>/*.parquet
"""


rule recovery:
    """Compare one pair on one benchmark."""
    input:
        base=get_landscape("base"),
        rl=get_landscape("rl"),
    output:
        recovery_files("{pair}", "{benchmark}"),
    log:
        layout.log("recovery", "{pair}", "{benchmark}"),
    # It takes seconds, less than a cluster needs to start a job and to report its end.
    localrule: True
    conda:
        "../envs/analysis.yaml"
    threads: 1
    resources:
        mem_mb=larger(lambda wildcards: cost.recovery_mb(GRID, wildcards.pair, wildcards.benchmark)),
        runtime=30,
    params:
        needs=tracked("recovery", lambda wildcards: needs.recovery(GRID, wildcards.benchmark)),
        base=get_landscape_folder("base"),
        rl=get_landscape_folder("rl"),
        folder=subpath(output[0], parent=True),
    shell:
        """
        searchlens recovery \
            --benchmark {wildcards.benchmark:q} \
            --base {params.base:q} \
            --rl {params.rl:q} \
            --output {params.folder:q} \
            2>&1 | tee {log:q}
        """
