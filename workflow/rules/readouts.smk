"""Landscapes and recovery of recorded cells, read from compact readouts; in one job, because each takes a moment.

REQUIRED INPUTS: the cells' compact readouts (study.readouts).
OUTPUTS: results/landscape/<checkpoint>/<benchmark>/*.parquet, results/recovery/<pair>/<benchmark>/*.parquet
"""


ruleorder: readouts > landscape
ruleorder: readouts > recovery


rule readouts:
    """Read every landscape that needs no samples, and compare their pairs."""
    input:
        list(GRID.readouts.values()),
    output:
        [path for cell in GRID.readouts for path in landscape_files(*cell)],
        [path for cell in GRID.readout_pairs for path in recovery_files(*cell)],
    log:
        layout.log("readouts"),
    conda:
        "../envs/analysis.yaml"
    threads: 2
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        needs=tracked("readouts", lambda wildcards: needs.readouts(GRID)),
    shell:
        """
        OPENBLAS_NUM_THREADS=1 POLARS_MAX_THREADS=1 searchlens analyse \
            --threads {threads} \
            2>&1 | tee {log:q}
        """
