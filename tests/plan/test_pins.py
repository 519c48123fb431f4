"""A name on the hub moves, and a copy can be damaged: nothing is sampled from weights that are not those pinned."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import Make, Raw, word_tokenizer
from local_hub import serve, sha256
from searchlens.cli import tools as pin
from searchlens.errors import InputError
from searchlens.plan import pins
from searchlens.plan.cost import Shape
from searchlens.sampling import generate
from searchlens.store.checkpoints import fingerprint

REPO = "org/toy"
COMMIT, LATER = "a" * 40, "b" * 40
FILES = {
    "config.json": b'{"vocab_size": 3}',
    "generation_config.json": b'{"eos_token_id": 0}',
    "tokenizer.json": json.dumps(word_tokenizer(["</s>", "<pad>", "?"])).encode(),
    "model-00001-of-00002.safetensors": b"weights, first half",
    "model-00002-of-00002.safetensors": b"weights, second half",
    "README.md": b"read me",
    "original/params.json": b"{}",
    "consolidated.safetensors": b"weights, once more",  # never fetched, but present in full downloads
}
ROWS = [{"id": 0, "question": "What is $3+4$?", "answer": 7.0}, {"id": 1, "question": "What is $3-4$?", "answer": -1.0}]
QUIZ = {
    "README.md": b"read me",
    "data/train.jsonl": b"{}",
    "data/test.jsonl": "".join(json.dumps(row) + "\n" for row in ROWS).encode(),
}
IN_USE = sorted(set(FILES) - {"README.md", "original/params.json", "consolidated.safetensors"})
SOURCE = pins.Source(REPO, "main")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache with one repository, laid out as the hub's own client lays it out."""
    folder = tmp_path / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(folder))
    repository = folder / "models--org--toy"
    for name, content in FILES.items():
        blob = repository / "blobs" / sha256(content)
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(content)
        link = repository / "snapshots" / COMMIT / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text(COMMIT)
    return folder


@pytest.fixture
def lock(cache: Path, tmp_path: Path) -> pins.Lock:
    return pin.pin(pins.Lock.read(tmp_path / "lock.json"), [SOURCE], pin.Cache())


def test_a_pin_is_the_commit_and_the_bytes_of_what_is_read(lock: pins.Lock) -> None:
    found = pins.Lock.read(lock.path)[SOURCE]
    assert found.commit == COMMIT
    assert {name: file.sha256 for name, file in found.files.items()} == {name: sha256(FILES[name]) for name in IN_USE}
    assert {name: file.size for name, file in found.files.items()} == {name: len(FILES[name]) for name in IN_USE}


def test_the_same_files_have_one_fingerprint_from_hub_and_folder(lock: pins.Lock, tmp_path: Path) -> None:
    """Otherwise samples of a downloaded copy would be drawn again once the name is pinned."""
    (tmp_path / "copy").mkdir()
    for name in IN_USE:
        (tmp_path / "copy" / name).write_bytes(FILES[name])
    assert lock[SOURCE].fingerprint == fingerprint(tmp_path / "copy")


