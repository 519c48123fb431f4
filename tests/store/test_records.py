"""Small records of the store: YAML that others wrote, manifests, graders, frames, and records of searches."""

import io
import json
import logging
import lzma
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from run_stages import landscape_cell, recovery_cell, score_cell
from searchlens import __version__
from searchlens.config.health import HealthOptions
from searchlens.errors import InputError
from searchlens.plan import Grid
from searchlens.reporting.tables.samples import provenance as provenance_table
from searchlens.reporting.tables.study import StudyContext
from searchlens.reporting.tables.table import write
from searchlens.store import inputs, provenance, ranges, recorded_counts, traces, yaml_text
from searchlens.store.columns import PLAIN, TRACES
from searchlens.store.files import digest
from searchlens.store.layout import Layout
from searchlens.store.provenance import Judge
from searchlens.store.recorded_counts import compact, recorded

Logged = pytest.LogCaptureFixture


def yaml_of(values: int) -> str:
    """A list that stands for so many values, itself included: 999 times one of 199 numbers, and single ones."""
    inner = f"&a [{', '.join('1' * 199)}]"
    single = values - 1 - 999 * 200
    return f"[{', '.join([inner, *['*a'] * 998, *['1'] * single])}]"


def test_aliases_are_counted_as_often_as_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(yaml_of(200_000))
    assert sum(1 + len(part) if isinstance(part, list) else 1 for part in yaml_text.read(path)) == 199_999
    path.write_text(yaml_of(200_001))
    with pytest.raises(InputError, match=r"its aliases stand for 200,001 values; allowed: at most 200,000"):
        yaml_text.read(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"a: &a [*a]", "an alias stands inside of what it names"),
        (b"[" * 20_000, "mappings are too deep"),
        (b"a: [", "is not YAML"),
        (b"a: 2026-99-99", "is not YAML: month must be in 1..12"),
        (b"a: !!python/name:os.system", "is not YAML"),
        (b"a\nb: \xff", r"is not text in UTF-8: byte 6 is 0xff"),
        (b"\xff\xfea\0", "it seems to be UTF-16"),
        (b"PK\x03\xff", "it seems to be a zip archive"),
        (b"#" * 2_000_001, "has 2,000,001 characters; allowed: at most 2,000,000"),
    ],
)
def test_yaml_that_nobody_should_read_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=says) as error:
        yaml_text.read(path)
    assert error.value.message.startswith(str(path))


def test_an_empty_file_has_no_value_and_an_absent_one_is_left_to_the_reader(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("# nothing\n")
    assert yaml_text.read(tmp_path / "a.yaml") is None
    with pytest.raises(FileNotFoundError):
        yaml_text.read(tmp_path / "b.yaml")


@pytest.mark.parametrize("name", ["absent", "with\0zero", "n" * 300])
def test_what_is_not_there_is_no_stream(name: str) -> None:
    """The message about it is that of who reads."""
    assert inputs.require_no_stream(Path(name)) == Path(name)
    with pytest.raises(InputError, match="cannot read /dev/null: it is a device"):
        inputs.require_no_stream(Path("/dev/null"))


def manifest(path: Path, **change: Any) -> Path:
    spec = {"policy": "p"}
    shard = {"file": "s00000-00004.parquet", "sha256": "f" * 64}
    entry = {"id": digest(spec, 12), "spec": spec, "policies": ["p"], "samples": 4, "shards": [shard], **change}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"checkpoint": "c", "benchmark": "b", "generations": [entry]}))
    return path


