"""Landscapes and recovery of recorded cells: one job for each checkpoint and each pair, because a cell takes a moment.

REQUIRED INPUTS: the cells' recorded counts (study.recorded_counts).
OUTPUTS: results/landscape/<checkpoint>/<benchmark>/*.parquet, results/recovery/<pair>/<benchmark>/*.parquet
"""

# Snakemake prefers these rules to `landscape` and `recovery`, because they have no wildcards. Nothing to wait for: before
# sampling, so that figures of these cells find a core while it ends.
for checkpoint, benchmarks in by_name(GRID.study.recorded_counts).items():

    rule:
        name:
            f"landscape_{checkpoint}"
        input:
            counts=[GRID.study.recorded_counts[checkpoint, b] for b in benchmarks],
            sidecars=[layout.counts_sidecar(GRID.study.recorded_counts[checkpoint, b]) for b in benchmarks],
        output:
            [path for b in benchmarks for path in landscape_files(checkpoint, b)],
        log:
            layout.log("landscape", checkpoint),
        priority: 20
        localrule: True
        conda:
            "../envs/analysis.yaml"
        threads: 1
        resources:
            mem_mb=larger(2000),
            runtime=30,
        params:
            needs=tracked("landscape", lambda wildcards, names=benchmarks: [needs.landscape(GRID, b) for b in names]),
            benchmarks=benchmarks,
            folders=[OUT.landscape(checkpoint, b) for b in benchmarks],
        shell:
            """
            searchlens landscape \
                --benchmark {params.benchmarks:q} \
                --scores {input.counts:q} \
                --output {params.folders:q} \
                2>&1 | tee {log:q}
            """


for pair, benchmarks in by_name(GRID.study.recorded_pairs).items():

    rule:
        name:
            f"recovery_{pair}"
        input:
            [landscape_content(c, b) for b in benchmarks for c in GRID.study.pairs[pair].values()],
        output:
            [path for b in benchmarks for path in recovery_files(pair, b)],
        log:
            layout.log("recovery", pair),
        priority: 20
        localrule: True
        conda:
            "../envs/analysis.yaml"
        threads: 1
        resources:
            mem_mb=larger(2000),
            runtime=30,
        params:
            needs=tracked("recovery", lambda wildcards, names=benchmarks: [needs.recovery(GRID, b) for b in names]),
            benchmarks=benchmarks,
            base=[OUT.landscape(GRID.study.pairs[pair]["base"], b) for b in benchmarks],
            rl=[OUT.landscape(GRID.study.pairs[pair]["rl"], b) for b in benchmarks],
            folders=[OUT.recovery(pair, b) for b in benchmarks],
        shell:
            """
            searchlens recovery \
                --benchmark {params.benchmarks:q} \
                --base {params.base:q} \
                --rl {params.rl:q} \
                --output {params.folders:q} \
                2>&1 | tee {log:q}
            """
