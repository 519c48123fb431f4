"""Equivalence: our policies against implementations that are not ours, on the Base checkpoint of the first pair.

REQUIRED INPUTS: none; weights, questions, policies and thresholds come from the configuration.
OUTPUTS: results/tables/udf_local.{csv,md,tex}, results/tables/udf_tier34.{csv,md,tex}; where that checkpoint runs on
vLLM also results/tables/udf_tier12.{csv,md,tex}, results/tables/udf_engines.{csv,md,tex}
"""


rule equivalence:
    """Compare every policy of the section `equivalence` with its references; what does not hold is said, not raised."""
    output:
        [
            report(
                f"{RESULTS}/tables/{table}.csv",
                caption=f"../report/tables/{table}.rst",
                category="Study",
                labels={"table": table.replace("_", " ")},
            )
            for table in EQUIVALENCE_TABLES
        ],
    log:
        f"{LOGS}/equivalence.log",
    benchmark:
        f"{RESULTS}/benchmarks/equivalence.tsv"
    # As long as a sampling job, and nothing waits for it.
    priority: 5
    conda:
        "../envs/generate.yaml"
    threads: 1
    resources:
        gpu=gpu_to_compare,
        gres=gres_to_compare,
        nodes=1,
        mem_mb=larger(memory_to_compare),
        runtime=longer(120),
    params:
        compared=compared,
        options=options("equivalence", "equivalence", "budgets"),
        folder=subpath(output[0], ancestor=2),
    shell:
        """
        searchlens equivalence \
            --output {params.folder:q} \
            --threads {threads} \
            2>&1 | tee {log:q}
        """
