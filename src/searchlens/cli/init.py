"""`searchlens init`: the folder of a new study, with everything that a run needs but weights and questions."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from searchlens.config import project
from searchlens.errors import InputError

OF_THE_REPOSITORY = ("ci.yaml", "zoo.yaml", "zoo-tables.yaml", "zoo-power.yaml", "own.yaml", "*.lock.json", "lock.json")
"""Files of ``config/`` that a new study does not get: they need the cohort of the zoo, or belong to another study."""

DEMO = """# The demo: the micro pair at laptop size. Snakemake and every command merge these settings over the
# other files of this folder.
"""


def init(folder: Path, *, demo: bool = False) -> list[str]:
    """Write the folder of a study: ``config/``, ``profiles/``, and a ``Snakefile`` that includes the workflow.

    The workflow itself stays where it is installed, because its rules call the code of their own version. ``demo``: the
    study of the micro pair, ready to run, in place of one to fill in. Returns the names of what was written. Raises
    InputError, and writes nothing, if the folder is a file, cannot be written to, or has one of these names already; or
    the micro pair is not installed.
    """
    names = ("config", "profiles", "slurm", "Snakefile")
    _require_free(folder, names)
    if demo:
        project.zoo()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".init-") as temporary:
            _write(Path(temporary), demo=demo)
            for name in names:
                Path(temporary, name).rename(folder / name)
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}") from None
    return list(names)


def _require_free(folder: Path, names: tuple[str, ...]) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; a study needs a folder")
    for name in names:
        if (folder / name).exists() or (folder / name).is_symlink():
            raise InputError(f"{folder} already has {name}: nothing is written over it", "name another folder")


def _write(folder: Path, *, demo: bool) -> None:
    source = project.root()
    shutil.copytree(source / "config", folder / "config", ignore=shutil.ignore_patterns(*OF_THE_REPOSITORY))
    shutil.copytree(source / "profiles", folder / "profiles")
    shutil.copyfile(project.TEMPLATES / "Snakefile", folder / "Snakefile")
    (folder / "slurm").symlink_to(Path("profiles", "slurm"))  # where `--profile slurm` looks for it
    if demo:
        settings = DEMO + (source / "config" / "demo.yaml").read_text("utf-8")
    else:
        settings = (project.TEMPLATES / "own.yaml").read_text("utf-8")
    (folder / project.OWN_FILE).write_text(settings, "utf-8")
