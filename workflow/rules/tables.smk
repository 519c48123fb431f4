"""Tables and overview figures of the whole study.

REQUIRED INPUTS: every recovery analysis and landscape; manifests, for the cost table.
OUTPUTS: results/tables/<table>.{csv,tex}, results/figures/pass_curves.{svg,pdf,png,csv}
"""


rule tables:
    """Gather the study into tables and its headline figure."""
    input:
        [f"{RESULTS}/recovery/{p}/{b}/{name}.parquet" for p, b in GRID.pair_cells for name in RECOVERY_NAMES],
        LANDSCAPES,
        MANIFESTS,
    output:
        [
            report(
                f"{RESULTS}/tables/{table}.csv",
                caption=f"../report/tables/{table}.rst",
                category="Study",
                labels={"table": table.replace("_", " ")},
            )
            for table in TABLE_NAMES
        ],
        report(
            f"{RESULTS}/figures/pass_curves.svg",
            caption="../report/figures/pass_curves.rst",
            category="Study",
            labels={"figure": "pass@k, Base and RL"},
        ),
    log:
        f"{LOGS}/tables.log",
    # Seconds: as a job of a cluster it would wait longer to be noticed than it runs.
    localrule: True
    conda:
        "../envs/analysis.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        options=options("tables", "study", "default_policy", "references"),
        folder=subpath(output[0], ancestor=2),
    shell:
        """
        searchlens tables \
            --output {params.folder:q} \
            2>&1 | tee {log:q}
        """
