"""Files to files: each stage's inputs read, its pure functions called, its outputs written.

The command line and the rules call these and nothing else. Beside reading and writing, the study's costs are gathered
from the shards and its interval widths summarised.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl

from searchlens.benchmarks import asked_hash, dumps
from searchlens.catalogue import titles
from searchlens.errors import InputError
from searchlens.grid import Generation, Grid, Import
from searchlens.policies import kinds
from searchlens.readers.own import read_samples
from searchlens.store import files, layout, provenance, shards
from searchlens.store.files import read_json
from searchlens.store.hashing import digest, file_sha256
from searchlens.store.ranges import Shard, shards_of

log = logging.getLogger(__name__)

_GRADED_COLUMNS = ("question", "sample", "text", "run", "n_tokens", "generated", "score", "finish")


def write_table(frame: pl.DataFrame, path: Path) -> None:
    """A derived Parquet table, in place of an older one."""
    files.replace(path, lambda temporary: frame.write_parquet(temporary, compression="zstd"))


def _signed(beside: Path) -> dict[str, Any] | None:
    """What the samples of a derived file took; None where nobody says."""
    return read_json(beside).get("samples") if beside.exists() else None


SIGNATURE = "provenance.json"
"""Beside the files of a folder that are made together."""


# ---- score


def _named(samples: pl.DataFrame, names: Iterable[str]) -> list[pl.DataFrame]:
    raw = samples.select(
        "question",
        "sample",
        "run",
        "text",
        tokens=pl.col("n_tokens"),
        generated=pl.col("generated"),
        stopped=pl.col("finish") == "stop",
        score=pl.col("score"),
    )
    return [raw.select(pl.lit(name).alias("policy"), pl.all()) for name in names]


def _cell_samples(grid_: Grid, checkpoint: str, benchmark: str, manifests: Iterable[Path]) -> pl.DataFrame:
    """Raw samples of a cell, by policy; the ids come from the manifests, never from a configuration edited since."""
    parts: list[pl.DataFrame] = []
    names = {g.id: g.policies for g in grid_.generations(checkpoint, benchmark)}
    entries: dict[str, dict[str, Any]] = {}
    for entry in (entry for path in manifests for entry in read_json(path)["generations"]):
        known = entries.setdefault(entry["id"], entry)
        known["samples"] = max(known["samples"], entry["samples"])  # a stream may be made by several jobs
    for key, entry in entries.items():
        samples = shards.read_generation(
            grid_.folder(checkpoint, benchmark, key), key, entry["samples"], _GRADED_COLUMNS
        )
        parts += _named(samples, names.get(key, entry["policies"]))
    for item in grid_.imported(checkpoint, benchmark):
        folder = grid_.folder(checkpoint, benchmark, item.id)
        parts += _named(shards.read_generation(folder, item.id, item.samples, _GRADED_COLUMNS), [item.policy])
    if not parts:
        raise InputError(f"{checkpoint}/{benchmark} has no samples to grade")
    return pl.concat(parts)


def score_cell(
    grid_: Grid, checkpoint: str, benchmark: str, manifests: Iterable[Path], output: Path, *, threads: int = 1
) -> None:
    """Grade one cell; ``threads``: processes of the grader."""
    from searchlens.grading.score import score_samples

    samples = _cell_samples(grid_, checkpoint, benchmark, manifests)
    scored = score_samples(
        samples,
        grid_.questions(benchmark),
        grid_.benchmark(benchmark)["grader"],
        grid_.layout.results / "verdicts" / benchmark,
        policies=samples["policy"].unique(maintain_order=True).to_list(),
        q_instructions=grid_.config["landscape"]["q_instructions"],
        workers=threads,
    )
    write_table(scored.scores, output)
    sidecars = (sidecar for _, sidecar in _sidecars(grid_, checkpoint, benchmark))
    provenance.sign(output.with_suffix(".json"), grid_.config, provenance.spent(sidecars))
    log.info("%s/%s: %s", checkpoint, benchmark, scored.summary)


def _record_cell(grid_: Grid, checkpoint: str, benchmark: str, target: Path) -> None:
    """Keep the readouts of one scored cell."""
    from searchlens.landscape.compact import compact
    from searchlens.store import readouts

    graded = pl.read_parquet(grid_.scores(checkpoint, benchmark))
    told: dict[str, list[Mapping[str, Any]]] = {}
    for generation, sidecar in _sidecars(grid_, checkpoint, benchmark):
        told.setdefault(generation.policies[0], []).append(sidecar)
    kept = compact(
        graded,
        _votes(grid_, graded),
        budgets=grid_.read_budgets(benchmark),
        options=landscape_options(dict(grid_.config)),
    )
    readouts.write(kept, told, target, grid_.readouts_from(checkpoint, benchmark))


def record(grid_: Grid, output: Path) -> tuple[list[Path], list[str]]:
    """Keep the compact readouts of every sampled cell whose scores are there and current.

    Returns
    -------
    written : list of Path
    unfinished : list of str
        Cells that have to be sampled or scored first.
    """
    written, unfinished = [], []
    for cell in grid_.cells:
        if grid_.source(*cell) != "sampled":
            continue
        if not _is_scored(grid_, *cell):
            unfinished.append("/".join(cell))
            continue
        written.append(layout.readouts(output, *cell))
        _record_cell(grid_, *cell, written[-1])
    return written, unfinished


def _is_scored(grid_: Grid, checkpoint: str, benchmark: str) -> bool:
    """Whether all samples of a cell are there, and none is newer than its scores."""
    scores, manifests = grid_.scores(checkpoint, benchmark), grid_.manifests(checkpoint, benchmark)
    if not all(path.exists() for path in (scores, *manifests)):
        return False
    return all(path.stat().st_mtime_ns <= scores.stat().st_mtime_ns for path in manifests)


# ---- landscape and recovery


def landscape_options(config: dict[str, Any]) -> Any:
    """The typed options of the landscape stage."""
    from searchlens.landscape.options import LandscapeOptions

    return LandscapeOptions(**config["landscape"], seed=config["seed"])


def landscape_cell(grid_: Grid, benchmark: str, scores: Path, output: Path) -> None:
    """Operating points of one cell of a benchmark, from its graded samples or its compact readouts."""
    found, votes, spent = (_from_scores if scores.suffix == ".parquet" else _from_readouts)(grid_, benchmark, scores)
    write_table(found.points, output / "points.parquet")
    write_table(found.hits, output / "hits.parquet")
    provenance.sign(output / SIGNATURE, grid_.config, spent)
    if votes is not None:
        write_table(votes, output / "votes.parquet")
        log.info(
            "votes by class and by plain string differ by at most %.4f", (votes["Q"] - votes["Q_plain"]).abs().max()
        )
    log.info("%s: %d operating points", scores, found.points.height)


def _from_scores(grid_: Grid, benchmark: str, scores: Path) -> tuple[Any, pl.DataFrame | None, Any]:
    """Landscape, votes, and what the samples took."""
    from searchlens.landscape.points import operating_points

    graded = pl.read_parquet(scores)
    found = operating_points(
        graded,
        budgets=grid_.read_budgets(benchmark),
        options=landscape_options(dict(grid_.config)),
        smallest=_smallest(grid_, graded["policy"].unique(maintain_order=True)),
    )
    return found, _votes(grid_, graded), _signed(scores.with_suffix(".json"))


def _from_readouts(grid_: Grid, _: str, path: Path) -> tuple[Any, pl.DataFrame | None, Any]:
    """The same, where samples are not kept."""
    from searchlens.landscape.expand import expand
    from searchlens.store import readouts

    kept = readouts.read(path)
    options, smallest = landscape_options(dict(grid_.config)), _smallest(grid_, kept["policy"])
    found, votes = expand(kept, options=options, smallest=smallest)
    return (
        found,
        None if votes.is_empty() else votes,
        provenance.spent(chain.from_iterable(readouts.sidecars(kept).values())),
    )


def _smallest(grid_: Grid, names: Iterable[str]) -> dict[str, int]:
    """The fewest samples at which each policy can be read."""
    known = {name: grid_.policy(name) for name in names}
    return {name: policy.smallest_budget for name, policy in known.items() if policy}


def _votes(grid_: Grid, graded: pl.DataFrame) -> pl.DataFrame | None:
    """Votes over both kinds of classes; None where others graded, without plain strings."""
    from searchlens.landscape.plain import plain_votes

    if "plain" not in graded.columns:
        return None
    return plain_votes(graded, budgets=grid_.config["budgets"], ties=grid_.config["landscape"]["ties"])


def _within(grid_: Grid, path: Path) -> pl.DataFrame:
    """A landscape file at the budgets of B; BOPTR alone reads beyond."""
    return pl.read_parquet(path).filter(pl.col("budget").is_in(grid_.config["budgets"]))


def _read_landscape(grid_: Grid, folder: Path) -> Any:
    """A landscape without references."""
    from searchlens.landscape.points import Landscape

    kept = ~pl.col("policy").is_in(grid_.config["references"])
    return Landscape(*(_within(grid_, folder / f"{name}.parquet").filter(kept) for name in ("points", "hits")))


def recovery_options(config: dict[str, Any]) -> Any:
    """The typed options of the recovery stage; its draws are the landscape's."""
    from searchlens.recovery.options import RecoveryOptions

    shared = {key: config["landscape"][key] for key in ("draws", "confidence")}
    return RecoveryOptions(**config["recovery"], **shared, default_policy=config["default_policy"], seed=config["seed"])


