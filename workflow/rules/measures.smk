"""Measures of all samples: what RL's curve is worth in samples of Base, and what else the counts of a pair say.

REQUIRED INPUTS: every landscape of a pair.
OUTPUTS: results/measures/<frame>.parquet
"""


rule measures:
    """Read every pair on every benchmark."""
    input:
        [
            landscape_content(checkpoint, cell[1])
            for cell in GRID.study.pair_cells
            for role in ("base", "rl")
            for checkpoint in needs.sides(GRID, *cell, role)
        ],
    output:
        [OUT.measures_frame(frame) for frame in MEASURE_FRAMES],
        OUT.measures / SIGNATURE,
    log:
        layout.log("measures"),
    benchmark:
        OUT.timing("measures")
    conda:
        "../envs/analysis.yaml"
    threads: 1
    resources:
        mem_mb=larger(4000),
        runtime=longer(60),
    params:
        needs=tracked("measures", lambda wildcards: needs.measures(GRID)),
    shell:
        """
        OPENBLAS_NUM_THREADS=1 searchlens measures \
            2>&1 | tee {log:q}
        """
