"""BOPTR: the RL default curves predicted from the Base landscapes, with every table and figure of the transfer analysis.

REQUIRED INPUTS: every landscape of the study, repeated samplings included.
OUTPUTS: results/boptr/<frame>.parquet, results/tables/<table>.{csv,md,tex}, results/figures/boptr/<figure>.{svg,pdf,png,csv}
"""


rule boptr:
    """Fit the rule on the anchor, transfer it to every other cell, and score it."""
    input:
        LANDSCAPES,
    output:
        [boptr_output("table", name) for name in BOPTR_TABLES],
        [boptr_output("figure", name) for name in BOPTR_FIGURES],
        expand(f"{RESULTS}/boptr/{{name}}.parquet", name=BOPTR_FRAMES),
    log:
        f"{LOGS}/boptr.log",
    benchmark:
        f"{RESULTS}/benchmarks/boptr.tsv"
    # The longest of what follows the landscapes: beside the figures, not after them.
    priority: 5
    conda:
        "../envs/analysis.yaml"
    threads: 2
    resources:
        mem_mb=larger(6000),
        runtime=longer(120),
    params:
        cohort=cohort,
        options=options("boptr", "boptr"),
        landscape=subpath(input[0], ancestor=3),
        folder=subpath(output[0], ancestor=2),
    shell:
        """
        OPENBLAS_NUM_THREADS=1 searchlens boptr \
            --landscape {params.landscape:q} \
            --out {params.folder:q} \
            2>&1 | tee {log:q}
        """
