"""Run one stage in a process of its own; print which files of searchlens it loaded. Usage: run_one_stage.py PICKLE."""

import json
import pickle
import sys
from importlib import import_module
from pathlib import Path


def main() -> None:
    stage, setup, arguments, keywords = pickle.loads(Path(sys.argv[1]).read_bytes())
    module = f"searchlens.cli.stages.{stage}"
    if setup:  # a stage of an add-on, which is given a grid that it does not import
        from searchlens.config import addons
        from searchlens.config.model import from_plain
        from searchlens.plan import Grid

        added = addons.stages().get(stage)
        module = added.module if added else module

        arguments = [Grid(from_plain(setup)), *arguments]
    before = set() if not setup else set(sys.modules)
    getattr(import_module(module), stage)(*arguments, **keywords)
    loaded = [
        module for name, module in sys.modules.items() if name.split(".")[0] == "searchlens" and name not in before
    ]
    package = Path(import_module("searchlens").__file__ or "").parent
    print(json.dumps(sorted({str(Path(str(module.__file__)).relative_to(package)) for module in loaded})))


if __name__ == "__main__":  # a stage may start processes, which import this file
    main()
