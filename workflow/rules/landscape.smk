"""Operating points: every (policy, budget) read from one pool of samples, as prefixes and as expectations.

REQUIRED INPUTS: graded samples of the cell.
OUTPUTS: results/landscape/<checkpoint>/<benchmark>/{points,hits,classes,votes,health}.parquet
"""


rule landscape:
    """Count hits at every operating point of one cell."""
    input:
        lambda wildcards: GRID.scores(wildcards.checkpoint, wildcards.benchmark),
    output:
        landscape_files("{checkpoint}", "{benchmark}"),
    log:
        layout.log("landscape", "{checkpoint}", "{benchmark}"),
    # It takes seconds, less than a cluster needs to start a job and to report its end.
    localrule: True
    conda:
        "../envs/analysis.yaml"
    threads: 1
    resources:
        mem_mb=larger(lambda wildcards: cost.landscape_mb(GRID, wildcards.checkpoint, wildcards.benchmark)),
        runtime=30,
    params:
        needs=tracked("landscape", lambda wildcards: needs.landscape(GRID, wildcards.benchmark)),
        folder=subpath(output[0], parent=True),
    shell:
        """
        searchlens landscape \
            --benchmark {wildcards.benchmark:q} \
            --scores {input:q} \
            --output {params.folder:q} \
            2>&1 | tee {log:q}
        """