def recovery_cell(grid_: Grid, base: Path, rl: Path, output: Path) -> None:
    """Compare the landscapes of a pair; references such as greedy are not among the policies compared."""
    from searchlens.recovery.tables import recover

    ours, theirs = _read_landscape(grid_, base), _read_landscape(grid_, rl)
    names = ours.points["policy"].unique(maintain_order=True).to_list()
    components = {name: policy.components if (policy := grid_.policy(name)) else (name,) * 5 for name in names}
    for name, frame in recover(ours, theirs, components, recovery_options(dict(grid_.config))).items():
        write_table(frame, output / f"{name}.parquet")
    provenance.sign(
        output / SIGNATURE, grid_.config, provenance.together(_signed(side / SIGNATURE) for side in (base, rl))
    )
    log.info("%s against %s: %d policies", base, rl, len(names))


def boptr_options(config: dict[str, Any], benchmarks: Collection[str]) -> Any:
    """The typed options of the BOPTR stage for a cohort of these benchmarks."""
    from pydantic import TypeAdapter

    from searchlens.boptr.options import BoptrOptions

    return TypeAdapter(BoptrOptions).validate_json(json.dumps(config["boptr"])).on(benchmarks)


def cohort_plan(grid_: Grid, landscape: Path) -> Any:
    """The cohort that a folder of landscapes describes (``cohort.yaml`` in it), or else that of the configuration.

    Raises
    ------
    InputError
        The file is malformed, or the study has no BOPTR stage.
    """
    from pydantic import TypeAdapter

    from searchlens.boptr.cohort import PLAN_FILE, CohortPlan, read_plan

    if (landscape / PLAN_FILE).exists():
        return read_plan(landscape / PLAN_FILE)
    if grid_.without_boptr:
        raise InputError(f"no BOPTR for this study: {grid_.without_boptr}", "config/README.md: boptr.anchor, regime")
    return TypeAdapter(CohortPlan).validate_json(json.dumps(grid_.cohort_plan()))


