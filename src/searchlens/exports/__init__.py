"""Samples and verdicts of a study in the formats of other tools, one file for each format."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from searchlens.api import Study
from searchlens.errors import InputError
from searchlens.exports import every_eval_ever, inspect, lm_eval, rows
from searchlens.exports.pools import Pool, pools
from searchlens.store.files import move, temporary_folder

Writer = Callable[[Pool, Path], Iterable[Path]]

FORMATS: dict[str, tuple[Writer, str]] = {
    "inspect": (inspect.write, inspect.LOST),
    "lm-eval": (lm_eval.write, lm_eval.LOST),
    "every-eval-ever": (every_eval_ever.write, every_eval_ever.LOST),
    "jsonl": (rows.write_jsonl, rows.LOST),
    "parquet": (rows.write_parquet, rows.LOST),
    "csv": (rows.write_csv, rows.LOST),
}
"""Name of a format to what writes one policy of one cell, and what the format cannot hold."""


def export(study: Study, to: str, out: Path, policies: Iterable[str] = ()) -> list[Path]:
    """Write every policy of every cell that has samples; the folder appears when all are written.

    Parameters
    ----------
    to : str
        Key of ``FORMATS``.
    out : Path
        Folder, which must be empty or not exist.
    policies : iterable of str, optional
        Only these.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    InputError
        The format is unknown, the folder has files, or nothing is there to be written.
    """
    if to not in FORMATS:
        raise InputError(f"format {to!r} is unknown; known: {', '.join(FORMATS)}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} is there and not an empty folder", "name a new one, so that no file is overwritten")
    write, _ = FORMATS[to]
    with temporary_folder(out.absolute()) as folder:
        written = [path.relative_to(folder) for pool in pools(study, set(policies)) for path in write(pool, folder)]
        if not written:
            raise InputError(f"{study.results} has no samples to export", "recorded cells have counts and no texts")
        move(folder, out.absolute())
    return [out / path for path in written]
