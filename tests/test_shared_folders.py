"""A results folder of another user: commands go on, or say exactly what is missing, and change nothing."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

OTHER = 12_345
"""A user who has no account."""
RIGHTS = "-dac_override,-dac_read_search,-fowner,-chown"
"""What root has beyond others."""

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can give files to another user"
)

PROGRAM = f"""
import json, sys
sys.path.insert(0, {str(Path(__file__).parent / "faults")!r})
import study
study.script(study.Counter())
if sys.argv[1:] == ["make"]:
    study.found(study.Path("study"))
    study.os.chdir("study")
    theirs = ["--pair", "other", "--benchmark", "sums", "--role", "base", "--policy", "theirs", "--yes"]
    commands = {{"generate": study.generate()[0], "import": ["import", "log.jsonl", *theirs]}}
    assert study.run(*commands["generate"]) == 0
    commands["score"] = next(iter(study.graded()))
    assert study.run(*commands["score"]) == study.run(*commands["import"]) == 0
    print(json.dumps(commands))
else:
    sys.exit(study.run(*sys.argv[1:]))
"""


def run(folder: Path, *arguments: str, limited: bool = True) -> subprocess.CompletedProcess[str]:
    """A command on a mini study, by a user like others or by root."""
    user = ["setpriv", "--bounding-set", RIGHTS, "--inh-caps", RIGHTS] if limited else []
    command = [*user, sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


Made = tuple[Path, dict[str, list[str]]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A study whose first checkpoint is sampled and graded, and its commands."""
    folder = tmp_path_factory.mktemp("made")
    said = run(folder, "make", limited=False)
    assert said.returncode == 0, said.stderr
    more = {"verify": ["verify", "results"], "repair": ["verify", "--repair", "results"], "status": ["status"]}
    more["remove"] = ["imports", "--remove", "other/sums"]
    return folder / "study", json.loads(said.stdout.splitlines()[-1]) | more


def theirs(made: Path, folder: Path, folders: int, files: int, group: int) -> Path:
    """A copy of the study whose results belong to another user."""
    shutil.copytree(made, folder, symlinks=True)
    for path in [folder / "results", *(folder / "results").rglob("*")]:
        os.chown(path, OTHER, group)
        path.chmod(folders if path.is_dir() else files)
    return folder


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = (path for path in (folder / "results").rglob("*") if path.is_file())
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("verify", ""),
        ("status", ""),
        ("generate", ""),
        ("score", "cannot write to results/scores/toy-base/"),
        ("import", "cannot write to results/"),
        ("repair", ""),
        ("remove", "cannot write to results/generations/other-base/sums/"),
    ],
)
@pytest.mark.long
def test_a_folder_that_others_may_only_read(made: Made, tmp_path: Path, name: str, says: str) -> None:
    """As umask 022 leaves it."""
    folder = theirs(made[0], tmp_path / "study", 0o755, 0o644, OTHER)
    before = state(folder)
    done = run(folder, *made[1][name])
    assert "Traceback" not in done.stderr
    assert done.returncode == (2 if says else 0), done.stderr
    assert says in done.stderr
    assert not says or f"{says.rsplit(' ', maxsplit=1)[-1]}" in done.stderr.splitlines()[-2]
    assert state(folder) == before


@pytest.mark.parametrize("name", ["verify", "repair", "status", "generate", "import", "remove"])
@pytest.mark.long
def test_a_folder_that_is_the_owners_alone_is_never_taken_for_an_empty_one(
    made: Made, tmp_path: Path, name: str
) -> None:
    """As umask 077 leaves it; and then only its files, such as those of a colleague in a shared folder."""
    for number, mode in enumerate((0o700, 0o777)):
        folder = theirs(made[0], tmp_path / f"study{number}", mode, 0o600, OTHER)
        before = state(folder)
        done = run(folder, *made[1][name])
        assert done.returncode in (1, 2) and "Traceback" not in done.stderr
        assert "Permission denied" in done.stderr and "results/" in done.stderr
        assert state(folder).items() >= before.items()
        assert not (folder / "results/aside").exists()


@pytest.mark.parametrize("name", ["verify", "repair", "status", "generate", "score", "import", "remove"])
@pytest.mark.long
def test_a_folder_of_a_group_is_used_by_all_of_it(made: Made, tmp_path: Path, name: str) -> None:
    """Folders that the group may write, and files and locks of a colleague that it may only read."""
    folder = theirs(made[0], tmp_path / "study", 0o2775, 0o644, os.getegid())
    done = run(folder, *made[1][name])
    assert done.returncode == 0, done.stderr