def boptr_study(
    plan: Any,
    options: Any,
    landscape: Path,
    output: Path,
    *,
    figures: bool = True,
    config: Mapping[str, Any] | None = None,
) -> None:
    """The BOPTR analysis of a folder of landscapes: its frames, tables and figures.

    Raises
    ------
    InputError
        The anchor was not sampled, or a landscape is damaged. Nothing was written.
    """
    from searchlens.boptr.cohort import read_cohort
    from searchlens.boptr.study import study
    from searchlens.figures import build as figures_of
    from searchlens.figures.boptr.context import FigureContext
    from searchlens.tables.boptr.context import TableContext
    from searchlens.tables.build import build
    from searchlens.tables.table import write

    cohort = read_cohort(landscape, plan)
    log.info(
        "%d landscapes of %d models on %d benchmarks", len(cohort.landscapes), len(plan.models), len(plan.benchmarks)
    )
    frames = study(cohort, options)
    for name, frame in frames.items():
        write_table(frame, output / "boptr" / f"{name}.parquet")
    spent = provenance.together(_signed(path) for path in sorted(landscape.glob(f"*/*/{SIGNATURE}")))
    provenance.sign(output / "boptr" / SIGNATURE, config, spent)
    for name, table in build("boptr", TableContext(frames, plan, options)).items():
        write(table, output / "tables" / name)
        provenance.sign(output / "tables" / f"{name}.json", config, spent)
    if figures:
        context = FigureContext(frames=frames, plan=plan, confidence=options.confidence)
        figures_of.write("boptr", context, output / "figures" / "boptr")


