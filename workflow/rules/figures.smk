"""Figures of one pair on one benchmark; each as SVG, PDF and PNG with a CSV of its numbers.

REQUIRED INPUTS: the recovery analysis and both landscapes; sidecars of the shards, for what samples took.
OUTPUTS: results/figures/<pair>/<benchmark>/<figure>_<metric>.{svg,pdf,png,csv}
"""


rule figures:
    """Draw everything about one pair on one benchmark."""
    input:
        recovery_content("{pair}", "{benchmark}"),
        get_landscape("base"),
        get_landscape("rl"),
    output:
        list(
            figures(
                "pair", partial(OUT.figure, "{pair}", "{benchmark}"), category="2 {pair}", subcategory="{benchmark}"
            )
        ),
    log:
        layout.log("figures", "{pair}", "{benchmark}"),
    # It takes seconds, less than a cluster needs to start a job and to report its end.
    localrule: True
    conda:
        "../envs/analysis.yaml"
    threads: 1
    resources:
        mem_mb=larger(2000),
        runtime=30,
    params:
        needs=tracked("figures", lambda wildcards: needs.figures(GRID, wildcards.pair, wildcards.benchmark)),
        folder=subpath(output[0], parent=True),
    shell:
        """
        searchlens figures \
            --pair {wildcards.pair:q} \
            --benchmark {wildcards.benchmark:q} \
            --output {params.folder:q} \
            2>&1 | tee {log:q}
        """
