"""Damage of a store heals: what was harmed is refused, set aside and made again, as by an undisturbed run."""

import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from run_stages import score_cell
from searchlens.cli.main import main
from searchlens.cli.plan import plan
from searchlens.cli.verify import verify
from searchlens.errors import InputError
from searchlens.plan import Grid
from searchlens.sampling import Job, generate
from searchlens.store import files, frames, shards, snapshots
from searchlens.store.frames import read_frame, read_unvouched, write_frame
from searchlens.store.layout import Layout, shard_name
from searchlens.store.ranges import shards_of, uncovered
from test_generate import CELL, Make, Scripted, Start, start, study

__all__ = ["start", "study"]  # fixtures


class Store:
    """A sampled cell, and how to sample it again with a scripted engine."""

    def __init__(self, grid: Grid, start: Start) -> None:
        self.grid, self._start = grid, start
        self.run()
        self.undisturbed = self.hashes()

    def run(self) -> int:
        """Sample what is missing; how many samples were drawn."""
        engine = Scripted()
        self._start(engine)
        (pool,) = self.grid.jobs.pools(*CELL)
        generate(self.grid, *CELL, self.grid.current_manifest(pool))
        return len(engine.asked)

    def hashes(self) -> dict[str, str]:
        found = {}
        for path in self.grid.layout.sidecars():
            shard = shards_of(path.parent)[0]
            found[path.parent.name] = shard.sidecar.get("sha256", "")
        return found

    def shard(self, place: int = 0) -> shards.Shard:
        generation = self.grid.jobs.generations(*CELL)[place]
        return shards_of(self.grid.folder(*CELL, generation.id))[0]

    @property
    def missing(self) -> int:
        return sum(line.missing for line in plan(self.grid) if (line.checkpoint, line.benchmark) == CELL)

    def is_sound(self) -> bool:
        """As an undisturbed run left it: the same bytes, nothing to draw, nothing to report."""
        (pool,) = self.grid.jobs.pools(*CELL)
        found = verify(self.grid.layout.results)
        assert found.damaged == [] and found.notes == []
        return self.hashes() == self.undisturbed and not self.missing and self.grid.current_manifest(pool).exists()


@pytest.fixture
def store(study: dict[str, Any], make_grid: Make, start: Start) -> Store:
    return Store(make_grid(study), start)


