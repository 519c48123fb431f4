"""Loads and validates the configuration, lays out the grid, and defines what rules have in common."""

import io
import sys
from argparse import ArgumentParser
from contextlib import redirect_stderr
from functools import partial
from pathlib import Path

import yaml
from searchlens.config import check
from searchlens.catalogue import (
    BOPTR_WORDS,
    LANDSCAPE_FRAMES,
    LIKELIHOOD_FRAMES,
    PACKAGE,
    MEASURE_FRAMES,
    RECOVERY_FRAMES,
    boptr_frames,
)
from searchlens.errors import InputError
from searchlens.garbage import collect_rarely
from searchlens.plan import Grid, cost, needs
from searchlens.config import addons, project
from searchlens.reporting import captions
from searchlens.cli.stages.source import stage_source
from searchlens.store import layout, provenance, snapshots
from searchlens.store.files import aside
from searchlens.store.files import digest, file_sha256
from searchlens.store.layout import SIGNATURE
from snakemake.cli import parse_args
from snakemake.exceptions import WorkflowError
from snakemake.utils import update_config

collect_rarely()


def get_entries():
    """Entries of `config` in the profile, which Snakemake drops if there is --config, and of --config, by source."""
    options = ArgumentParser(add_help=False, allow_abbrev=False)
    options.add_argument("--config", "-C", nargs="*", action="append")
    options.add_argument("--configfile", "--configfiles", nargs="+", action="append")
    found, others = options.parse_known_args(sys.argv[1:])
    for option, given in vars(found).items():
        if given and len(given) > 1:
            raise WorkflowError(f"--{option} is given {len(given)} times; allowed: once, with all its values behind it")
    if not found.config:
        return {"the profile": workflow.config_settings.config_args}
    with redirect_stderr(io.StringIO()):  # it says once more which profile it uses
        return {"the profile": parse_args(others)[1].config or [], "--config": found.config[0]}


def merged(source, entries):
    """Entries `key=value` as a mapping, read as in a file: Snakemake alone makes texts of numbers inside of mappings."""
    content = {}
    for key, _, value in (entry.partition("=") for entry in entries):
        try:
            update_config(content, {key: yaml.safe_load(value)})
        except yaml.YAMLError:
            raise WorkflowError(
                f"{source}: {key}: {value} is not YAML; put a text in quotes, within those of the shell"
            )
    return content


def read_for_module():
    """The configuration as `snakemake` in a study reads it: Snakemake skips `configfile` where this is a module."""
    overlays = [str(path) for path in workflow.overwrite_configfiles]
    others = [str(path) for path in workflow.configfiles if str(path) not in (*overlays, *check.DEFAULT_FILES)]
    workflow.configfiles[:] = [*overlays, *(ours := check.files(others))]
    try:
        config.clear()
        update_config(config, check.read(ours).merged)
        update_config(config, workflow.config_settings.overwrite_config)
    except InputError as error:
        raise WorkflowError(str(error)) from None


AS_MODULE = not workflow.modifier.is_main_snakefile()
if AS_MODULE:
    read_for_module()
ENTRIES = get_entries()
GIVEN = {source: merged(source, entries) for source, entries in ENTRIES.items()}
for content in GIVEN.values():
    update_config(config, content)
workflow.config_settings.config_args = sum(ENTRIES.values(), [])  # as jobs get them

# Settings of a profile for its cluster, which are no part of the study: how to ask for GPUs, the longest job that the
# cluster takes in minutes, and an image for `--sdm apptainer`.
GPU_REQUEST = config.pop("gpu_request", "gpu")
MAX_MINUTES = config.pop("max_minutes", None)


container: config.pop("container", None)


if GPU_REQUEST != "gpu" and not str(GPU_REQUEST).startswith("gres"):
    raise WorkflowError(f"gpu_request: {GPU_REQUEST!r}; allowed: gpu, gres, or gres:<type>, such as gres:a100")
if MAX_MINUTES is not None and not (isinstance(MAX_MINUTES, int) and MAX_MINUTES > 0):
    raise WorkflowError(f"max_minutes: {MAX_MINUTES!r}; allowed: whole minutes above 0")


def load_grid():
    """The grid of the merged configuration; wrong input ends planning with its own message."""
    try:
        overlays = [str(path) for path in workflow.overwrite_configfiles]  # merged last, although listed first
        ours = [str(path) for path in workflow.configfiles if str(path) not in overlays]
        files = check.read([*ours, *overlays])
        files.contents.update(GIVEN)
        grid = Grid(check.validate(config, files))
        grid.check(sampled=False)
        return grid
    except InputError as error:
        raise WorkflowError(files.named(str(error))) from None


def require_ready():
    """Refuse a run, not a dry run, whose weights or questions are not pinned or not there."""
    try:
        GRID.require_ready()
    except InputError as error:
        raise WorkflowError(str(error)) from None


# The folder of these rules; the Snakefile may lie elsewhere and include them. Of a remote module: the installed one.
WORKFLOW = Path(workflow.current_basedir.get_path_or_uri(secret_free=True)).parent
if not WORKFLOW.is_dir():
    WORKFLOW = project.root() / "workflow"
# Captions: no other rules than those of the report and the explorer run again after an edit of one.
CAPTIONS = [
    path
    for folder in (WORKFLOW / "report", *(addon.captions for addon in addons.addons()))
    for path in sorted(folder.rglob("*.rst"))
]
GRID = load_grid()
OUT = GRID.layout
ADDED = []
"""Files of the stages that add-ons bring, which their rules append."""
snapshots.export(GRID.config)
snapshots.export_code(WORKFLOW / "bin")


