"""The explorer: the study as one page that opens in a browser, down to single samples.

REQUIRED INPUTS: everything that the page shows: landscapes, recovery, measures, cross-likelihoods, BOPTR, tables, scores; samples by their manifests.
OUTPUTS: results/explorer.html; results/headline.html, the sentences of the report's first page
"""


rule explorer:
    """Put the study into one page."""
    input:
        [recovery_content(*cell) for cell in GRID.study.pair_cells],
        [landscape_content(*cell) for cell in GRID.study.cells],
        [OUT.scores(*cell) for cell in GRID.study.cells if cell not in GRID.study.recorded_counts],
        [path for cell in GRID.study.cells for path in GRID.manifests(*cell)],
        [OUT.likelihood_frame(*cell, frame) for cell in GRID.jobs.likelihood_cells for frame in ("texts", "bounds")],
        [OUT.measures_frame(frame) for frame in MEASURE_FRAMES],
        [path for path in rules.tables.output if path.endswith((".csv", ".md"))],
        [] if GRID.study.without_boptr else [OUT.boptr_frame(frame) for frame in boptr_frames()],
        [] if GRID.study.without_boptr else [path for path in rules.transfer.output if path.endswith((".csv", ".md"))],
        [path for path in ADDED if path.endswith((".csv", ".md"))],
    output:
        page=OUT.explorer,
        headline=listed(OUT.headline, "headline", {"table": "headline"}, category="1 Study"),
    log:
        layout.log("explorer"),
    conda:
        "../envs/analysis.yaml"
    threads: 1
    resources:
        mem_mb=larger(4000),
        runtime=longer(60),
    params:
        needs=tracked("explorer", lambda wildcards: needs.explorer(GRID)),
        words=digest([file_sha256(path) for path in [*CAPTIONS, PACKAGE / "reporting" / "explorer.html.gz"]], 16),
    shell:
        """
        searchlens explore \
            --output {output.page:q} --headline {output.headline:q} \
            2>&1 | tee {log:q}
        """
