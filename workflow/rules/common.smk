"""Loads and validates the configuration, lays out the grid, and lists what the whole study consists of."""

from searchlens import config as settings
from searchlens.grid import resources as requests
from searchlens.catalogue import titles
from searchlens.errors import InputError
from searchlens.store import snapshots
from searchlens.store.files import require_writable
from searchlens.grid import Grid, stage_source
from searchlens.store.hashing import canonical
from snakemake.exceptions import WorkflowError

# What a profile says of its cluster, and no part of the study: how GPUs are asked for, the longest job it takes, and an
# image for `--sdm apptainer`.
GPU_REQUEST = config.pop("gpu_request", "gpu")
MAX_MINUTES = config.pop("max_minutes", None)


container: config.pop("container", None)


def require_cluster():
    """Refuse settings of a profile that no cluster has."""
    if GPU_REQUEST != "gpu" and not GPU_REQUEST.startswith("gres"):
        raise WorkflowError(f"gpu_request: {GPU_REQUEST!r}; allowed: gpu, gres, or gres:<type>, such as gres:a100")
    if MAX_MINUTES is not None and not (isinstance(MAX_MINUTES, int) and MAX_MINUTES > 0):
        raise WorkflowError(f"max_minutes: {MAX_MINUTES!r}; allowed: whole minutes above 0")


def load_grid():
    """The grid of the merged configuration; wrong input ends planning with its own message."""
    try:
        for path in workflow.configfiles:
            settings.refuse_repeated(path)
        grid = Grid(settings.plain(settings.validate(config)))
        require_writable(grid.layout.results)
        grid.check()
        return grid
    except InputError as error:
        raise WorkflowError(str(error)) from None


def require_ready():
    """Refuse a run, not a dry run, whose weights or questions are not pinned or not there."""
    try:
        for cell in GRID.cells:
            GRID.require_ready(*cell)
    except InputError as error:
        raise WorkflowError(str(error)) from None


require_cluster()
GRID = load_grid()
RESULTS = GRID.config["results"]
LOGS = "logs"

snapshots.export(GRID.config)

READABLE = titles("metric", drawn=True)
FIGURE_NAMES = [
    f"{figure}_{metric}"
    for figure in (
        "same_policy_lines",
        "gap_map",
        "support_region",
        "recovery",
        "matching_set",
        "compute_frontier",
    )
    for metric in ("P", "Q")
]
TABLE_NAMES = [
    "recovery_summary",
    "recovery_paths",
    "same_policy_counts",
    "operating_points",
    "intervals",
    "udf_cost",
    "provenance",
]
EQUIVALENCE_TABLES = ["udf_local", "udf_tier34"]
if GRID.compared and GRID.config["checkpoints"][GRID.compared[0]]["engine"] == "vllm":
    EQUIVALENCE_TABLES += ["udf_tier12", "udf_engines"]
BOPTR_TABLES = [
    "blocks",
    "regime_betas",
    "horizontal",
    "vertical",
    "decomposition",
    "percell",
    "ablation",
    "qchannel",
    "frontier",
    "coverage_models",
    "coverage_heldout",
    "descriptive",
    "beta_sensitivity",
    "aime_large_budget",
    "seed_replication",
    "formula_same",
    "v4",
    "rule_variants",
    "signatures",
    "readout_consistency",
    "contrasts",
    "nulls",
    "identification",
    "protocol_flags",
    "checklist",
    "offsets",
]
BOPTR_FIGURES = [
    "beta_robustness",
    "horizontal",
    "vertical",
    "parameters",
    "v4_null",
    "frontier",
    "crossing",
    "pipeline",
    "udf",
]
BOPTR_FRAMES = (
    "errors means contrasts nulls blocks regime_betas beta_stability beta_sensitivity percell qchannel q_summary"
    " formula_same identified_scale identified_set offsets v4 v4_null v4_summary probe aime_large_budget crossing"
    " extension seed_replication seed_summary readout_consistency descriptive signatures signature_table"
    " protocol_flags checklist rule_variants variant_scales variant_heads held_out_criterion"
).split()
RECOVERY_NAMES = ["same_policy", "counts", "support", "near_match", "path", "geometry"]

