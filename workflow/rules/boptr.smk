"""BOPTR: the RL default curves predicted from the Base landscapes, then every table and figure of the transfer analysis.

REQUIRED INPUTS: every landscape of the study, batches included.
OUTPUTS: results/boptr/<frame>.parquet; results/tables/<table>.{csv,md,tex,html,json}, results/figures/boptr/<figure>.{svg,pdf,png,csv}
or, if there may be nothing to draw, results/figures/boptr/<figure>/
"""


rule boptr:
    """Fit the rule on the anchor, transfer it to every other cell, and score it."""
    input:
        [landscape_content(*cell) for cell in GRID.study.cells],
    output:
        [OUT.boptr_frame(frame) for frame in boptr_frames() if frame not in BOPTR_WORDS],
        OUT.boptr / SIGNATURE,
    log:
        layout.log("boptr"),
    benchmark:
        OUT.timing("boptr")
    # The longest job after the landscapes: start it before the figures.
    priority: 5
    conda:
        "../envs/analysis.yaml"
    threads: 1
    resources:
        mem_mb=larger(6000),
        runtime=longer(120),
    params:
        needs=tracked("boptr", lambda wildcards: needs.boptr(GRID)),
        landscapes=OUT.landscapes,
        folder=subpath(output[0], ancestor=2),
    shell:
        """
        OPENBLAS_NUM_THREADS=1 searchlens boptr {params.landscapes:q} \
            --output {params.folder:q} \
            --frames-only \
            2>&1 | tee {log:q}
        """


rule transfer:
    """Write the tables and figures of BOPTR, and its frames in words."""
    input:
        [OUT.boptr_frame(frame) for frame in boptr_frames() if frame not in BOPTR_WORDS],
        # Also an input of every frame. After a checkpoint Snakemake plans anew only what names an output of it.
        [landscape_content(*cell) for cell in GRID.study.cells],
    output:
        list(tables("boptr", category="3 BOPTR", subcategory="tables")),
        list(figures("boptr", OUT.boptr_figure, category="3 BOPTR", subcategory="figures")),
        [OUT.boptr_frame(frame) for frame in BOPTR_WORDS],
    log:
        layout.log("transfer"),
    # It takes seconds, less than a cluster needs to start a job and to report its end.
    localrule: True
    conda:
        "../envs/analysis.yaml"
    threads: 1
    resources:
        mem_mb=larger(2000),
        runtime=30,
    params:
        needs=tracked("transfer", lambda wildcards: needs.transfer(GRID)),
        landscapes=OUT.landscapes,
        folder=subpath(output[0], ancestor=2),
    shell:
        """
        searchlens transfer {params.landscapes:q} \
            --output {params.folder:q} \
            2>&1 | tee {log:q}
        """
