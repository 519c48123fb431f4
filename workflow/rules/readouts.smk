"""Landscapes and recovery of cells that are read from compact readouts: in one job, because each takes a moment.

REQUIRED INPUTS: the cells' compact readouts (study.readouts).
OUTPUTS: results/landscape/<checkpoint>/<benchmark>/{points,hits}.parquet, results/recovery/<pair>/<benchmark>/*.parquet
"""


ruleorder: readouts > landscape
ruleorder: readouts > recovery


rule readouts:
    """Read every landscape that samples are not needed for, and compare their pairs."""
    input:
        [str(path) for path in GRID.readouts.values()],
    output:
        [f"{RESULTS}/landscape/{c}/{b}/{part}.parquet" for c, b in GRID.readouts for part in ("points", "hits")],
        [f"{RESULTS}/recovery/{p}/{b}/{name}.parquet" for p, b in GRID.readout_pairs for name in RECOVERY_NAMES],
    log:
        f"{LOGS}/readouts.log",
    conda:
        "../envs/analysis.yaml"
    threads: 2
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        budgets=canonical({b: GRID.read_budgets(b) for _, b in GRID.readouts}),
        landscape=options("landscape", "landscape", "seed"),
        recovery=options("recovery", "recovery", "landscape", "default_policy", "references", "seed"),
    shell:
        """
        OPENBLAS_NUM_THREADS=1 POLARS_MAX_THREADS=1 searchlens analyse \
            --threads {threads} \
            2>&1 | tee {log:q}
        """
