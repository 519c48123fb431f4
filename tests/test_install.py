"""`workflow/install.sh`: uv with pip's own settings, and pip where uv cannot be had or fails."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "workflow/install.sh"
PIP = """#!/bin/sh
case "$*" in
    *"config list"*) printf "%s\\n" ":env:.find-links='/w'" "global.extra-index-url='one two'" "global.cert='/c'" ;;
    *"install --quiet uv") exit {uv} ;;
    *) echo "pip $*" ;;
esac
"""


def installed(folder: Path, *, uv: str | None, can_have_uv: bool = True) -> str:
    (folder / "env/bin").mkdir(parents=True)
    (folder / "bin").mkdir()
    programs = {folder / "env/bin/python": PIP.format(uv=int(not can_have_uv))}
    if uv:
        programs[folder / "bin/uv"] = uv
    for path, content in programs.items():
        path.write_text(content)
        path.chmod(0o755)
    path = f"{folder / 'bin'}:/usr/bin:/bin"
    command = [str(SCRIPT), str(folder / "env"), "-e", "."]
    ran = subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True)
    return ran.stdout


def test_uv_gets_what_pip_is_told_elsewhere(tmp_path: Path) -> None:
    found = installed(tmp_path, uv='#!/bin/sh\necho "uv $SSL_CERT_FILE $*"\n')
    assert found.startswith("uv /c pip install --quiet --python ")
    assert "--extra-index-url one --extra-index-url two --find-links /w -e ." in found


@pytest.mark.parametrize(("uv", "can_have_uv"), [("#!/bin/sh\nexit 1\n", True), (None, False)])
def test_pip_installs_where_uv_does_not(tmp_path: Path, uv: str | None, *, can_have_uv: bool) -> None:
    assert (
        installed(tmp_path, uv=uv, can_have_uv=can_have_uv)
        == "pip -m pip --disable-pip-version-check install --quiet -e .\n"
    )