wildcard_constraints:
    checkpoint=r"[^/]+",
    benchmark=r"[^/]+",
    pair=r"[^/]+",
    pool=layout.POOL_PATTERN + r"(\.r\d+)?",


def tracked(stage, get_needs):
    """Function of wildcards: hash of a stage's code, of what it takes from the configuration and the plan, of failures."""

    def get_hash(wildcards):
        tries = [tried] if (tried := provenance.tried(OUT.failures(stage, *wildcards))) else []
        return digest([stage_source(stage), needs.hash_of(get_needs(wildcards)), *tries], 16)

    return get_hash


def by_name(cells):
    """The benchmarks of some cells by their checkpoint or pair."""
    names = dict.fromkeys(name for name, _ in cells)
    return {name: [benchmark for each, benchmark in cells if each == name] for name in names}


def landscape_content(checkpoint, benchmark):
    """What other rules depend on of one landscape: the hashes of its files.

    With one file between two stages instead of six, studies of thousands of jobs are planned in less time and memory.
    Equal files have equal hashes; the signature has a time, so that it would run the other rules again for nothing.
    """
    return OUT.landscape(checkpoint, benchmark) / layout.CONTENT


def landscape_files(checkpoint, benchmark):
    """Every file of one landscape, or their pattern."""
    folder, content = OUT.landscape(checkpoint, benchmark), landscape_content(checkpoint, benchmark)
    frames = [OUT.landscape_frame(checkpoint, benchmark, frame) for frame in LANDSCAPE_FRAMES]
    return [*frames, folder / layout.GRADER, content, folder / SIGNATURE]


def recovery_content(pair, benchmark):
    """What other rules depend on of one recovery analysis: the hashes of its files."""
    return OUT.recovery(pair, benchmark) / layout.CONTENT


def recovery_files(pair, benchmark):
    """Every file of one recovery analysis, or their pattern."""
    frames = [OUT.recovery_frame(pair, benchmark, frame) for frame in RECOVERY_FRAMES]
    return [*frames, recovery_content(pair, benchmark), OUT.recovery(pair, benchmark) / SIGNATURE]


def likelihood_files(pair, benchmark):
    """Every file of the cross-likelihoods of one pair, or their pattern."""
    frames = [OUT.likelihood_frame(pair, benchmark, frame) for frame in LIKELIHOOD_FRAMES]
    return [*frames, OUT.likelihood(pair, benchmark) / SIGNATURE]


def score_files(checkpoint, benchmark):
    """Every file of the scores of one cell, or their pattern."""
    scores = OUT.scores(checkpoint, benchmark)
    return [scores, scores.with_suffix(".json")]


def get_landscape_folder(role):
    """Function of wildcards: the landscape folder of a pair's Base or RL checkpoint."""
    return lambda wildcards: OUT.landscape(GRID.study.pairs[wildcards.pair][role], wildcards.benchmark)


def get_landscape(role):
    """Input function: the landscape of a pair's Base or RL checkpoint."""
    return lambda wildcards: landscape_content(GRID.study.pairs[wildcards.pair][role], wildcards.benchmark)


def get_pool(wildcards):
    """The pool that a manifest's name stands for."""
    return GRID.jobs.find_pool(wildcards.checkpoint, wildcards.benchmark, f"{wildcards.pool}.json")


def get_sampling_gpus(wildcards):
    """The checkpoint's GPUs if anything of the pool is missing in the store; none otherwise."""
    return GRID.study.gpus(wildcards.checkpoint) if any(GRID.missing(get_pool(wildcards))) else 0


def get_sampling_threads(wildcards):
    """One core, or two for each engine on a GPU, which also schedules, copies and compiles, and two for what drives them."""
    return 2 * get_sampling_gpus(wildcards) * (GRID.study.engine(wildcards.checkpoint).processes + 1) or 1


def get_pair_gpus(wildcards):
    """The GPUs of a pair's checkpoints, which are loaded one after the other."""
    return max(GRID.study.gpus(checkpoint) for checkpoint in GRID.study.pairs[wildcards.pair].values())


def get_gres(count):
    """GPUs as a generic resource of Slurm, if the cluster takes that: gpu:<count> or gpu:<type>:<count>; otherwise empty."""
    return f"{GPU_REQUEST.replace('gres', 'gpu', 1)}:{count}" if count and GPU_REQUEST != "gpu" else ""


def get_gpu(count):
    """Number of GPUs, if the cluster takes a plain number; otherwise 0."""
    return count if GPU_REQUEST == "gpu" else 0


def longer(minutes):
    """Function of the attempt: minutes, half as many more for each failed attempt, up to the limit of the cluster.

    A job that hit its time limit resumes after its finished chunks, so the next one has less to do and more time.
    """

    def get_runtime(wildcards, attempt):
        runtime = (minutes(wildcards) if callable(minutes) else minutes) * (attempt + 1) // 2
        return min(runtime, MAX_MINUTES) if MAX_MINUTES else runtime

    return get_runtime


def larger(megabytes):
    """Function of the attempt: megabytes, as many more for each failed attempt."""
    return lambda wildcards, attempt: attempt * (megabytes(wildcards) if callable(megabytes) else megabytes)


def shown(paths):
    """The figures and tables that the page shows: one form of each."""
    return [path for path in paths if not path.endswith((".csv", ".json", ".md", ".parquet", ".pdf", ".png", ".tex"))]
