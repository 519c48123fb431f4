"""Names of checkpoints and benchmarks are labels: samples are found by what decides them, wherever they lie."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import Patch, Raw
from searchlens.api.study import open_study
from searchlens.cli.plan import answer
from searchlens.cli.verify import set_cell_aside, unused
from searchlens.plan import Grid, needs
from searchlens.sampling import generate
from searchlens.store import snapshots
from searchlens.store.layout import Layout
from test_generate import CELL, RUNS, Make, Scripted, Start, sidecars, start, study

__all__ = ["start", "study"]  # fixtures

NAMES = {"toy-base": "base", "toy-rl": "rl", "sums": "additions"}


def renamed(raw: Raw, **names: str) -> Raw:
    """The same study with other names for its checkpoints or benchmarks."""
    text = json.dumps(raw)
    for old, new in names.items():
        text = text.replace(f'"{old}"', f'"{new}"')
    return dict(json.loads(text))


def sample(grid: Grid, cell: tuple[str, str]) -> None:
    (pool,) = grid.jobs.pools(*cell)
    generate(grid, *cell, grid.current_manifest(pool))


def to_make(grid: Grid) -> dict[str, int]:
    return {f"{cell['checkpoint']}/{cell['benchmark']}": cell["to_make"] for cell in answer(grid)["cells"]}


@pytest.fixture
def sampled(study: Raw, make_grid: Make, start: Start) -> dict[str, Any]:
    """The study after the samples of its Base were drawn, with records of searches."""
    study["study"]["trace"] = {"policies": "all", "questions": 1}
    start(Scripted())
    sample(make_grid(study), CELL)
    start()  # another engine is not there
    return study


@pytest.mark.parametrize(
    ("names", "cell"),
    [({"toy-base": "base"}, ("base", "sums")), ({"sums": "additions"}, ("toy-base", "additions")), (NAMES, None)],
)
def test_a_renamed_cell_has_its_samples_without_an_engine(
    sampled: Raw,
    make_grid: Make,
    monkeypatch: Patch,
    names: dict[str, str],
    cell: tuple[str, str] | None,
) -> None:
    cell, raw = cell or ("base", "additions"), renamed(sampled, **names)
    before, grid = sidecars(make_grid(sampled)), make_grid(raw)
    (pool,) = grid.jobs.pools(*cell)
    assert not any(grid.missing(pool)) and grid.minutes(pool) == 0
    assert to_make(grid)["/".join(cell)] == 0
    assert not grid.current_manifest(pool).exists(), "its manifest is written by a job"
    sample(grid, cell)
    assert make_grid(raw).current_manifest(pool).exists()
    assert sorted(map(str, sidecars(grid))) == sorted(map(str, [*before, *before]))
    monkeypatch.chdir(grid.root)
    snapshots.save(grid.config)
    assert open_study("results").samples(*cell).height == RUNS
    assert len(grid.layout.every(grid.layout.traces(*cell, "*"))) == 4
    assert {path.stat().st_nlink for path in grid.layout.shards()} == {2}, "no byte is copied"


def test_samples_of_a_name_before_are_extended_and_found_under_every_name(
    sampled: Raw, make_grid: Make, start: Start
) -> None:
    more, engine = renamed(sampled, **NAMES) | {"samples": 8}, Scripted()
    start(engine)
    sample(make_grid(more), ("base", "additions"))
    assert len(engine.asked) == 3 * 6 * 4
    start()
    back = make_grid(sampled | {"samples": 8})
    assert to_make(back)["toy-base/sums"] == 0
    sample(back, CELL)
    assert not any(make_grid(sampled | {"samples": 8}).missing(back.jobs.pools(*CELL)[0]))


def test_one_checkpoint_under_two_names_is_drawn_once(study: Raw, make_grid: Make, start: Start) -> None:
    study["checkpoints"]["again"] = study["checkpoints"]["toy-base"]
    study["pairs"]["second"] = study["pairs"]["toy"] | {"base": "again"}
    study["study"]["pairs"].append("second")
    start(Scripted())
    for name in ("toy-base", "again"):
        sample(make_grid(study), (name, "sums"))
    grid = make_grid(study)
    assert all(
        grid.current_manifest(pool).exists() for name in ("toy-base", "again") for pool in grid.jobs.pools(name, "sums")
    )


def test_a_damaged_sample_is_not_taken_from_another_name(sampled: Raw, make_grid: Make) -> None:
    make_grid(sampled).layout.shards()[0].write_bytes(b"damaged")
    assert to_make(make_grid(renamed(sampled, **NAMES)))["base/additions"] == 1


def test_what_a_name_refers_to_is_not_pruned(sampled: Raw, make_grid: Make) -> None:
    """Names of Base and RL are swapped, so that the samples lie under a name of the study that does not use them."""
    swapped = renamed(renamed(sampled, **{"toy-base": "x", "toy-rl": "toy-base"}), x="toy-rl")
    assert to_make(make_grid(swapped)) == {"toy-rl/sums": 0, "toy-base/sums": 4}
    found = unused(make_grid(swapped))
    assert not found["generation folder"] and not found["trace folder"] and len(found["manifest"]) == 1


def test_samples_that_are_drawn_again_are_not_taken_from_the_name_before(sampled: Raw, make_grid: Make) -> None:
    grid = make_grid(renamed(sampled, **NAMES))
    sample(grid, ("base", "additions"))
    set_cell_aside(Grid(grid.config, grid.root), "base", "additions", None)
    assert to_make(Grid(grid.config, grid.root))["base/additions"] == 4
    assert len(grid.layout.every(grid.layout.results / "aside/*/*/*/*/*.parquet")) == 2 * 4


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EPERM])
def test_samples_on_another_disk_are_copied(sampled: Raw, make_grid: Make, monkeypatch: Patch, number: int) -> None:
    link = os.link

    def refused(source: Path, target: Path) -> None:
        if source.parent != target.parent:
            raise OSError(number, os.strerror(number))
        link(source, target)

    monkeypatch.setattr(os, "link", refused)
    grid = make_grid(renamed(sampled, **NAMES))
    sample(grid, ("base", "additions"))
    assert not any(Grid(grid.config, grid.root).missing(grid.jobs.pools("base", "additions")[0]))
    assert {path.stat().st_nlink for path in grid.layout.shards()} == {1}


def test_the_store_is_listed_once_and_only_if_something_is_missing(
    sampled: Raw, make_grid: Make, monkeypatch: Patch
) -> None:
    """A look for every sample stream would take a network file system hours."""
    listed, every = [], Layout.every

    def noted(layout: Layout, pattern: Path) -> list[Path]:
        listed.append("generations" in pattern.parts)
        return every(layout, pattern)

    monkeypatch.setattr(Layout, "every", noted)
    looks: list[tuple[dict[str, Any], Callable[[Grid], object]]] = [
        (sampled, lambda grid: any(grid.missing(grid.jobs.pools(*CELL)[0]))),
        (renamed(sampled, **NAMES), to_make),
    ]
    counts = []
    for raw, look in looks:
        listed.clear()
        look(make_grid(raw))
        counts.append(sum(listed))
    assert counts == [0, 1]


@pytest.mark.parametrize(
    ("where", "value"),
    [(("benchmarks", "sums", "title"), "Sums of our own"), (("health",), {"answered": 0.3})],
)
def test_words_make_words_again(raw: Raw, make_grid: Make, where: tuple[str, ...], value: Any) -> None:
    """A title or a limit of the health check decides no number, so nothing with numbers is made again."""
    raw["benchmarks"]["sums"] |= {"regime": "math", "role": "fitted"}
    before = make_grid(json.loads(json.dumps(raw)))
    section = raw
    for key in where[:-1]:
        section = section[key]
    section[where[-1]] = value
    after = make_grid(raw)
    assert needs.boptr(before) == needs.boptr(after) and needs.measures(before) == needs.measures(after)
    assert needs.transfer(before) != needs.transfer(after) and needs.tables(before) != needs.tables(after)
