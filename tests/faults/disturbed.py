#!/usr/bin/env python
"""`searchlens` in a job of Snakemake; the command that ``DISTURBED`` names meets a fault at a call on the disk.

``DISTURBED`` is COMMAND:CALL:FAULT; without it, and for other commands, nothing is disturbed. The calls are listed in
``calls.txt``, so that the last one is known when the process dies of it.
"""

import os
import sys
from pathlib import Path

from injected import Injected
from searchlens.cli.main import main

command, at, fault = os.environ.get("DISTURBED", "none:0:").split(":")
if sys.argv[1:2] == [command]:
    listed = Path("calls.txt").open("a", buffering=1)  # noqa: SIM115  # closed with the process
    calls = Injected(Path.cwd() / "results", int(at), fault)  # type: ignore[arg-type]
    calls.each = lambda: print(calls.log[-1].name, file=listed)
sys.exit(main())
