"""Samples and verdicts of a study in the formats of other tools, one file for each format."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from searchlens.api.study import Study
from searchlens.catalogue import declaration, find, import_named
from searchlens.errors import InputError
from searchlens.formats.export_pools import pools
from searchlens.store.files import move, temporary_folder


def lost(to: str) -> str:
    """What a format cannot hold: ``LOST`` of the file that declares it."""
    return str(import_named(declaration("exporter", to).module).LOST)


def export(study: Study, to: str, out: Path, policies: Iterable[str] = ()) -> list[Path]:
    """Write every policy, or those that are named, of every cell that has samples; ``out`` appears when all are
    written.

    Returns the files. An ``InputError`` if the format is unknown, the folder has files, or nothing is there to be
    written.
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
