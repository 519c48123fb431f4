"""The committed page is what `web/` builds, and its reader of Parquet reads what polars wrote.

Tests that run node skip where it, or what `make web` installs, is not there.
"""

import gzip
import json
import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from searchlens.reporting.explorer_html import read_page

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"
EXPLORER = ROOT / "src/searchlens/reporting"
LARGEST = 900_000
needs_node = pytest.mark.skipif(
    shutil.which("node") is None or not (WEB / "node_modules/esbuild").is_dir(), reason="needs node: make web"
)


def node(*arguments: str | Path) -> str:
    done = subprocess.run(
        ["node", *map(str, arguments)], check=False, cwd=WEB, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_has_a_place_for_data_and_asks_no_other_host() -> None:
    page = read_page()
    assert page.count("<!-- searchlens:data -->") == 1
    assert len(page.encode()) <= LARGEST
    assert "default-src 'none'" in page
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=(?!\"data:)", page.split("<script>")[0])
    assert page.count("<script>") == 1 and page.count("</script>") == 1


def test_licences_name_every_package_of_the_page() -> None:
    licences = (EXPLORER / "explorer.LICENSES.txt").read_text(encoding="utf-8")
    for name in json.loads((WEB / "package.json").read_text())["dependencies"]:
        assert re.search(rf"^{re.escape(name)} \d", licences, re.MULTILINE), name


def test_the_lock_has_hashes_and_no_host() -> None:
    lock = json.loads((WEB / "package-lock.json").read_text())
    packages = {name: each for name, each in lock["packages"].items() if name}
    assert all(each["integrity"].startswith("sha512-") for each in packages.values())
    assert not any("resolved" in each for each in packages.values())
    direct = json.loads((WEB / "package.json").read_text())
    for name, version in {**direct["dependencies"], **direct["devDependencies"]}.items():
        assert packages[f"node_modules/{name}"]["version"] == version


@needs_node
def test_the_committed_page_is_what_its_sources_build(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        node("build.mjs", tmp_path / name)
    for name in ("explorer.html.gz", "explorer.LICENSES.txt"):
        first, second, committed = (
            content(folder / name) for folder in (tmp_path / "first", tmp_path / "second", EXPLORER)
        )
        assert first == second, "two builds differ"
        assert first == committed, "run `make web` and commit what it writes"


def content(path: Path) -> bytes:
    """Unpacked, because versions of zlib pack differently."""
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


@needs_node
def test_the_parts_of_the_page_that_compute_are_right() -> None:
    node("--test", *sorted((WEB / "tests").glob("*.test.js")))


@needs_node
def test_the_types_of_the_page_hold() -> None:
    node("node_modules/typescript/bin/tsc", "--project", ".")


@needs_node
def test_the_reader_reads_what_polars_wrote(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "name": ["a", None, "é\u202e😀", ""] * 700,
            "u32": pl.Series([0, 1, 2**32 - 1, None] * 700, dtype=pl.UInt32),
            "i64": pl.Series([-(2**40), 2**53 + 1, None, 0] * 700, dtype=pl.Int64),
            "f32": pl.Series([0.1, None, float("-inf"), 1e-30] * 700, dtype=pl.Float32),
            "f64": pl.Series([0.1, None, float("nan"), -1e300] * 700, dtype=pl.Float64),
            "flag": [True, None, False, True] * 700,
            "tokens": pl.Series([[1, 2, 3], [], None, [2**31 - 1]] * 700, dtype=pl.List(pl.Int32)),
            "logp": pl.Series([[-0.25, None], [], None, [-1e-3]] * 700, dtype=pl.List(pl.Float32)),
            "kind": pl.Series(["x", "y", None, "x"] * 700, dtype=pl.Categorical),
        }
    )
    paths = {name: tmp_path / f"{name}.parquet" for name in ("groups", "pages", "empty")}
    frame.write_parquet(paths["groups"], compression="zstd", row_group_size=1000)
    frame.write_parquet(paths["pages"], compression="zstd", data_page_size=4096)
    frame.clear().write_parquet(paths["empty"], compression="zstd")
    found = json.loads(node("tests/rows.mjs", *paths.values()))
    for name, path in paths.items():
        expected = [] if name == "empty" else [plain(row) for row in frame.to_dicts()]
        assert found[str(path)]["all"] == expected, name
        assert found[str(path)]["part"] == expected[len(expected) // 2 :], name


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """As JSON from the page: integers that JavaScript cannot hold exactly are strings."""
    return {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if value == float("-inf"):
        return "-Infinity"
    if isinstance(value, int) and abs(value) > 2**53 - 1:
        return str(value)
    return value
