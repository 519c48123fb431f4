"""The report: figures and tables with their captions, as one page.

REQUIRED INPUTS: every figure and table, and the measures that the headline states.
OUTPUTS: results/report.html
"""


rule report_page:
    """Put figures, tables and captions into one page."""
    input:
        [recovery_content(*cell) for cell in GRID.study.pair_cells],
        [landscape_content(*cell) for cell in GRID.study.cells],
        [OUT.measures_frame(frame) for frame in MEASURE_FRAMES],
        [
            path
            for cell in GRID.study.drawn_cells
            for path in expand(shown(rules.figures.output), pair=cell[0], benchmark=cell[1])
        ],
        shown(rules.overview.output),
        shown(rules.tables.output),
        [] if GRID.study.without_boptr else shown(rules.transfer.output),
        shown(ADDED),
    output:
        OUT.report,
    log:
        layout.log("report"),
    # It takes seconds, less than a cluster needs to start a job and to report its end.
    localrule: True
    conda:
        "../envs/analysis.yaml"
    threads: 1
    resources:
        mem_mb=larger(2000),
        runtime=30,
    params:
        needs=tracked("report", lambda wildcards: needs.explorer(GRID)),
        words=digest([file_sha256(path) for path in CAPTIONS], 16),
    shell:
        """
        searchlens report \
            --output {output:q} \
            2>&1 | tee {log:q}
        """