MANIFESTS = [str(path) for cell in GRID.cells for path in GRID.manifests(*cell)]
LANDSCAPES = [f"{RESULTS}/landscape/{c}/{b}/{part}.parquet" for c, b in GRID.cells for part in ("points", "hits")]
DRAWN = GRID.config["study"]["figures"]
FIGURES = [
    f"{RESULTS}/figures/{p}/{b}/{figure}.svg"
    for p, b in GRID.pair_cells
    for figure in FIGURE_NAMES
    if DRAWN == "all" or f"{p}/{b}" in DRAWN
]
TABLES = [f"{RESULTS}/tables/{table}.csv" for table in TABLE_NAMES] if GRID.pair_cells else []
EQUIVALENCE = [f"{RESULTS}/tables/{table}.csv" for table in EQUIVALENCE_TABLES] if GRID.compared else []
BOPTR = (
    []
    if GRID.without_boptr
    else [
        *(f"{RESULTS}/tables/{table}.csv" for table in BOPTR_TABLES),
        *(f"{RESULTS}/figures/boptr/{figure}.svg" for figure in BOPTR_FIGURES),
    ]
)


wildcard_constraints:
    model=r"[^/]+",
    benchmark=r"[^/]+",
    pair=r"[^/]+",
    pool=r"pool-[0-9a-f]{8}(\.r\d+)?",


def landscape_folder(role):
    """Function of wildcards: the landscape folder of a pair's Base or RL checkpoint."""

    def folder(wildcards):
        return f"{RESULTS}/landscape/{GRID.pairs[wildcards.pair][role]}/{wildcards.benchmark}"

    return folder


def landscape_of(role):
    """Input function: the landscape files of a pair's Base or RL checkpoint."""

    def files(wildcards):
        return [f"{landscape_folder(role)(wildcards)}/{part}.parquet" for part in ("points", "hits")]

    return files


def options(stage, *sections):
    """What a stage depends on besides its input, as one string: its source and its sections of the configuration."""
    return canonical({"source": stage_source(stage), **{key: GRID.config[key] for key in sections}})


def pool_of(wildcards):
    """The pool that a manifest's name stands for."""
    return GRID.find_pool(wildcards.model, wildcards.benchmark, f"{wildcards.pool}.json")


def gpus_of(model):
    """GPUs that a checkpoint's engine runs on."""
    spec = GRID.config["checkpoints"][model]
    return spec["vllm"]["tensor_parallel"] if spec["device"] == "cuda" else 0


def gpu(count):
    """Number of GPUs, where the cluster wants them asked for as such."""
    return count if GPU_REQUEST == "gpu" else 0


def gres(count):
    """The same as a generic resource of Slurm, where it wants that: gpu:<count> or gpu:<type>:<count>."""
    return f"{GPU_REQUEST.replace('gres', 'gpu', 1)}:{count}" if count and GPU_REQUEST != "gpu" else ""


def gpus_to_sample(wildcards):
    """The checkpoint's GPUs where the store lacks something of the pool; none otherwise."""
    return gpus_of(wildcards.model) if any(True for _ in GRID.lacking(pool_of(wildcards))) else 0


def sampling_gpu(wildcards):
    """``gpu`` of a sampling job."""
    return gpu(gpus_to_sample(wildcards))


def sampling_gres(wildcards):
    """``gres`` of a sampling job."""
    return gres(gpus_to_sample(wildcards))


def cores(wildcards):
    """CPU cores: one, or four for each GPU, whose engine schedules, copies and compiles beside the samples' own work."""
    return 4 * gpus_to_sample(wildcards) or 1


