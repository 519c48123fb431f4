"""Equivalence: our policies against independent implementations, on the Base checkpoint of the first pair.

REQUIRED INPUTS: none; weights, questions, policies and thresholds come from the configuration.
OUTPUTS: results/tables/udf_local, udf_tier34; if that checkpoint runs on vLLM also udf_tier12, udf_engines; each as
{csv,md,tex,html,json}
"""

from searchlens_lab.equivalence import plan as equivalence_plan


rule equivalence:
    """Compare every policy of the section `equivalence` with its references; a failed comparison is shown, not raised."""
    output:
        list(tables("equivalence", category="1 Study")),
        list(tables("equivalence_vllm", category="1 Study")) if equivalence_plan.is_on_vllm(GRID) else [],
    log:
        layout.log("equivalence"),
    benchmark:
        OUT.timing("equivalence")
    # One core, and as long as a sampling job: first, because as the last it would leave the other cores without work.
    priority: 15
    conda:
        str(WORKFLOW / "envs" / "generate.yaml")
    threads: 1
    resources:
        gpu=lambda wildcards: get_gpu(GRID.study.gpus(equivalence_plan.compared(GRID)[0])),
        gres=lambda wildcards: get_gres(GRID.study.gpus(equivalence_plan.compared(GRID)[0])),
        nodes=1,
        mem_mb=larger(lambda wildcards: cost.memory_mb(GRID, equivalence_plan.compared(GRID)[0])),
        runtime=longer(120),
    params:
        needs=tracked("equivalence", lambda wildcards: equivalence_plan.needs(GRID)),
        folder=subpath(output[0], ancestor=2),
    shell:
        """
        searchlens equivalence \
            --output {params.folder:q} \
            --threads {threads} \
            2>&1 | tee {log:q}
        """


ADDED.extend(rules.equivalence.output)
