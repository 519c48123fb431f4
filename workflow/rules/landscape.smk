"""Operating points: every (policy, budget) read from one pool of samples, as prefixes and as expectations.

REQUIRED INPUTS: graded samples of the cell.
OUTPUTS: results/landscape/<checkpoint>/<benchmark>/{points,hits}.parquet
"""


rule landscape:
    """Count hits at every operating point of one cell."""
    input:
        graded,
    output:
        points=f"{RESULTS}/landscape/{{model}}/{{benchmark}}/points.parquet",
        hits=f"{RESULTS}/landscape/{{model}}/{{benchmark}}/hits.parquet",
    log:
        f"{LOGS}/landscape/{{model}}/{{benchmark}}.log",
    # Seconds: as a job of a cluster it would wait longer to be noticed than it runs.
    localrule: True
    conda:
        "../envs/analysis.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        budgets=read_budgets,
        options=options("landscape", "landscape", "seed"),
        folder=subpath(output.points, parent=True),
    shell:
        """
        searchlens landscape \
            --benchmark {wildcards.benchmark:q} \
            --scores {input:q} \
            --output {params.folder:q} \
            2>&1 | tee {log:q}
        """