def flip(path: Path, place: int, *, keeps_time: bool) -> None:
    """Change one bit of a byte of a file."""
    stat, content = path.stat(), bytearray(path.read_bytes())
    content[place % len(content)] ^= 1 << place % 8
    path.write_bytes(content)
    if keeps_time:
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_no_flipped_bit_is_ever_read(store: Store) -> None:
    """Size and time stay, as on a failing disk: a plan sees nothing, every reader does."""
    shard, draw = store.shard(), random.Random(1)
    sound, stat = shard.path.read_bytes(), shard.path.stat()
    for _ in range(200):
        flip(shard.path, draw.randrange(len(sound)), keeps_time=True)
        with pytest.raises(InputError, match="sha256 is not the one in its sidecar"):
            shards.read(store.shard(), shard.path.parent.name)
        shard.path.write_bytes(sound)
        os.utime(shard.path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert store.is_sound()


@pytest.mark.parametrize("finder", ["verify", "score"])
def test_what_a_reader_found_is_made_again_by_the_next_run(store: Store, finder: str) -> None:
    shard = store.shard()
    flip(shard.path, 300, keeps_time=True)
    assert store.missing == 0, "a plan compares times alone"
    if finder == "verify":
        assert verify(store.grid.layout.results).advice == ["the next run samples damaged shards again, and only them"]
    else:
        with pytest.raises(InputError, match="`searchlens run` "):
            score_cell(store.grid, *CELL, store.grid.manifests(*CELL), store.grid.scores(*CELL))
    assert store.missing == 4
    assert store.run() == 24 and store.is_sound()


def flipped(path: Path) -> Iterator[None]:
    """One bit after another all over a file: at one in a hundred, in headers of pages and the footer, polars panics."""
    content = path.read_bytes()
    for place in range(3, len(content), len(content) // 200):
        path.write_bytes(content)
        flip(path, place, keeps_time=False)
        yield
    path.write_bytes(content)


def test_a_chunk_that_makes_polars_panic_is_sampled_again(study: dict[str, Any], make_grid: Make, start: Start) -> None:
    grid = make_grid(study)
    start(Scripted(repeatable=True, dies=RuntimeError("died"), at=23))
    (pool,) = grid.jobs.pools(*CELL)
    with pytest.raises(RuntimeError):
        generate(grid, *CELL, grid.current_manifest(pool))
    there = [chunk for shard in Job(grid, pool, 1).missing_shards() for chunk in shard.chunks if chunk.exists]
    whole = there[0].load()
    assert whole is not None
    found = [there[0].load() for _ in flipped(there[0].path)]
    assert found.count(None) > 50
    assert all(one.frame.equals(whole.frame) for one in found if one), "flips of what is not read"


def test_a_shard_that_makes_polars_panic_is_set_aside(store: Store) -> None:
    """It lost its sidecar, too, so that nothing but reading it can say that it is damaged."""
    shard = store.shard()
    content, count = shard.path.read_bytes(), 0
    for _ in flipped(shard.path):
        shard.path.with_suffix(".json").unlink(missing_ok=True)
        count += len(shards.repair(store.grid.layout, shard.path.parent, {}))
        assert shard.path.exists() == shard.path.with_suffix(".json").exists()
        shard.path.write_bytes(content)
    assert count > 30
    shard.path.with_suffix(".json").unlink(missing_ok=True)
    assert store.run() == 0 and store.is_sound(), "the last one is whole again"


def test_a_shard_at_which_polars_would_end_the_process_is_set_aside(store: Store) -> None:
    """A bit of the first page's header, among these 640, makes polars ask for 2^61 bytes."""
    shard = store.shard()
    content = shard.path.read_bytes()
    for bit in range(20 * 8, 100 * 8):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        shard.path.write_bytes(damaged)
        read_unvouched(shard.path)
    shard.path.write_bytes(content)
    assert store.run() == 0 and store.is_sound()


def test_any_number_of_files_can_be_set_aside_within_a_second(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    path = layout.results / "generations" / "toy-base" / "sums" / "0bcf4e92304e" / shard_name(0, 4)
    path.parent.mkdir(parents=True)
    moved = set()
    for content in range(300):
        path.write_text(str(content))
        moved.update(files.aside(layout, [path]))
    assert {file.read_text() for file in moved} == {str(content) for content in range(300)}


def test_a_table_that_makes_polars_panic_is_named(tmp_path: Path) -> None:
    path, said = tmp_path / "points.parquet", []
    write_frame(pl.DataFrame({"policy": ["a", "b"] * 50, "value": range(100)}), path)
    for _ in flipped(path):
        try:
            read_frame(path, "landscape")
        except InputError as error:
            said.append(error.message)
    assert len(said) > 10 and all(str(path) in line for line in said)


def test_a_shard_under_the_name_of_another_range_is_not_read(
    study: dict[str, Any], make_grid: Make, start: Start, store: Store
) -> None:
    shard, longer = store.shard(), make_grid(study | {"samples": 8})
    folder = shard.path.parent
    for suffix in (".parquet", ".json"):
        shutil.copy2(shard.path.with_suffix(suffix), (folder / shard_name(4, 8)).with_suffix(suffix))
    with pytest.raises(InputError, match="has no samples"):
        shards.read_generation(folder, 8)
    assert any("its sidecar is of samples 0 to 4" in line for line in verify(store.grid.layout.results).damaged)
    start(Scripted())
    (pool,) = longer.jobs.pools(*CELL)
    generate(longer, *CELL, longer.current_manifest(pool))
    rows = shards.read_generation(folder, 8)
    assert rows.height == 48 and rows["sample"].max() == 7
    assert verify(store.grid.layout.results).damaged == []


def test_shards_of_different_questions_are_not_read_as_one(store: Store, publish: Callable[..., Any]) -> None:
    """A folder that was merged by hand: every shard is sound, together they lack samples."""
    generation = store.grid.jobs.generations(*CELL)[0]
    folder = store.grid.folder(*CELL, generation.id)
    rows = shards.read(store.shard(), generation.id).filter(pl.col("question") != "q0")
    known = {"generation_id": generation.id, "policies": ["x"], "provenance": shards.Provenance(1, "cpu", 1, "t")}
    shards.publish(folder, 4, 8, rows.with_columns(pl.col("sample") + 4), **known)
    with pytest.raises(InputError, match="have 44 of 48 samples"):
        shards.read_generation(folder, 8)


def harms(path: Path) -> Iterator[Callable[[], object]]:
    """Every tenth byte as the end, every key left out, and the file lost."""
    content = path.read_bytes()
    for end in range(0, len(content) - 1, max(1, len(content) // 10)):
        yield lambda end=end: path.write_bytes(content[:end])
    for key in json.loads(content):
        left = {name: value for name, value in json.loads(content).items() if name != key}
        yield lambda left=left: path.write_text(json.dumps(left))
    yield path.unlink


@pytest.mark.parametrize("kind", ["sidecars", "manifests"])
def test_torn_sidecars_and_manifests_heal_and_nothing_is_drawn_again(store: Store, kind: str) -> None:
    """Samples do not depend on either: one run writes them anew."""
    path = getattr(store.grid.layout, kind)()[0]
    content, count = path.read_bytes(), 0
    for harm in harms(path):
        harm()
        assert store.run() == 0, "the samples are there"
        assert store.is_sound()
        for left in store.grid.layout.manifests():
            if kind == "manifests":
                left.unlink()
        path.write_bytes(content)
        count += 1
    assert count > 15


def test_a_manifest_that_was_edited_is_made_again(store: Store) -> None:
    """It asks for samples that nobody draws: it does not list its pool."""
    (path,) = store.grid.layout.manifests()
    content = json.loads(path.read_text())
    content["generations"][0]["samples"] = 999
    path.write_text(json.dumps(content))
    assert store.run() == 0 and store.is_sound()
    score_cell(store.grid, *CELL, store.grid.manifests(*CELL), store.grid.scores(*CELL))


def test_repair_is_done_at_once(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    """Damaged shards, manifests, snapshots and tables make way; whole shards without a sidecar get one."""
    results = store.grid.layout.results
    score_cell(store.grid, *CELL, store.grid.manifests(*CELL), store.grid.scores(*CELL))
    flip(store.shard(0).path, 200, keeps_time=True)
    store.shard(1).path.with_suffix(".json").write_text("{")
    store.grid.scores(*CELL).write_bytes(b"PAR1")
    store.grid.layout.manifests()[0].write_text("[]")
    assert main(["verify", str(results)]) == 2
    said = capsys.readouterr()
    assert "the next run samples damaged shards again" in said.err and "verify --repair" in said.err
    assert main(["verify", "--repair", str(results)]) == 0
    said = capsys.readouterr().out
    assert said.count("set aside: ") == 5 and said.count("described anew: ") == 1
    assert verify(results).damaged == []
    assert store.run() == 24 and store.is_sound()


def test_shards_from_the_future_ask_for_no_manifest_again(store: Store) -> None:
    """The clock was set back: the manifest names the bytes of its shards, so times decide nothing."""
    before = store.grid.layout.manifests()
    for path in store.grid.layout.shards():
        os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 3600 * 10**9))
    assert store.is_sound() and store.run() == 0
    assert store.grid.layout.manifests() == before


def test_polars_is_given_bytes_and_no_path() -> None:
    """It maps a file that it gets by its path: the process ends if that is cut or its server goes away meanwhile."""
    source = Path(frames.__file__).parents[1]
    calls = re.compile(r"pl\.(?:read|scan)_(?:parquet|parquet_metadata|csv|ipc|ndjson)\((\[?[\w.]*)")
    given = {name for path in source.rglob("*.py") for name in calls.findall(path.read_text())}
    assert given <= {"content", "read_bytes", "files.read_bytes", "[files.read_bytes", "lzma.decompress"}


# ---- Damage of a results folder is reported, at any path; a sound folder passes


@pytest.fixture
def results(grid: Grid, publish: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cell sampled and scored, with manifest and configuration; four shards."""
    monkeypatch.chdir(tmp_path)
    snapshots.save(grid.config)
    (pool,) = grid.jobs.pools(*CELL)
    for generation in pool.generations:
        publish(grid, *CELL, generation)
    generate(grid, *CELL, grid.current_manifest(pool))
    score_cell(grid, *CELL, grid.manifests(*CELL), grid.scores(*CELL))
    return grid.layout.results


def only(results: Path, pattern: str) -> Path:
    return sorted(results.glob(pattern))[0]


def test_a_sound_folder(results: Path) -> None:
    found = verify(results)
    assert (found.shards, found.manifests, found.damaged, found.notes) == (4, 1, [], [])
    assert found.tables >= 2, "scores and verdicts"


def test_a_copy_on_another_machine_is_sound_without_a_configuration(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Copied without its times, under another name, with nothing else of the project beside it."""
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(results, elsewhere / "copied", copy_function=shutil.copyfile)
    shutil.rmtree(results)
    monkeypatch.chdir(elsewhere)
    assert main(["verify", "copied"]) == 0
    assert "4 shards, 1 manifest and" in capsys.readouterr().out


def test_no_file_that_matters_says_where_the_folder_lies(results: Path, tmp_path: Path) -> None:
    for path in results.rglob("*.json"):
        assert str(tmp_path) not in path.read_text(), path


def edit(path: Path, change: Callable[[Any], None]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("pattern", "harm", "says"),
    [
        ("generations/*/*/*/*.json", lambda path: path.write_text("{"), "is damaged"),
        ("generations/*/*/*/*.json", lambda path: edit(path, lambda c: c.pop("sha256")), "has no key 'sha256'"),
        ("generations/*/*/*/*.json", lambda path: path.unlink(), "lists samples 0 to"),
        ("manifests/*/*/*.json", lambda path: path.write_text("[]"), "is not a manifest"),
        (
            "manifests/*/*/*.json",
            lambda path: edit(path, lambda c: c["generations"][0]["spec"].update(seed=1)),
            "does not have this id",
        ),
        ("config/*.json", lambda path: edit(path, lambda c: c.update(seed=1)), "whose hash is not its name"),
        ("scores/*/*.parquet", lambda path: path.write_bytes(path.read_bytes()[:-20]), "is not readable Parquet"),
    ],
    ids=["sidecar", "sidecar key", "lost sidecar", "manifest", "spec", "snapshot", "table"],
)
def test_what_was_harmed_is_named(results: Path, pattern: str, harm: Callable[[Path], Any], says: str) -> None:
    path = only(results, pattern)
    harm(path)
    found = verify(results)
    named = [line for line in found.damaged if str(path.with_suffix("")) in line or says.startswith("lists")]
    assert any(says in line for line in named)


def test_a_shard_whose_job_was_killed_before_its_sidecar_is_noted(results: Path, grid: Grid) -> None:
    stray = only(results, "generations/*/*/*/s00000-00004.parquet").with_name("s00004-00008.parquet")
    pl.DataFrame({"a": [1]}).write_parquet(stray)
    found = verify(results)
    (note,) = found.notes
    assert found.damaged == [] and note.startswith(f"{stray} has no sidecar: the next run takes it over")
    assert uncovered(shards_of(stray.parent), 8) == [(4, 8)]


def test_something_else_is_no_results_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a results folder"):
        verify(tmp_path)
