"""Recovery: is the RL default curve inside the Base landscape, and along which path?

REQUIRED INPUTS: the landscapes of both checkpoints of a pair on one benchmark.
OUTPUTS: results/recovery/<pair>/<benchmark>/*.parquet
"""


rule recovery:
    """Compare one pair on one benchmark."""
    input:
        base=landscape_of("base"),
        rl=landscape_of("rl"),
    output:
        expand(
            f"{RESULTS}/recovery/{{{{pair}}}}/{{{{benchmark}}}}/{{name}}.parquet",
            name=RECOVERY_NAMES,
        ),
    log:
        f"{LOGS}/recovery/{{pair}}/{{benchmark}}.log",
    # Seconds: as a job of a cluster it would wait longer to be noticed than it runs.
    localrule: True
    conda:
        "../envs/analysis.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        options=options("recovery", "recovery", "landscape", "default_policy", "references", "seed"),
        base=landscape_folder("base"),
        rl=landscape_folder("rl"),
        folder=subpath(output[0], parent=True),
    shell:
        """
        searchlens recovery \
            --base {params.base:q} \
            --rl {params.rl:q} \
            --output {params.folder:q} \
            2>&1 | tee {log:q}
        """