# ---- figures and tables


def _source(grid_: Grid, pair: str, benchmark: str) -> str:
    return grid_.least_direct((checkpoint, benchmark) for checkpoint in grid_.pairs[pair].values())


def _searched(grid_: Grid, names: Iterable[str]) -> bool:
    policies = {name: policy for name in names if (policy := grid_.policy(name))}
    return any(kinds.is_search(name, policies) for name in names)


def _labels(grid_: Grid, pair: str, benchmark: str, points: pl.DataFrame) -> Any:
    from searchlens.figures.context import Labels

    config = grid_.config
    named = {name: grid_.policy(name) for name in config["policies"]}
    return Labels(
        pair=pair,
        benchmark=grid_.benchmark(benchmark)["title"] or benchmark,
        questions=int(points["questions"][0]),
        source=_source(grid_, pair, benchmark),  # type: ignore[arg-type]
        default_policy=config["default_policy"],
        epsilon=config["recovery"]["epsilon"],
        quantile=config["recovery"]["support_q"],
        confidence=config["landscape"]["confidence"],
        policies={name: policy for name, policy in named.items() if policy},
        parameters=config["pairs"].get(pair, {}).get("parameters"),
    )


def _landscape_folder(grid_: Grid, pair: str, role: str, benchmark: str) -> Path:
    folder: Path = grid_.layout.results / "landscape" / grid_.pairs[pair][role] / benchmark
    return folder


def figures_cell(grid_: Grid, pair: str, benchmark: str, output: Path) -> None:
    """Every figure of one pair on one benchmark, for P and Q."""
    from searchlens.figures import build
    from searchlens.figures.context import PairContext

    base, rl = (
        _within(grid_, _landscape_folder(grid_, pair, role, benchmark) / "points.parquet") for role in ("base", "rl")
    )
    labels, tokens = _labels(grid_, pair, benchmark, base), prefill(grid_, pair, benchmark)
    context = PairContext.read(labels, base, rl, tokens, grid_.layout.results / "recovery" / pair / benchmark)
    paths = build.write("pair", context, output)
    log.info("%s/%s: %d files of figures in %s", pair, benchmark, len(paths), output)


def _pass_curves(grid_: Grid, output: Path) -> None:
    from searchlens.figures import build
    from searchlens.figures.context import Curves, StudyContext

    cells = []
    for pair, benchmark in grid_.pair_cells:
        base, rl = (
            _within(grid_, _landscape_folder(grid_, pair, role, benchmark) / "points.parquet")
            for role in ("base", "rl")
        )
        cells.append(Curves(_labels(grid_, pair, benchmark, base), base, rl))
    build.write("study", StudyContext(cells), output / "figures")


