"""Figures of one pair on one benchmark; each as SVG, PDF and PNG beside a CSV of its numbers.

REQUIRED INPUTS: the recovery analysis and both landscapes; records beside the shards, for what samples took.
OUTPUTS: results/figures/<pair>/<benchmark>/<figure>.{svg,pdf,png,csv}
"""


rule figures:
    """Draw everything about one pair on one benchmark."""
    input:
        expand(
            f"{RESULTS}/recovery/{{{{pair}}}}/{{{{benchmark}}}}/{{name}}.parquet",
            name=RECOVERY_NAMES,
        ),
        landscape_of("base"),
        landscape_of("rl"),
    output:
        [figure_output(name) for name in FIGURE_NAMES],
    log:
        f"{LOGS}/figures/{{pair}}/{{benchmark}}.log",
    # Seconds: as a job of a cluster it would wait longer to be noticed than it runs.
    localrule: True
    conda:
        "../envs/analysis.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        options=options("figures", "recovery", "default_policy", "references"),
        parameters=parameters,
        folder=subpath(output[0], parent=True),
    shell:
        """
        searchlens figures \
            --pair {wildcards.pair:q} \
            --benchmark {wildcards.benchmark:q} \
            --output {params.folder:q} \
            2>&1 | tee {log:q}
        """
