"""searchlens: from checkpoints and questions to tables, figures and a report.

    snakemake                                     the study of config/, on this machine; config/own.yaml is merged last
    snakemake --configfile config/demo.yaml       the same at laptop size
    snakemake --profile slurm                     on a cluster
    snakemake results/landscape/<checkpoint>/<benchmark>/points.parquet     one cell

Stages, one file each under workflow/rules/, in this order: generate, score, agreement, landscape, recovery; estimates,
the latter two for recorded cells; likelihood, measures, figures, overview, tables, boptr (with transfer), those of add-ons
such as equivalence, explorer, report.
"""

from pathlib import Path

from searchlens.config.project import OWN_FILE
from snakemake.utils import min_version

min_version("9.20")


configfile: "config/config.yaml"
configfile: "config/models.yaml"
configfile: "config/benchmarks.yaml"
configfile: "config/policies.yaml"
configfile: "config/boptr.yaml"


if Path(OWN_FILE).exists():

    configfile: OWN_FILE


include: "workflow/rules/common.smk"
include: "workflow/rules/outputs.smk"
include: "workflow/rules/generate.smk"
include: "workflow/rules/score.smk"
include: "workflow/rules/agreement.smk"
include: "workflow/rules/landscape.smk"
include: "workflow/rules/recovery.smk"


if GRID.study.recorded_counts:

    include: "workflow/rules/recorded_counts.smk"


if GRID.jobs.likelihood_cells:

    include: "workflow/rules/likelihood.smk"


if GRID.study.pair_cells:

    include: "workflow/rules/measures.smk"
    include: "workflow/rules/figures.smk"
    include: "workflow/rules/overview.smk"
    include: "workflow/rules/tables.smk"


if not GRID.study.without_boptr:

    include: "workflow/rules/boptr.smk"


# Each appends what it makes to ADDED.
for name in addons.made(GRID):

    include: str(addons.stages()[name].rules)


if GRID.study.pair_cells:

    include: "workflow/rules/explorer.smk"
    include: "workflow/rules/report.smk"


report: "workflow/report/workflow.rst"


onstart:
    require_ready()
    snapshots.save(GRID.config)
    for reason in GRID.jobs.without_likelihoods:
        print(f"No cross-likelihoods of {reason}.")
    for notice in GRID.inputs.unknown_wordings:
        print(f"{notice}.")
    if GRID.study.without_boptr:
        print(f"BOPTR is left out: {GRID.study.without_boptr}.")
    if moved := aside(OUT, left_out()):
        print(
            f"Results of an earlier run, which this study leaves out, are now in {OUT.results}/aside: {len(moved)} paths."
        )


onsuccess:
    if GRID.study.not_made:
        raise WorkflowError("\n".join(["Everything else is made, but not:", *GRID.study.not_made]))


onerror:
    print(f"Something failed; finished samples are kept. Logs: {layout.LOGS}/<stage>/...")


localrules:
    all,
    samples,
    landscapes,


rule all:
    """Every output of every rule, so that one that was deleted is made again."""
    input:
        [*rules.measures.output, *rules.tables.output, *rules.overview.output] if GRID.study.pair_cells else [],
        [
            path
            for cell in GRID.study.drawn_cells
            for path in expand(rules.figures.output, pair=cell[0], benchmark=cell[1])
        ],
        [] if GRID.study.without_boptr else [*rules.boptr.output, *rules.transfer.output],
        ADDED,
        [*rules.explorer.output, *rules.report_page.output] if GRID.study.pair_cells else [],
        [path for cell in GRID.study.pair_cells for path in recovery_files(*cell)],
        [path for cell in GRID.study.cells for path in landscape_files(*cell)],
        [path for cell in GRID.study.cells if cell not in GRID.study.recorded_counts for path in score_files(*cell)],
        [OUT.agreement(*cell) for cell in GRID.study.agreement_cells],
        [path for cell in GRID.jobs.likelihood_cells for path in likelihood_files(*cell)],
        [path for cell in GRID.study.cells for path in GRID.manifests(*cell)],


rule samples:
    """Sampling only: every manifest of the study."""
    input:
        [path for cell in GRID.study.cells for path in GRID.manifests(*cell)],


rule landscapes:
    """Everything up to the landscapes, for studies with no pair to compare."""
    input:
        [path for cell in GRID.study.cells for path in landscape_files(*cell)],
        [path for cell in GRID.study.cells for path in GRID.manifests(*cell)],
