"""Scripts of the repository that are in no package, and code in a process of its own."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType


def loaded(path: str) -> ModuleType:
    """A script, such as ``lab/words.py``, as a module."""
    file = Path(__file__).parents[1] / path
    spec = importlib.util.spec_from_file_location(f"{file.parent.name}_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look up their annotations
    spec.loader.exec_module(module)
    return module


def printed(code: str, *arguments: str) -> str:
    """What Python prints of it in a process of its own, from which nothing is imported yet."""
    return subprocess.check_output([sys.executable, "-c", code, *arguments], text=True, timeout=120).strip()
