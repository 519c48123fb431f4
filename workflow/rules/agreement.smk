"""Two graders on the same samples: some graded samples of a cell, judged by math-verify alone, too.

REQUIRED INPUTS: graded samples of the cell, its current manifests, and records of imported samples.
OUTPUTS: results/agreement/<checkpoint>/<benchmark>.parquet
"""


rule agreement:
    """Judge some samples of one cell a second time."""
    input:
        scores=OUT.scores("{checkpoint}", "{benchmark}"),
        manifests=lambda wildcards: GRID.manifests(wildcards.checkpoint, wildcards.benchmark),
        imports=lambda wildcards: GRID.import_records(wildcards.checkpoint, wildcards.benchmark),
    output:
        OUT.agreement("{checkpoint}", "{benchmark}"),
    log:
        layout.log("agreement", "{checkpoint}", "{benchmark}"),
    # It takes seconds, less than a cluster needs to start a job and to report its end.
    localrule: True
    conda:
        "../envs/analysis.yaml"
    threads: 1
    resources:
        mem_mb=larger(lambda wildcards: cost.score_mb(GRID, wildcards.checkpoint, wildcards.benchmark)),
        runtime=30,
    params:
        needs=tracked("agreement", lambda wildcards: needs.agreement(GRID, wildcards.checkpoint, wildcards.benchmark)),
    shell:
        """
        searchlens compare-graders \
            --checkpoint {wildcards.checkpoint:q} \
            --benchmark {wildcards.benchmark:q} \
            --output {output:q} \
            --threads {threads} \
            {input.manifests:q} \
            2>&1 | tee {log:q}
        """