def test_pinning_again_keeps_the_commit_until_an_update_is_asked_for(
    lock: pins.Lock, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = cache / "models--org--toy"
    (repository / "snapshots" / COMMIT).rename(repository / "snapshots" / LATER)
    (repository / "refs/main").write_text(LATER)
    before = lock.path.read_bytes()
    assert pin.pin(lock, [SOURCE], pin.Cache())[SOURCE].commit == COMMIT
    assert lock.path.read_bytes() == before
    assert pin.pin(lock, [SOURCE], pin.Cache(), update=True)[SOURCE].commit == LATER
    assert f"was {COMMIT}" in capsys.readouterr().out


def test_a_pin_keeps_the_shape_and_a_lock_that_lacks_what_planning_needs_is_refused(
    cache: Path, tmp_path: Path
) -> None:
    """All jobs of a run must price a checkpoint alike, whether or not its files are on their node."""
    shape = Shape(2, 64, 128, 4, 2, 16, 100, True)
    content = {**asdict(shape), "architectures": ["LlamaForCausalLM"]}
    config = cache / "models--org--toy/snapshots" / COMMIT / "config.json"
    config.unlink()
    config.write_text(json.dumps(content))
    path = tmp_path / "lock.json"
    pin.pin(pins.Lock.read(path), [SOURCE], pin.Cache())
    assert pins.Lock.read(path)[SOURCE].shape == shape
    lacking = json.loads(path.read_text())
    del lacking["models"][SOURCE.key]["specials"]
    path.write_text(json.dumps(lacking))
    with pytest.raises(InputError, match="is not a lock file: KeyError"):
        pins.Lock.read(path)


def test_what_cannot_be_pinned_is_named_and_the_rest_is_pinned(cache: Path, tmp_path: Path) -> None:
    incomplete = cache / "models--org--other/snapshots" / COMMIT
    incomplete.mkdir(parents=True)
    (incomplete / "config.json").write_text("{}")
    sources = [pins.Source("org/none", "main"), SOURCE, pins.Source("org/other", COMMIT)]
    with pytest.raises(InputError) as error:
        pin.pin(pins.Lock.read(tmp_path / "lock.json"), sources, pin.Cache())
    assert "model org/none@main is not in the hub cache" in error.value.message
    assert f"model org/other@{COMMIT} has no tokenizer.json, *.safetensors" in error.value.message
    assert pins.Lock.read(tmp_path / "lock.json")[SOURCE].commit == COMMIT


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "lock.json is damaged"),
        ("[]", "lock.json is not a lock file"),
        ('{"version": 9}', "has version 9, this searchlens reads version 1"),
        (
            '{"version": 1, "models": {"org/toy@main": {"commit": "main", "files": {}}}, "datasets": {}}',
            "'main' is not 40",
        ),
    ],
)
def test_a_damaged_lock_is_refused(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "lock.json").write_text(content)
    with pytest.raises(InputError) as error:
        pins.Lock.read(tmp_path / "lock.json")
    assert says in error.value.message


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        ("delete", "model-00002-of-00002.safetensors is missing"),
        ("truncate", "model-00002-of-00002.safetensors has 19 bytes, but was pinned with 20"),
        ("flip", "model-00002-of-00002.safetensors has sha256"),
        ("add", "extra.safetensors is not pinned"),
    ],
)
def test_a_damaged_copy_is_refused(lock: pins.Lock, tmp_path: Path, harm: str, says: str) -> None:
    folder = pins.snapshot(SOURCE, lock[SOURCE])
    hash_of = pins.Hashes(tmp_path / "hashes")
    assert pins.check(SOURCE, lock[SOURCE], hash_of) == folder
    weights = folder / "model-00002-of-00002.safetensors"
    content = weights.read_bytes()
    if harm == "delete":
        weights.unlink()
    elif harm == "truncate":
        weights.write_bytes(content[:-1])
    elif harm == "flip":
        weights.write_bytes(content[:-1] + b"?")
    else:
        (folder / "extra.safetensors").write_bytes(b"more weights")
    with pytest.raises(InputError) as error:
        pins.check(SOURCE, lock[SOURCE], hash_of)
    assert says in error.value.message


def test_a_large_file_is_hashed_once_and_again_when_it_changes(tmp_path: Path) -> None:
    """What has the size and the time of before is not read."""
    path = tmp_path / "weights"
    for content, time, expected in ((b"first", 1, b"first"), (b"other", 1, b"first"), (b"other", 2, b"other")):
        path.write_bytes(content)
        os.utime(path, ns=(time, time))
        assert pins.Hashes(tmp_path / "kept")(path) == sha256(expected)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"XDG_CACHE_HOME": "/x"},
        {"HF_HOME": "~/there", "XDG_CACHE_HOME": "/x"},
        {"HUGGINGFACE_HUB_CACHE": "/older", "HF_HOME": "/h"},
        {"HF_HUB_CACHE": "$HOME/newer", "HUGGINGFACE_HUB_CACHE": "/older"},
    ],
)
def test_the_cache_is_where_the_hubs_own_client_has_it(environment: dict[str, str]) -> None:
    keys = ("XDG_CACHE_HOME", "HF_HOME", "HUGGINGFACE_HUB_CACHE", "HF_HUB_CACHE")
    clean = {key: value for key, value in os.environ.items() if key not in keys}
    code = (
        "from huggingface_hub.constants import HF_HUB_CACHE; from searchlens.plan.pins import cache_folder;"
        " print(HF_HUB_CACHE); print(cache_folder())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**clean, **environment}, capture_output=True, text=True, check=True
    )
    theirs, ours = done.stdout.split()
    assert os.path.expanduser(theirs) == ours  # noqa: PTH111


