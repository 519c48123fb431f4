"""Snapshots: the configuration that a run was started with, stored so that later edits do not change the run."""

from __future__ import annotations

import os
from pathlib import Path

from searchlens.config import addons
from searchlens.config.model import Config, from_plain, plain
from searchlens.errors import InputError
from searchlens.store import files
from searchlens.store.files import canonical
from searchlens.store.layout import Layout
from searchlens.store.provenance import config_fingerprint

VARIABLE = "SEARCHLENS_SNAPSHOT"
"""Environment variable with which a run passes the path of its snapshot to its jobs."""


def path_of(config: Config) -> Path:
    """Path of the snapshot of a configuration; it is named by its content, so it never changes."""
    return Layout(Path(config.results)).snapshot(config_fingerprint(config))


def save(config: Config) -> Path:
    """Write the snapshot of a configuration, once; returns its path."""
    path = path_of(config)
    if not path.exists():
        files.replace_text(path, canonical(plain(config)))
    return path


def export(config: Config) -> None:
    """Let child processes read the present configuration."""
    os.environ[VARIABLE] = str(path_of(config))


def export_code(commands: Path) -> None:
    """Let child processes run the code of this process, also in environments without the package.

    Such environments get the command ``searchlens`` of a folder; one that is installed goes first.
    """
    packages = (Path(__file__).parents[1], *(addon.folder for addon in addons.addons()))
    folders = dict.fromkeys(str(_sources(package)) for package in packages)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*folders, os.environ.get("PYTHONPATH")]))
    os.environ[addons.VARIABLE] = os.pathsep.join(addons.modules())
    os.environ["PATH"] = os.pathsep.join(filter(None, [os.environ.get("PATH"), str(commands)]))


def _sources(package: Path) -> Path:
    """A folder that has a package and no other one but of this project.

    An installed package lies among other packages, which an environment with another Python must not import. So the
    folder of the run has a link to it.
    """
    if not (package.parent / "numpy").exists():
        return package.parent
    link = Path(".snakemake", "searchlens", package.name).absolute()
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.exists() or link.resolve() != package.resolve():
        temporary = link.with_name(f".{package.name}.{os.getpid()}")
        temporary.symlink_to(package)
        temporary.replace(link)  # another run may do the same at this moment
    return link.parent


def read(path: Path) -> Config:
    """The configuration of a snapshot. Raises InputError if there is no such snapshot, or it holds no configuration."""
    if not path.exists():
        raise InputError(
            f"{path} does not exist", "the configuration changed since this run was planned; start the run again"
        )
    content = files.read_json(path)
    try:
        return from_plain(dict(content))
    except (TypeError, ValueError):  # no mapping, or a key is missing
        hint = "`searchlens snapshot` writes one with the configuration of the study"
        raise InputError(f"{path} is no snapshot of a configuration of this version", hint) from None