def longer(minutes):
    """Function of the attempt: minutes, half as many again for each attempt that failed, up to what the cluster takes.

    A job that met its limit goes on behind its finished chunks, so the next one has less to do and more time for it.
    """

    def runtime(wildcards, attempt):
        asked = (minutes(wildcards) if callable(minutes) else minutes) * (attempt + 1) // 2
        return min(asked, MAX_MINUTES) if MAX_MINUTES else asked

    return runtime


def larger(megabytes):
    """Function of the attempt: megabytes, as many again for each attempt that failed."""

    def memory(wildcards, attempt):
        return attempt * (megabytes(wildcards) if callable(megabytes) else megabytes)

    return memory


def planned_minutes(wildcards):
    """Wall time of a sampling job, by what the store lacks."""
    return requests.minutes(GRID, pool_of(wildcards))


def host_memory(wildcards):
    """Main memory of a sampling job, by its weights."""
    return requests.memory_mb(GRID, wildcards.model)


def cell_manifests(wildcards):
    """Input function: the current manifests of a cell."""
    return GRID.manifests(wildcards.model, wildcards.benchmark)


def cell_imports(wildcards):
    """Input function: records of a cell's imported samples."""
    return GRID.import_records(wildcards.model, wildcards.benchmark)


def names_and_options(wildcards):
    """Policy names by generation and the golds in use: a renamed policy or a corrected gold is graded anew."""
    golds = GRID.content_hash(wildcards.benchmark)
    names = {g.id: g.policies for g in GRID.generations(wildcards.model, wildcards.benchmark)}
    return canonical({"golds": golds, "names": names, "options": options("score", "landscape")})


def graded(wildcards):
    """Input function: graded samples of a cell."""
    return GRID.scores(wildcards.model, wildcards.benchmark)


def read_budgets(wildcards):
    """The budgets at which a benchmark's landscape is read, as one string."""
    return canonical(GRID.read_budgets(wildcards.benchmark))


def cohort(wildcards):
    """The cohort that the study makes up, as one string."""
    return canonical(GRID.cohort_plan())


def boptr_output(kind, name):
    """A table or a figure of the BOPTR stage, listed in the report."""
    path = {"table": f"tables/{name}.csv", "figure": f"figures/boptr/{name}.svg"}[kind]
    return report(
        f"{RESULTS}/{path}",
        caption=f"../report/{kind}s/{name}.rst",
        category="BOPTR",
        subcategory=f"{kind}s",
        labels={kind: name.replace("_", " ")},
    )


def parameters(wildcards):
    """Number of parameters of either model of a pair, as one string."""
    return canonical(GRID.config["pairs"].get(wildcards.pair, {}).get("parameters"))


def figure_output(name):
    """One figure, listed in the report under its pair and benchmark."""
    figure, metric = name.rsplit("_", 1)
    return report(
        f"{RESULTS}/figures/{{pair}}/{{benchmark}}/{name}.svg",
        caption=f"../report/figures/{figure}.rst",
        category="{pair}",
        subcategory="{benchmark}",
        labels={"figure": figure.replace("_", " "), "metric": READABLE[metric]},
    )


def compared(wildcards):
    """What policies are compared on and how they resolve, as one string."""
    model, benchmark = GRID.compared
    policies = {name: GRID.policy(name).resolved() for name in GRID.config["equivalence"]["policies"]}
    golds = GRID.content_hash(benchmark)
    weights, engine = GRID.fingerprint(model), GRID.config["checkpoints"][model]["engine"]
    return canonical({"weights": weights, "engine": engine, "golds": golds, "policies": policies})


def gpu_to_compare(wildcards):
    """``gpu`` of the comparison."""
    return gpu(gpus_of(GRID.compared[0]))


def gres_to_compare(wildcards):
    """``gres`` of the comparison."""
    return gres(gpus_of(GRID.compared[0]))


def memory_to_compare(wildcards):
    """Main memory of the compared checkpoint's engine."""
    return requests.memory_mb(GRID, GRID.compared[0])
