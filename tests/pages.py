"""Pages of the documentation that are followed to the letter, in a copy of the sources."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"(?:^`(?P<path>[^`\n]+)`:\n\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[re.Match[str]]:
    """Every block of a page: a file to write, or commands and what they print."""
    text = (ROOT / page).read_text()
    found = list(BLOCK.finditer(text))
    assert len(found) == text.count("```") // 2
    return found


def checkout(folder: Path, *links: str) -> Path:
    """A folder like a fresh checkout, as far as a page needs one."""
    for name in ("src", "config"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("resources", *links):
        (folder / name).symlink_to(ROOT / name)
    return folder


def run(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command in such a folder, by its own sources."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "PATH": path, **variables}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
