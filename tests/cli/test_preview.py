"""`searchlens preview`: report and explorer of what is complete, while the rest of a study is sampled."""

import base64
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from searchlens.cli.run import Previews
from searchlens.cli.stages.preview import preview
from searchlens.config import check
from searchlens.plan import Grid
from searchlens.store import layout

ROOT = Path(__file__).parents[2]
DEMO = str(ROOT / "config/demo.yaml")


@pytest.fixture
def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Grid:
    """The study of the demo, of which toy AIME is sampled, with two recorded benchmarks."""
    monkeypatch.chdir(ROOT)
    files = check.read(check.files([DEMO]))
    config = check.validate(files.merged, files)
    study = replace(config.study, benchmarks=("aime", "gpqa", "ifeval"), figures=("micro-1m/aime",))
    landscape = replace(config.landscape, draws=100)
    return Grid(replace(config, results=str(tmp_path / "results"), study=study, landscape=landscape))


def test_pages_show_what_is_recorded_and_say_what_is_still_running(grid: Grid) -> None:
    assert preview(grid) == ["gpqa", "ifeval"]
    report, explorer = (page.read_text("utf-8") for page in (grid.layout.report, grid.layout.explorer))
    words = "Still running: toy AIME. These, and BOPTR, and the figures are not in this page yet."
    assert words in report
    assert "on toy GPQA</strong>" in report
    assert "on toy AIME</strong>" not in report
    index = re.search(r'data-path="index.json">([^<]*)<', explorer)
    assert index
    assert json.loads(base64.b64decode(index[1]))["running"].startswith(words)
    assert {path.name for path in grid.layout.results.iterdir()} == {"explorer.html", "report.html"}


def test_neither_torch_nor_snakemake_is_imported(tmp_path: Path) -> None:
    code = (
        "import json, sys; from searchlens.cli.main import main\n"
        f"main(['preview', '--config', {DEMO!r}, '--config', {str(tmp_path / 'x.yaml')!r}])\n"
        "print(json.dumps([name for name in ('torch', 'snakemake', 'transformers') if name in sys.modules]))"
    )
    small = {
        "results": str(tmp_path / "results"),
        "landscape": {"draws": 100},
        "study": {"benchmarks": ["aime", "gpqa"]},
    }
    (tmp_path / "x.yaml").write_text(json.dumps(small))
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout.splitlines()[-1]) == []
    assert (tmp_path / "results/explorer.html").exists()


def test_pages_of_a_run_are_never_replaced(grid: Grid) -> None:
    grid.layout.measures.mkdir(parents=True)
    (grid.layout.measures / layout.SIGNATURE).write_text("{}")
    grid.layout.report.write_text("whole")
    assert preview(grid) == []
    assert grid.layout.report.read_text() == "whole"


def test_nothing_complete_is_nothing_written(grid: Grid) -> None:
    alone = Grid(replace(grid.config, study=replace(grid.config.study, benchmarks=("aime",))))
    assert preview(alone) == []
    assert not grid.layout.report.exists()


def test_a_run_makes_them_again_when_more_is_complete(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    class Child:
        def __init__(self, command: list[str], **_: object) -> None:
            started.append(command)

        def poll(self) -> int:
            return 0

    monkeypatch.setattr(subprocess, "Popen", Child)
    monkeypatch.chdir(grid.layout.results.parent)
    previews = Previews(grid, ["a.yaml"])
    previews.look(0.0)
    previews.look(20.0)  # it took 20 seconds
    assert started == [[sys.executable, "-m", "searchlens", "preview", "--config", "a.yaml"]]
    for checkpoint in ("micro-1m-base", "micro-1m-rl"):
        place = grid.layout.landscape(checkpoint, "aime") / layout.CONTENT
        place.parent.mkdir(parents=True)
        place.write_text("{}")
    previews.look(199.0)
    assert len(started) == 1  # at most a tenth of a core
    previews.look(200.0)
    assert len(started) == 2
