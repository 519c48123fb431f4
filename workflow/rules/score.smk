"""Grading: each distinct answer once in the life of the results folder.

REQUIRED INPUTS: the cell's current manifests, and records of imported samples.
OUTPUTS: results/scores/<checkpoint>/<benchmark>.parquet; verdicts in results/verdicts/.
"""


rule score:
    """Grade the samples of one cell."""
    input:
        manifests=lambda wildcards: GRID.manifests(wildcards.checkpoint, wildcards.benchmark),
        imports=lambda wildcards: GRID.import_records(wildcards.checkpoint, wildcards.benchmark),
    output:
        scores=OUT.scores("{checkpoint}", "{benchmark}"),
        signature=OUT.scores("{checkpoint}", "{benchmark}").with_suffix(".json"),
    log:
        layout.log("score", "{checkpoint}", "{benchmark}"),
    benchmark:
        OUT.timing("score", "{checkpoint}", "{benchmark}")
    conda:
        "../envs/analysis.yaml"
    threads: 1
    resources:
        mem_mb=larger(lambda wildcards: cost.score_mb(GRID, wildcards.checkpoint, wildcards.benchmark)),
        runtime=longer(60),
    params:
        needs=tracked("score", lambda wildcards: needs.score(GRID, wildcards.checkpoint, wildcards.benchmark)),
    shell:
        """
        searchlens score \
            --checkpoint {wildcards.checkpoint:q} \
            --benchmark {wildcards.benchmark:q} \
            --output {output.scores:q} \
            --threads {threads} \
            {input.manifests:q} \
            2>&1 | tee {log:q}
        """
