"""Figures of the whole study.

REQUIRED INPUTS: every landscape of a pair, the measures, and the handover if Base continued texts.
OUTPUTS: results/figures/<figure>.{svg,pdf,png,csv}
"""


rule overview:
    """Draw Base and RL of every pair on every benchmark."""
    input:
        [landscape_content(c, b) for p, b in GRID.study.pair_cells for c in GRID.study.pairs[p].values()],
        [OUT.measures_frame(frame) for frame in MEASURE_FRAMES],
        [OUT.likelihood_frame(*cell, "handover") for cell in needs.overview(GRID).handover],
    output:
        list(figures("study", OUT.study_figure, category="1 Study")),
        list(figures("likelihood", OUT.study_figure, category="1 Study")) if needs.overview(GRID).handover else [],
    log:
        layout.log("overview"),
    # It takes seconds, less than a cluster needs to start a job and to report its end.
    localrule: True
    conda:
        "../envs/analysis.yaml"
    threads: 1
    resources:
        mem_mb=larger(2000),
        runtime=30,
    params:
        needs=tracked("overview", lambda wildcards: needs.overview(GRID)),
        folder=subpath(output[0], parent=True),
    shell:
        """
        searchlens overview \
            --output {params.folder:q} \
            2>&1 | tee {log:q}
        """
