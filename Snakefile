"""`snakemake` in a checkout, and what the Snakefiles of studies include: the workflow of workflow/Snakefile."""


include: "workflow/Snakefile"


workflow.default_target = "all"  # Snakemake takes none from a file that is included