def _sidecars(grid_: Grid, checkpoint: str, benchmark: str) -> Iterator[tuple[Generation, Mapping[str, Any]]]:
    """What making each shard of a cell took: of a sampled one, or as its compact readouts say."""
    if (path := grid_.readouts.get((checkpoint, benchmark))) is not None:
        from searchlens.store import readouts

        told = readouts.sidecars(readouts.read(path))
        for generation in grid_.streams(checkpoint, benchmark):
            yield from ((generation, sidecar) for name in generation.policies for sidecar in told[name])
        return
    for generation in grid_.generations(checkpoint, benchmark):
        for shard in shards_of(grid_.folder(checkpoint, benchmark, generation.id)):
            yield generation, shard.sidecar


def prefill(grid_: Grid, pair: str, benchmark: str) -> pl.DataFrame:
    """Tokens that were computed but not generated, per policy: what FLOPs hold beside the generated tokens.

    Returns
    -------
    DataFrame
        model (``Base`` or ``RL``), policy; prompt: mean tokens of a question's prompt, computed once for all its
        samples; again: tokens of prompts and prefixes computed beyond that, per generated token. Policies without
        shards, or with a shard that does not tell, have no row.
    """
    columns = {"model": pl.String(), "policy": pl.String(), "prompt": pl.Float64(), "again": pl.Float64()}
    rows: list[tuple[str, str, float, float]] = []
    for role, model in (("base", "Base"), ("rl", "RL")):
        told: dict[str, list[Mapping[str, Any]]] = {}
        sampled = []
        for generation, sidecar in _sidecars(grid_, grid_.pairs[pair][role], benchmark):
            if generation.spec["policy"]["controller"]["name"] == "autoregressive":
                sampled.append(sidecar)
            for name in generation.policies:
                told.setdefault(name, []).append(sidecar)
        prompt = _prompt_tokens(sampled)
        for name, parts in told.items():
            if prompt and all(map(_given, parts)):
                beyond = sum(part["prefilled"] - prompt * len(grid_.questions(benchmark)) for part in parts)
                again = max(0.0, beyond) / max(1, sum(part["generated"] for part in parts))
                rows.append((model, name, prompt, again))
    return pl.DataFrame(rows, columns, orient="row")


def _given(sidecar: Mapping[str, Any]) -> int:
    """Tokens of prompts and prefixes that an engine was asked to go on from; 0 where it is not told."""
    return int(sidecar.get("prefilled", 0) + sidecar.get("reused", 0))


def _prompt_tokens(sampled: Iterable[Mapping[str, Any]]) -> float:
    """Mean tokens of a prompt: autoregressive samples are one request each, and go on from nothing else."""
    known = [sidecar for sidecar in sampled if _given(sidecar)]
    return sum(map(_given, known)) / sum(sidecar["rows"] for sidecar in known) if known else 0.0


def costs(grid_: Grid) -> pl.DataFrame:
    """One row per shard that this study uses: what sampling it took.

    Returns
    -------
    DataFrame
        checkpoint, benchmark, policy, controller, and what ``shards.publish`` and ``shards.Provenance`` tell: rows,
        tokens (returned), generated, requests, prefilled, reused, mean_running, wall_seconds, device, device_count.
        Null is what an older sidecar does not tell; an autoregressive sample is one request and returns what it
        generates. Imported samples cost nothing here and are left out, and so is what was recorded without sidecars.
    """
    rows = []
    for checkpoint, benchmark in grid_.cells:
        for generation, sidecar in _sidecars(grid_, checkpoint, benchmark):
            told: dict[str, Any] = {key: sidecar.get(key) for key in _COST}
            told["mean_running"] = told["mean_running"] or None
            controller = generation.spec["policy"]["controller"]["name"]
            if controller == "autoregressive":
                told |= {"generated": sidecar["tokens"], "requests": sidecar["rows"]}
            names = {"checkpoint": checkpoint, "benchmark": benchmark, "policy": generation.policies[0]}
            rows.append({**names, "controller": controller, **told})
    return pl.DataFrame(
        rows, schema={**dict.fromkeys(("checkpoint", "benchmark", "policy", "controller"), pl.String()), **_COST}
    )