@pytest.fixture
def hub_study(raw: Raw, tmp_path: Path) -> Raw:
    """The small study, its Base named on the hub."""
    raw["checkpoints"]["toy-base"] = {"hub": REPO}
    raw["lock"] = "lock.json"
    return raw


def test_an_unpinned_study_is_planned_but_not_run(hub_study: Raw, make_grid: Make) -> None:
    grid = make_grid(hub_study)
    grid.check()
    (pool,) = grid.jobs.pools("toy-base", "sums")
    with pytest.raises(InputError, match=r"model org/toy@main is not pinned in .*lock\.json") as error:
        grid.require_ready()
    assert "searchlens pin" in error.value.hint
    with pytest.raises(InputError, match="is not pinned"):
        generate(grid, "toy-base", "sums", grid.current_manifest(pool))


def test_pinning_gives_new_ids_and_needs_no_weights(
    hub_study: Raw, make_grid: Make, lock: pins.Lock, cache: Path
) -> None:
    (cache / "models--org--toy").rename(cache / "elsewhere")
    pinned = {g.id for g in make_grid(hub_study).jobs.generations("toy-base", "sums")}
    lock.path.unlink()
    assert pinned.isdisjoint(g.id for g in make_grid(hub_study).jobs.generations("toy-base", "sums"))


def test_pinned_but_not_fetched_is_refused_before_anything_is_loaded(
    hub_study: Raw, make_grid: Make, lock: pins.Lock
) -> None:
    make_grid(hub_study).require_ready()
    (pins.snapshot(SOURCE, lock[SOURCE]) / "tokenizer.json").unlink()
    with pytest.raises(InputError, match=r"is not complete: tokenizer\.json is missing") as error:
        make_grid(hub_study).require_ready()
    assert "searchlens fetch" in error.value.hint


def test_corrupted_weights_are_refused_by_the_job(hub_study: Raw, make_grid: Make, lock: pins.Lock) -> None:
    """A copy with a flipped byte looks complete; only its hash tells."""
    weights = pins.snapshot(SOURCE, lock[SOURCE]) / "model-00001-of-00002.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    grid = make_grid(hub_study)
    grid.require_ready()
    (pool,) = grid.jobs.pools("toy-base", "sums")
    with pytest.raises(InputError, match=r"model-00001-of-00002\.safetensors has sha256"):
        generate(grid, "toy-base", "sums", grid.current_manifest(pool))


@pytest.fixture
def hub() -> Iterator[str]:
    """Address of a hub on this machine."""
    with serve({REPO: FILES, "datasets/math-ai/amc23": QUIZ}, COMMIT) as address:
        yield address


