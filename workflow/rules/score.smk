"""Grading: each distinct answer once in the life of the results folder.

REQUIRED INPUTS: the cell's current manifests, and records of imported samples.
OUTPUTS: results/scores/<checkpoint>/<benchmark>.parquet; verdicts in results/verdicts/.
"""


def cell_manifests(wildcards):
    return GRID.manifests(wildcards.model, wildcards.benchmark)


def cell_imports(wildcards):
    return GRID.import_records(wildcards.model, wildcards.benchmark)


def names_and_options(wildcards):
    """Policy names by generation and the golds in use: a renamed policy or a corrected gold is graded anew."""
    golds = GRID.content_hash(wildcards.benchmark)
    names = {g.id: g.policies for g in GRID.generations(wildcards.model, wildcards.benchmark)}
    return canonical({"golds": golds, "names": names, "options": options("score", "landscape")})


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
    params:
        names=names_and_options,
    threads: 1
    resources:
        mem_mb=4000,
        runtime=60,
    shell:
        """
        searchlens score \
            --snapshot {SNAPSHOT:q} \
            --checkpoint {wildcards.model:q} \
            --benchmark {wildcards.benchmark:q} \
            --output {output:q} \
            {input.manifests:q} \
            2>&1 | tee {log:q}
        """