_COST = {
    "rows": pl.Int64(),
    "tokens": pl.Int64(),
    "generated": pl.Int64(),
    "requests": pl.Int64(),
    "prefilled": pl.Int64(),
    "reused": pl.Int64(),
    "mean_running": pl.Float64(),
    "wall_seconds": pl.Float64(),
    "device": pl.String(),
    "device_count": pl.Int64(),
}


def model_names(grid_: Grid) -> dict[str, str]:
    """What the cost table calls checkpoints: Base and RL, with the first of their pairs where there are several.

    Repeats with other seeds are checkpoints of their own: ``Base anchor, batch 123``.
    """
    several = len(grid_.pairs) > 1
    sides = {"base": "Base", "rl": "RL"}
    names: dict[str, str] = {}
    for pair, roles in grid_.pairs.items():
        batches = grid_.config["pairs"].get(pair, {}).get("batches", {})
        for role, side in sides.items():
            name = f"{side} {pair}" if several else side
            again = {f"{name}, batch {batch}": made[role] for batch, made in batches.items()}
            for called, checkpoint in ({name: roles.get(role)} | again).items():
                if checkpoint:
                    names.setdefault(checkpoint, called)
    return names


def half_widths(points: dict[tuple[str, str], pl.DataFrame], without: Iterable[str] = ()) -> pl.DataFrame:
    """Median half-width of the intervals over policies, per cell, metric, readout and budget."""
    parts = [
        frame.filter(pl.col("metric").is_in(["P", "Q"]), ~pl.col("policy").is_in(list(without)))
        .group_by("metric", "readout", "budget", "questions", maintain_order=True)
        .agg(half_width=((pl.col("hi") - pl.col("lo")) / 2).median())
        .select(pl.lit(checkpoint).alias("checkpoint"), pl.lit(benchmark).alias("benchmark"), pl.all())
        for (checkpoint, benchmark), frame in points.items()
    ]
    return pl.concat(parts)


