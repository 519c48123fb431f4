"""Grading: each distinct answer once in the life of the results folder.

REQUIRED INPUTS: the cell's current manifests, and records of imported samples.
OUTPUTS: results/scores/<checkpoint>/<benchmark>.parquet; verdicts in results/verdicts/.
"""


def cell_manifests(wildcards):
    return GRID.manifests(wildcards.checkpoint, wildcards.benchmark)


def cell_imports(wildcards):
    return GRID.import_records(wildcards.checkpoint, wildcards.benchmark)


def names_and_options(wildcards):
    """Policy names by generation and the golds in use: a renamed policy or a corrected gold is graded anew."""
    golds = content_hash(GRID.questions(wildcards.benchmark))
    names = {g.id: g.policies for g in GRID.generations(wildcards.checkpoint, wildcards.benchmark)}
    return canonical({"golds": golds, "names": names, "options": options("score", "landscape")})


rule score:
    """Grade the samples of one cell."""
    input:
        manifests=cell_manifests,
        imports=cell_imports,
    output:
        f"{RESULTS}/scores/{{checkpoint}}/{{benchmark}}.parquet",
    log:
        f"{LOGS}/score/{{checkpoint}}/{{benchmark}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/score/{{checkpoint}}/{{benchmark}}.tsv"
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
            --checkpoint {wildcards.checkpoint:q} \
            --benchmark {wildcards.benchmark:q} \
            --output {output:q} \
            {input.manifests:q} \
            2>&1 | tee {log:q}
        """