def test_a_manifest_vouches_for_the_shards_of_its_cell(tmp_path: Path) -> None:
    """Those of all its pools; of other cells and generations it says nothing."""
    layout, name, other = Layout(tmp_path), digest({"policy": "p"}, 12), digest({"policy": "q"}, 12)
    for fill, sha256 in ((0, "a" * 64), (1, "b" * 64)):
        shards = [{"file": "s00000-00004.parquet", "sha256": sha256}]
        manifest(layout.manifest("c", "b", "pool-00000000", fill), shards=shards, start=2)
    manifest(layout.manifest("c", "b", "pool-11111111"), id=other, spec={"policy": "q"})
    manifest(layout.manifest("c", "other", "pool-00000000"))
    layout.manifest("c", "b", "pool-22222222").write_text("{")
    assert ranges.vouched(layout, "c", "b", name) == {"s00000-00004.parquet": {"a" * 64, "b" * 64}}
    found = ranges.listed(layout.manifest("c", "b", "pool-00000000"))
    assert (found.checkpoint, found.benchmark, found.ranges) == ("c", "b", {(name, 2, 4)})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"id": "0" * 12}, "specification of generation 000000000000 does not have this id"),
        ({"policies": [3]}, "is not a manifest: policies are no names"),
        ({"policies": None}, "is not a manifest: TypeError"),
        ({"samples": []}, "is not a manifest: TypeError"),
        ({"shards": [{"file": "x"}]}, "is not a manifest: KeyError"),
        ({"shards": ["x"]}, "is not a manifest: TypeError"),
    ],
)
def test_a_manifest_that_is_none_says_why(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    found = ranges.listed(manifest(tmp_path / "pool-00000000.json", **change))
    assert isinstance(found, str) and says in found


@pytest.mark.parametrize("content", ["[]", "3", '{"generations": 3}', '{"generations": [3]}', "{}", "{"])
def test_other_json_is_no_manifest(tmp_path: Path, content: str) -> None:
    path = tmp_path / "pool-00000000.json"
    path.write_text(content)
    assert str(path) in str(ranges.listed(path)) and isinstance(ranges.listed(path), str)


def test_graders_differ_only_where_it_is_certain() -> None:
    """Estimates of before versions were recorded may be of any."""
    math = Judge("math", "1")
    assert math.differs(Judge("gpqa", "1")) and math.differs(Judge("math", "2")) and math.differs(Judge("gpqa"))
    assert not math.differs(Judge("math", "1")) and not math.differs(Judge("math")) and not Judge("math").differs(math)
    assert str(math) == "the grader math in version 1"
    assert str(Judge("math")) == "the grader math in version (not stated)"
    assert Judge.of({"grader": vars(math)}, "other") == math and Judge.of({}, "other") == Judge("other")


def read_again(frame: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Estimates that were written as they are, without a check."""
    stream = io.BytesIO()
    frame.write_ipc(stream)
    path.write_bytes(lzma.compress(stream.getvalue()))
    return recorded_counts.read(path)


def naming(*metrics: str) -> pl.DataFrame:
    """Estimates without rows, whose points may name these metrics."""
    return pl.DataFrame(schema={**compact(metrics), "shards": recorded_counts.SCHEMA["shards"]})


def test_counts_from_before_wrong_keys_or_a_metric_was_recorded_are_read(tmp_path: Path) -> None:
    """In any order of columns; the columns of a metric that was declared later are not there."""
    path, empty = tmp_path / "a.arrow.xz", pl.DataFrame(schema=recorded_counts.SCHEMA)
    for frame in (empty, empty.drop("wrong_key"), empty.select(sorted(recorded_counts.SCHEMA))):
        assert read_again(frame, path).schema == recorded_counts.SCHEMA
    missing = set(recorded_counts.SCHEMA) - set(read_again(naming("C", "P", PLAIN), path).columns)
    assert missing == {"Q", "B", "T", "Q_unbiased"}


@pytest.mark.parametrize("change", ["no classes", "a column", "a type", "a metric", "the type of points", "half of P"])
def test_counts_with_what_this_version_does_not_know_are_refused(tmp_path: Path, change: str) -> None:
    empty = pl.DataFrame(schema=recorded_counts.SCHEMA)
    changed = {
        "no classes": empty.drop("classes"),
        "a column": empty.with_columns(more=1),
        "a type": empty.cast({"samples": pl.String}),
        "a metric": naming(*recorded(), PLAIN, "unknown"),
        "the type of points": empty.with_columns(points=1),
        "half of P": empty.drop("P_unbiased"),
    }
    with pytest.raises(InputError, match="written by another version of searchlens"):
        read_again(changed[change], tmp_path / "a.arrow.xz")


def record(question: int, run: int, kind: str = "node", cost: int = 2) -> pl.DataFrame:
    """One row of a search."""
    empty = {name: pl.Series([None], dtype=dtype) for name, dtype in TRACES.items()}
    known = {"question": question, "run": run, "row": 0, "kind": kind, "requests": 1, "generated": cost}
    return pl.DataFrame({**empty, **known}).cast(TRACES)  # type: ignore[arg-type]  # a schema is a mapping


def put(folder: Path, *rows: pl.DataFrame) -> Path:
    return traces.publish(folder, 0, 4, pl.concat(rows))


def test_runs_that_were_recorded_stay_and_those_drawn_again_are_replaced(tmp_path: Path, caplog: Logged) -> None:
    with caplog.at_level(logging.WARNING):
        put(tmp_path, record(1, 0), record(0, 0))
        path = put(tmp_path, record(0, 1, cost=5), record(1, 0, cost=7))
    assert caplog.messages == []
    assert traces.read(path).select("question", "run", "generated").rows() == [(0, 0, 2), (0, 1, 5), (1, 0, 7)]


def test_a_record_that_is_not_whole_is_said(tmp_path: Path, caplog: Logged) -> None:
    with caplog.at_level(logging.WARNING):
        put(tmp_path, record(0, 0), record(0, 1, "cut"))
    (message,) = caplog.messages
    assert "the records of 1 of 2 runs are not whole" in message


def test_a_record_that_cannot_be_read_is_replaced(tmp_path: Path, caplog: Logged) -> None:
    path = put(tmp_path, record(0, 0))
    path.write_bytes(b"no Parquet")
    with caplog.at_level(logging.WARNING):
        put(tmp_path, record(1, 0))
    assert "is damaged and will be replaced" in caplog.messages[0]
    assert traces.read(path)["question"].to_list() == [1]


def test_what_is_wrong_with_a_record_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, record(0, 0))
    sound = path.read_bytes()
    path.write_bytes(sound[:40] + bytes([sound[40] ^ 1]) + sound[41:])
    with pytest.raises(InputError, match="it is damaged"):
        traces.read(path)
    path.write_bytes(sound)
    monkeypatch.setattr(traces, "VERSION", "2")
    with pytest.raises(InputError, match="its version is '1', this searchlens reads 2"):
        traces.read(path)
    path.unlink()
    with pytest.raises(InputError, match=f"record of searches {path} cannot be used: it is missing"):
        traces.read(path)


# ---- Every shard and table says what made it, and nothing of that is content


PACKAGE = Path(provenance.__file__).parents[1]
CELLS = (("toy-base", "sums"), ("toy-rl", "sums"))


def test_the_commit_is_that_of_the_checkout() -> None:
    asked = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False
    )
    if asked.returncode:
        pytest.skip("not a git checkout")
    assert re.fullmatch(rf"{asked.stdout.strip()}(-dirty)?", provenance.commit())


def test_outside_of_a_checkout_there_is_no_commit_and_without_a_package_no_version(tmp_path: Path) -> None:
    """Also where the environment lies in a repository that does not track it; as matplotlib, where nothing is drawn."""
    shutil.copytree(PACKAGE, tmp_path / "searchlens", ignore=shutil.ignore_patterns("__pycache__"))
    code = (
        "import importlib.metadata as m\nfrom searchlens.store import provenance\nfound = m.version\n"
        "def version(name):\n    if name == 'matplotlib': raise m.PackageNotFoundError(name)\n    return found(name)\n"
        "m.version = provenance.version = version\n"
        "print([provenance.commit()], 'matplotlib' in provenance.made('')['versions'])"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for command in (["true"], ["git", "init", "-q", str(tmp_path)]):
        subprocess.run(command, check=True)
        said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert said.stdout == "[''] False\n"


def test_the_node_is_slurms_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURMD_NODENAME", raising=False)
    assert provenance.host() == socket.gethostname()
    monkeypatch.setenv("SLURMD_NODENAME", "node7")
    assert provenance.host() == "node7"
    assert len(provenance.config_fingerprint(HealthOptions())) == 12, "the name of the configuration's file"


def test_what_can_change_a_number_is_recorded(tmp_path: Path) -> None:
    """Versions of the libraries that compute; what is empty is left out, but for the cost, which may be unknown."""
    provenance.sign(tmp_path / "signed.json", "abc", None, grader={"name": "math"}, nothing="")
    signed = json.loads((tmp_path / "signed.json").read_text())
    assert {"searchlens", "python", "polars", "numpy", "scipy", "pyarrow"} <= signed["versions"].keys()
    assert signed["versions"]["polars"] == pl.__version__
    assert (signed["config"], signed["grader"], signed["samples"]) == ("abc", {"name": "math"}, None)
    assert "nothing" not in signed
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", signed["finished"])


def test_names_are_joined_once_and_in_order() -> None:
    assert provenance.join(["b", "", "a", "b"]) == "b; a"


def sidecar(**more: Any) -> dict[str, Any]:
    counts = {"rows": 10, "tokens": 50, "generated": 60, "wall_seconds": 3600.0, "gpu_seconds": 7200.0}
    return {**counts, "device": "cuda (X)", "device_count": 2, **more}


def test_what_several_shards_took_by_hand() -> None:
    machines = [sidecar(host="a; b"), sidecar(host="b", device="cpu", gpu_seconds=0.0), sidecar()]
    found = provenance.spent(machines)
    assert (found["shards"], found["samples"], found["generated"]) == (3, 30, 180)
    assert (found["wall_seconds"], found["gpu_seconds"]) == (3 * 3600, 2 * 7200)
    assert (found["hosts"], found["devices"], found["commits"]) == (["a", "b"], ["cpu", "cuda (X)"], [])
    twice = provenance.together([found, None, found])
    assert twice["samples"] == 60 and twice["hosts"] == ["a", "b"]


def test_the_table_of_the_report(tmp_path: Path) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567-dirty"
    made = {"versions": {"searchlens": "1.2"}, "commit": commit, "config": "abc", "host": "h", "finished": "now"}
    spent = {"base": provenance.spent([sidecar(commit=commit, host="n1", version="1.2")])}
    nothing: dict[str, Any] = {name: pl.DataFrame() for name in ("widths", "costs")}
    nothing |= {name: {} for name in ("points", "models", "sources", "judges", "agreement")}
    context = StudyContext(default_policy="", cells=(), spent=spent, made=made, **nothing)
    table = provenance_table(context)
    row = table.data.row(0, named=True)
    assert (row["checkpoint"], row["hosts"], row["gpu_h"], row["wall_h"]) == ("base", "n1", 2, 1)
    assert row["commits"] == commit
    assert table.text["commit"].to_list() == ["0123456789ab-dirty"]
    assert table.notes == ["Tables: searchlens 1.2, commit 0123456789ab-dirty; configuration abc; on h, now."]
    csv, *_ = write(table, tmp_path / "provenance")
    assert pl.read_csv(csv, schema=table.data.schema).equals(table.data)
    assert provenance_table(replace(context, spent={})).data.height == 0, "nothing was sampled here"


def test_derived_files_say_what_their_samples_took(grid: Grid, publish: Callable[..., Any]) -> None:
    """From shards to scores, landscapes and recovery, without a change to any of them."""
    for cell in CELLS:
        for generation in grid.jobs.generations(*cell):
            publish(grid, *cell, generation)
        (pool,) = grid.jobs.pools(*cell)
        manifest = grid.current_manifest(pool)
        manifest.parent.mkdir(parents=True)
        entries = [{"id": g.id, "policies": g.policies, "samples": g.samples} for g in pool.generations]
        manifest.write_text(json.dumps({"generations": entries}))
        score_cell(grid, *cell, [manifest], grid.scores(*cell))
        landscape_cell(grid, "sums", grid.scores(*cell), grid.layout.results / "landscape" / cell[0] / "sums")
    landscape = grid.layout.results / "landscape"
    results = grid.layout.results
    recovery_cell(grid, landscape / "toy-base/sums", landscape / "toy-rl/sums", results / "recovery/toy/sums")
    derived = [f"{folder}/provenance.json" for folder in ("landscape/toy-base/sums", "recovery/toy/sums")]
    signatures = [json.loads((results / where).read_text()) for where in ("scores/toy-base/sums.json", *derived)]
    assert [signature["samples"]["samples"] for signature in signatures] == [78, 78, 156]
    assert [signature["samples"]["wall_seconds"] for signature in signatures] == [4 * 1.5, 4 * 1.5, 8 * 1.5]
    for signature in signatures:
        assert signature["versions"]["searchlens"] == __version__ and "polars" in signature["versions"]
        assert signature["config"] == provenance.config_fingerprint(grid.config)
        assert signature["host"] and signature["wall_seconds"] > 0