def _spent_by_checkpoint(grid_: Grid) -> dict[str, dict[str, Any]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for checkpoint, benchmark in grid_.cells:
        for _, sidecar in _sidecars(grid_, checkpoint, benchmark):
            found.setdefault(checkpoint, []).append(sidecar)
    return {checkpoint: provenance.spent(sidecars) for checkpoint, sidecars in found.items()}


def _cell(grid_: Grid, pair: str, benchmark: str, points: Mapping[tuple[str, str], pl.DataFrame]) -> Any:
    from searchlens.tables.study import Cell

    folder = grid_.layout.results / "recovery" / pair / benchmark
    frames = {
        name: pl.read_parquet(folder / f"{name}.parquet") for name in ("same_policy", "counts", "support", "path")
    }
    searched = _searched(grid_, points[grid_.pairs[pair]["base"], benchmark]["policy"].unique())
    return Cell(pair, benchmark, **frames, searched=searched)


def write_tables(grid_: Grid, output: Path) -> None:
    """Tables of the whole study and its headline figure."""
    from searchlens.tables.build import build
    from searchlens.tables.study import StudyContext
    from searchlens.tables.table import write

    points = {
        (c, b): _within(grid_, grid_.layout.results / f"landscape/{c}/{b}/points.parquet") for c, b in grid_.cells
    }
    cells = [_cell(grid_, pair, benchmark, points) for pair, benchmark in grid_.pair_cells]
    spent = _spent_by_checkpoint(grid_)
    context = StudyContext(
        default_policy=grid_.config["default_policy"],
        cells=cells,
        points=points,
        widths=half_widths(points, grid_.config["references"]),
        costs=costs(grid_),
        models=model_names(grid_),
        spent=spent,
        made=provenance.made(grid_.config),
    )
    for name, table in build("study", context).items():
        write(table, output / "tables" / name)
        provenance.sign(output / "tables" / f"{name}.json", grid_.config, provenance.together(spent.values()))
    _pass_curves(grid_, output)


def _summary_line(grid_: Grid, row: dict[str, Any]) -> str:
    cell, source = f"{row['pair']}/{row['benchmark']}", _source(grid_, row["pair"], row["benchmark"])
    if row["gap_first"] is None:
        return f"  {cell}: {grid_.config['default_policy']} was not sampled from both models"
    gaps = "   ".join(
        f"N={row[f'{which}_budget']}: {100 * row[f'gap_{which}']:+6.1f}"
        f" [{100 * row[f'gap_{which}_lo']:+.1f}, {100 * row[f'gap_{which}_hi']:+.1f}]"
        for which in ("first", "last")
    )
    return f"  {cell:20} {gaps}   RL inside Base's support at {row['inside']}/{row['budgets']} budgets ({source})"


def summarise(grid_: Grid) -> str:
    """The study in a few lines, from its tables."""
    tables = grid_.layout.results / "tables"
    if not (tables / "recovery_summary.csv").exists():
        raise InputError(f"{tables} has no tables yet", "run snakemake first")
    found = pl.read_csv(tables / "recovery_summary.csv").filter(pl.col("metric") == "P")
    widths = pl.read_csv(tables / "intervals.csv").filter(pl.col("metric") == "P", pl.col("readout") == "prefix")
    title = titles("metric")["P"]
    lines = [f"Base - RL under {grid_.config['default_policy']}, {title}, in percentage points (95% interval):"]
    lines += [_summary_line(grid_, row) for row in found.iter_rows(named=True)]
    half = widths.group_by("benchmark", maintain_order=True).agg(pl.col("half_width").median())
    told = ", ".join(f"{name} {100 * width:.1f}" for name, width in half.iter_rows())
    lines.append(f"median half-width of the 95% intervals, in points: {told}")
    return "\n".join(lines)


# ---- import


def _name(what: str, value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", value):
        raise InputError(f"{what} {value!r} cannot be a name; allowed: letters, digits, '.', '_' and '-'")
    return value


def _imported_questions(grid_: Grid, benchmark: str) -> tuple[Any, str, bool]:
    """Questions of a known benchmark (None for a new one), where they lie, and whether the benchmark is known."""
    known = benchmark in grid_.config["benchmarks"] or any(item.benchmark == benchmark for item in grid_.imports)
    if known:
        return grid_.questions(benchmark), grid_.benchmark(benchmark)["path"], True
    return None, f"{grid_.config['results']}/imports/{benchmark}/questions.jsonl", False


def import_samples(grid_: Grid, path: Path, pair: str, role: str, benchmark: str, policy: str, grader: str) -> Shard:
    """Put somebody's samples into the store and register them, so that the next run reads them like our own.

    Raises
    ------
    InputError
        A name or a row is wrong, or the policy is one that this configuration samples itself. Nothing was written.
    """
    for what, value in (("pair", pair), ("benchmark", benchmark), ("policy", policy)):
        _name(what, value)
    configured = grid_.config["pairs"].get(pair, {})
    checkpoint = configured.get(role, f"{pair}-{role}")
    if any(policy in generation.policies for generation in grid_.generations(checkpoint, benchmark)):
        raise InputError(
            f"{checkpoint}/{benchmark} is sampled here under {policy!r}", "import under another name of the policy"
        )
    questions, where, known = _imported_questions(grid_, benchmark)
    found = read_samples(path, questions)
    key = digest({"imported": file_sha256(path), "questions": asked_hash(found.questions)}, 12)
    if not known:
        files.replace_text(grid_.root / where, dumps(found.questions))
    shard = shards.publish(
        grid_.folder(checkpoint, benchmark, key),
        0,
        found.samples,
        found.frame,
        generation_id=key,
        policies=[policy],
        provenance=shards.Provenance(0.0, "unknown", 0, "imported"),
    )
    kind = grid_.benchmark(benchmark)["grader"] if known else grader
    item = Import(pair, role, checkpoint, benchmark, policy, key, found.samples, kind, where)
    path = grid_.layout.import_record(benchmark, pair, role, policy)
    files.replace_text(path, json.dumps(asdict(item), indent=1, sort_keys=True))
    return shard
