"""Stage ``landscape``: the graded samples of one cell, or its recorded counts, to operating points."""

from __future__ import annotations

import logging
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from searchlens.analysis.classes import answer_classes, recorded_classes
from searchlens.analysis.compact import expand
from searchlens.analysis.health import Counts, counted, of_classes, together
from searchlens.analysis.points import Landscape, join, operating_points, require_reached
from searchlens.analysis.pool import in_parts, plain_votes
from searchlens.catalogue import LANDSCAPE_FRAMES
from searchlens.cli.stages._frames import read_sampling_cost, write_content
from searchlens.store import provenance, recorded_counts
from searchlens.store.columns import VOTES
from searchlens.store.files import read_json
from searchlens.store.frames import readable, write_frame
from searchlens.store.layout import GRADER, SIGNATURE, counts_sidecar
from searchlens.store.provenance import Judge

if TYPE_CHECKING:
    from searchlens.plan import needs

log = logging.getLogger(__name__)


_Computed = tuple[dict[str, pl.DataFrame], Judge, dict[str, Any] | None]
"""Frames of a landscape by name, its grader, and the cost of its samples (None: no record)."""


class _Part(NamedTuple):
    """What is read of some policies; no landscape (None) if none of them has a pool as large as the smallest budget."""

    policies: list[str]
    samples: int
    landscape: Landscape | None
    classes: pl.DataFrame
    votes: pl.DataFrame
    counts: Counts


def landscape(cell: needs.Landscape, scores: Path, output: Path, fingerprint: str) -> None:
    """Compute the operating points of one cell from graded samples (``.parquet``) or recorded counts.

    The folder gets ``points.parquet``, ``hits.parquet``, ``classes.parquet``, ``health.parquet``, ``votes.parquet``,
    which is empty if the graded samples have no plain strings, ``grader.json``, and last ``content.json``, the hashes
    of all these.
    """
    frames, judge, spent = (_from_scores if scores.suffix == ".parquet" else _from_counts)(cell, scores)
    for name, frame in frames.items():
        write_frame(frame, output / f"{name}.parquet")
    judge.write(output)
    write_content(output, [*(f"{name}.parquet" for name in LANDSCAPE_FRAMES), GRADER])
    provenance.sign(output / SIGNATURE, fingerprint, spent)
    if (votes := frames["votes"]).height:
        largest = (votes["Q"] - votes["Q_plain"]).abs().max()
        log.info("votes by class and by plain string differ by at most %.4f", largest)
    log.info("%s: %d operating points", scores, frames["points"].height)


def votes_of(cell: needs.Landscape, graded: pl.DataFrame) -> pl.DataFrame | None:
    """Votes over equivalence classes and over plain strings; None if the graded samples have no plain strings."""
    if "plain" not in graded.columns:
        return None
    return plain_votes(graded, budgets=list(cell.vote_budgets), ties=cell.options.ties)


def _from_scores(cell: needs.Landscape, scores: Path) -> _Computed:
    """Policy after policy, as many together as fit into a part."""
    with readable(scores, "score") as content:
        parts = [_of_part(cell, part) for part in in_parts(pl.scan_parquet(content))]
    require_reached(cell.budgets, max(part.samples for part in parts))
    policies = [name for part in parts for name in part.policies]
    read = [part.landscape for part in parts if part.landscape is not None]
    signature = scores.with_suffix(".json")
    judge = Judge.of(read_json(signature) if signature.exists() else {}, cell.grader)
    joined = join(read, policies, cell.smallest_budgets)
    frames = {"points": joined.points, "hits": joined.hits, "classes": pl.concat([part.classes for part in parts])}
    frames |= {"votes": pl.concat([part.votes for part in parts]), "health": together([part.counts for part in parts])}
    return frames, judge, read_sampling_cost(signature)


def _of_part(cell: needs.Landscape, graded: pl.DataFrame) -> _Part:
    classes, votes = answer_classes(graded), votes_of(cell, graded)
    samples: int = classes["samples"].max()  # type: ignore[assignment]
    points = partial(operating_points, graded, budgets=list(cell.budgets), options=cell.options, seed=cell.seed)
    return _Part(
        graded["policy"].unique(maintain_order=True).to_list(),
        samples,
        points() if samples >= min(cell.budgets) else None,
        classes,
        VOTES.to_frame() if votes is None else votes,
        counted(graded),
    )


def _from_counts(cell: needs.Landscape, path: Path) -> _Computed:
    compact = recorded_counts.read(path)
    computed, votes = expand(compact, options=cell.options, seed=cell.seed, smallest=dict(cell.smallest_budgets))
    spent = provenance.spent(chain.from_iterable(recorded_counts.sidecars(compact).values()))
    judge = Judge.of(read_json(counts_sidecar(path)), cell.grader)
    classes = recorded_classes(compact)
    frames = {"points": computed.points, "hits": computed.hits, "classes": classes, "votes": votes}
    return frames | {"health": of_classes(classes, computed.points)}, judge, spent
