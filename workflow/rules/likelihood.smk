"""Cross-likelihoods: texts of each side of a pair, scored under both of its checkpoints.

REQUIRED INPUTS: graded samples of both sides, and the shards that they were read from; weights of both checkpoints.
OUTPUTS: results/likelihood/<pair>/<benchmark>/{texts,summary}.parquet
"""


rule likelihood:
    """Score texts of one pair on one benchmark under both sides, one checkpoint after the other."""
    input:
        lambda wildcards: [
            GRID.scores(checkpoint, wildcards.benchmark) for checkpoint in GRID.study.pairs[wildcards.pair].values()
        ],
    output:
        likelihood_files("{pair}", "{benchmark}"),
    log:
        layout.log("likelihood", "{pair}", "{benchmark}"),
    benchmark:
        OUT.timing("likelihood", "{pair}", "{benchmark}")
    conda:
        "../envs/generate.yaml"
    threads: 1
    resources:
        gpu=lambda wildcards: get_gpu(get_pair_gpus(wildcards)),
        gres=lambda wildcards: get_gres(get_pair_gpus(wildcards)),
        nodes=1,
        mem_mb=larger(
            lambda wildcards: max(cost.memory_mb(GRID, name) for name in GRID.study.pairs[wildcards.pair].values())
        ),
        runtime=longer(60),
    params:
        needs=tracked("likelihood", lambda wildcards: needs.likelihood(GRID, wildcards.pair, wildcards.benchmark)),
        folder=subpath(output[0], parent=True),
    shell:
        """
        searchlens likelihood \
            --pair {wildcards.pair:q} \
            --benchmark {wildcards.benchmark:q} \
            --output {params.folder:q} \
            --threads {threads} \
            2>&1 | tee {log:q}
        """
