"""Samples and verdicts of a study in the formats of other tools, one file for each format."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from searchlens.api import Study
from searchlens.catalogue import declaration, find, load
from searchlens.errors import InputError
from searchlens.exports.pools import pools
from searchlens.store.files import move, temporary_folder


def lost(to: str) -> str:
    """What a format cannot hold: ``LOST`` of the file that declares it."""
    return str(load(declaration("exporter", to)).LOST)


def export(study: Study, to: str, out: Path, policies: Iterable[str] = ()) -> list[Path]:
    """Write every policy of every cell that has samples; the folder appears when all are written.

    Parameters
    ----------
    to : str
        Name of an ``exporter``: what writes one policy of one cell into a folder, and yields the files.
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
    write = find("exporter", to)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} is there and not an empty folder", "name a new one, so that no file is overwritten")
    with temporary_folder(out.absolute()) as folder:
        written = [path.relative_to(folder) for pool in pools(study, set(policies)) for path in write(pool, folder)]
        if not written:
            raise InputError(f"{study.results} has no samples to export", "recorded cells have counts and no texts")
        move(folder, out.absolute())
    return [out / path for path in written]