@pytest.fixture
def command(hub_study: Raw, hub: str, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`searchlens` in the study's folder, asking that hub, with an empty cache."""

    def run(
        *arguments: str, quiz: bool = False, hub: str = hub, name: str = REPO, **checkpoint: str
    ) -> subprocess.CompletedProcess[str]:
        study = {**hub_study, "checkpoints": {**hub_study["checkpoints"]}}
        study["checkpoints"]["toy-base"] = {"hub": name, **checkpoint}
        (tmp_path / "config").mkdir(exist_ok=True)
        for part in ("models", "benchmarks", "policies", "boptr"):
            (tmp_path / f"config/{part}.yaml").write_text("{}\n")
        if quiz:
            quizzed = {"family": "amc23", "check": False, "grader": "math", "max_tokens": 8, "pool": "three"}
            study |= {"study": {"pairs": ["toy"], "benchmarks": ["quiz"]}, "benchmarks": {"quiz": quizzed}}
        (tmp_path / "config/config.yaml").write_text(yaml.safe_dump(study))
        environment = {**os.environ, "HF_ENDPOINT": hub, "HF_HUB_CACHE": str(tmp_path / "empty"), "HF_HUB_OFFLINE": "0"}
        return subprocess.run(
            [sys.executable, "-m", "searchlens", *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_pin_and_fetch_from_a_hub(command: Callable[..., Any], tmp_path: Path, lock: pins.Lock) -> None:
    """The hub's answers, and what the cache of the same files says, make the same lock."""
    expected = lock.path.read_bytes()
    lock.path.unlink()
    done = command("pin")
    assert done.returncode == 0, done.stderr
    assert f"model org/toy@main: {COMMIT} (new; 5 files" in done.stdout
    assert lock.path.read_bytes() == expected
    assert not list((tmp_path / "empty").rglob("*.safetensors")), "pinning downloads no weights"
    done = command("fetch")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "empty/models--org--toy/snapshots" / COMMIT
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {name: FILES[name] for name in IN_USE}


@pytest.mark.long
def test_a_dataset_is_pinned_fetched_and_checked_like_weights(command: Callable[..., Any], tmp_path: Path) -> None:
    """Only the files of its split; a study of it is planned before, with as many questions as the family has."""
    planned = command("plan", quiz=True)
    assert planned.returncode == 0, planned.stderr
    assert "questions are missing here; their published numbers are assumed: quiz 40" in planned.stdout
    assert "dataset math-ai/amc23@main:default/test: " + COMMIT in command("pin", quiz=True).stdout
    unfetched = command("check", quiz=True)  # a small file came with its pin, weights did not
    assert "not ready to run: config/config.yaml: checkpoints.toy-base.hub:" in unfetched.stdout
    done = command("fetch", quiz=True)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "empty/datasets--math-ai--amc23/snapshots" / COMMIT
    assert [path.name for path in folder.rglob("*.*")] == ["test.jsonl"]
    assert "not ready to run" not in command("check", quiz=True).stdout
    assert "quiz 40" not in command("plan", quiz=True).stdout
    questions = (folder / "data/test.jsonl").resolve()
    questions.write_bytes(questions.read_bytes().replace(b"7.0", b"8.0"))
    changed = command("check", quiz=True)
    assert changed.returncode == 2
    assert "data/test.jsonl has sha256" in changed.stderr


def test_nothing_is_pruned_while_ids_are_placeholders(command: Callable[..., Any], tmp_path: Path) -> None:
    """Without the lock everything that was sampled would look unwanted."""
    sampled = tmp_path / "results/generations/toy-base/sums/0123456789ab"
    sampled.mkdir(parents=True)
    done = command("prune", "--delete")
    assert done.returncode == 2
    assert "not pinned: model org/toy@main" in done.stderr
    assert sampled.exists()


@pytest.mark.parametrize(
    ("checkpoint", "says", "hint"),
    [
        ({"name": "org/gated"}, "model org/gated@main is gated and this account has no access", "hf auth login"),
        ({"name": "org/typo"}, "model org/typo@main does not exist, or is private", "check the spelling"),
        ({"revision": "v9"}, "model org/toy@v9 has no revision 'v9'", "check `revision`"),
    ],
)
def test_the_hubs_refusals_are_one_message_each(
    command: Callable[..., Any], checkpoint: dict[str, str], says: str, hint: str
) -> None:
    done = command("pin", **checkpoint)
    assert done.returncode == 2
    assert says in done.stderr
    assert hint in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_hub_pinning_says_what_to_do(command: Callable[..., Any]) -> None:
    done = command("pin", hub="http://127.0.0.1:9")
    assert done.returncode == 2
    assert "the hub cannot be reached" in done.stderr and "--from-cache" in done.stderr
