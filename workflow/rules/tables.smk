"""Tables of the whole study.

REQUIRED INPUTS: every recovery analysis and landscape; manifests, for the cost table.
OUTPUTS: results/tables/<table>.{csv,md,tex,html,json}
"""


rule tables:
    """Gather the study into tables."""
    input:
        [recovery_content(*cell) for cell in GRID.study.pair_cells],
        [landscape_content(*cell) for cell in GRID.study.cells],
        [OUT.measures_frame(frame) for frame in MEASURE_FRAMES],
        [OUT.agreement(*cell) for cell in GRID.study.agreement_cells],
        [OUT.likelihood_frame(*cell, "summary") for cell in GRID.jobs.likelihood_cells],
        [path for cell in GRID.study.cells for path in GRID.manifests(*cell)],
    output:
        list(tables("study", category="1 Study")),
        list(tables("likelihood", category="1 Study")) if GRID.jobs.likelihood_cells else [],
    log:
        layout.log("tables"),
    # It takes seconds, less than a cluster needs to start a job and to report its end.
    localrule: True
    conda:
        "../envs/analysis.yaml"
    threads: 1
    resources:
        mem_mb=larger(2000),
        runtime=30,
    params:
        needs=tracked("tables", lambda wildcards: needs.tables(GRID)),
        folder=subpath(output[0], ancestor=2),
    shell:
        """
        searchlens tables \
            --output {params.folder:q} \
            2>&1 | tee {log:q}
        """
