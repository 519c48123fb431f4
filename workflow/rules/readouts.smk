"""Landscapes and recovery of recorded cells, read from compact readouts; each in one job, because a cell takes a moment.

REQUIRED INPUTS: the cells' compact readouts (study.readouts).
OUTPUTS: results/landscape/<checkpoint>/<benchmark>/*.parquet, results/recovery/<pair>/<benchmark>/*.parquet
"""


ruleorder: readouts > landscape


# A checkpoint, because the rest is planned again when it is done: what depends on landscapes that came out as they were
# does not run. Outputs are updated in place, so that the landscapes which are current need not be made again.
checkpoint readouts:
    """Read every landscape that needs no samples."""
    input:
        [file for path in GRID.readouts.values() for file in (path, layout.readouts_sidecar(path))],
    output:
        [update(str(path)) for cell in GRID.readouts for path in landscape_files(*cell)],
    log:
        layout.log("readouts"),
    # Seconds, and nothing to wait for: before sampling, so that figures of these cells find a core while it ends.
    priority: 20
    conda:
        "../envs/analysis.yaml"
    threads: resources.reading_threads(len(GRID.readouts))
    resources:
        mem_mb=larger(8000),
        runtime=longer(60),
    params:
        needs=tracked("readouts", lambda wildcards: needs.readouts(GRID)),
    shell:
        """
        OPENBLAS_NUM_THREADS=1 POLARS_MAX_THREADS=1 searchlens analyse \
            --threads {threads} \
            2>&1 | tee {log:q}
        """


if GRID.readout_pairs:

    ruleorder: recoveries > recovery

    rule recoveries:
        """Compare every pair of landscapes that needs no samples."""
        input:
            [landscape_content(c, b) for p, b in GRID.readout_pairs for c in GRID.pairs[p].values()],
        output:
            [path for cell in GRID.readout_pairs for path in recovery_files(*cell)],
        log:
            layout.log("recoveries"),
        priority: 20
        conda:
            "../envs/analysis.yaml"
        threads: resources.reading_threads(2 * len(GRID.readout_pairs))
        resources:
            mem_mb=larger(8000),
            runtime=longer(60),
        params:
            needs=tracked("recoveries", lambda wildcards: needs.recoveries(GRID)),
        shell:
            """
            OPENBLAS_NUM_THREADS=1 POLARS_MAX_THREADS=1 searchlens recoveries \
                --threads {threads} \
                2>&1 | tee {log:q}
            """
