"""Grading: each distinct answer once in the life of the results folder.

REQUIRED INPUTS: the cell's current manifests, and records of imported samples.
OUTPUTS: results/scores/<checkpoint>/<benchmark>.parquet; verdicts in results/verdicts/.
"""


rule score:
    """Grade the samples of one cell."""
    input:
        manifests=cell_manifests,
        imports=cell_imports,
    output:
        f"{RESULTS}/scores/{{model}}/{{benchmark}}.parquet",
    log:
        f"{LOGS}/score/{{model}}/{{benchmark}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/score/{{model}}/{{benchmark}}.tsv"
    conda:
        "../envs/analysis.yaml"
    threads: 1
    resources:
        mem_mb=larger(4000),
        runtime=longer(60),
    params:
        names=names_and_options,
    shell:
        """
        searchlens score \
            --checkpoint {wildcards.model:q} \
            --benchmark {wildcards.benchmark:q} \
            --output {output:q} \
            --threads {threads} \
            {input.manifests:q} \
            2>&1 | tee {log:q}
        """
