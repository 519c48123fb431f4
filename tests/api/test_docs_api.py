"""docs/api.md and the notebook run as they are written, on a finished study."""

import ast
import re
from contextlib import chdir
from pathlib import Path
from typing import Any

import nbformat
import pytest

from conftest import Raw
from small_results import finish

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/api.md").read_text()
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(raw: Raw, tmp_path: Path) -> Path:
    finish(raw, tmp_path)
    return tmp_path


def test_every_example_of_the_page_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = BLOCK.findall(PAGE)
    assert len(blocks) == PAGE.count("```python")
    names: dict[str, Any] = {}
    with chdir(folder):
        for block in blocks:
            exec(compile(block, "docs/api.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "budget equivalents: 1 RL sample is worth" in printed
    (said,) = re.findall(r"^```\n(N = .*)\n```$", PAGE, re.MULTILINE)
    assert f"exponents: {said} Cannot say" in printed
    assert "q2 Compute 2+3. 5" in printed
    assert names["samples"].height == 4


def test_every_cell_of_the_notebook_runs(folder: Path) -> None:
    """Cell by cell, without a notebook server; the value of a last line is shown as a notebook shows it."""
    notebook = nbformat.read(ROOT / "examples/study.ipynb", as_version=4)
    nbformat.validate(notebook)
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    names: dict[str, Any] = {}
    with chdir(folder):
        faces = [face for source in sources if (face := run_cell(source, names))]
    assert "budget equivalents" in faces[0]
    assert any("RL − Base at 1" in face for face in faces), "the face of the study"
    assert len(faces) == len(sources)
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs are not stored"


def run_cell(source: str, names: dict[str, Any]) -> str:
    """Run a cell; its last line as HTML, if it has a value."""
    *before, last = ast.parse(source).body
    exec(compile(ast.Module(before, []), "cell", "exec"), names)
    if not isinstance(last, ast.Expr):
        exec(compile(ast.Module([last], []), "cell", "exec"), names)
        return ""
    value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    return str(value._repr_html_())


def test_the_page_has_every_frame_of_a_comparison() -> None:
    from searchlens.comparison.arrays import FRAMES

    assert [name for name in FRAMES if f"`{name}`" not in PAGE] == []


def test_the_example_of_the_front_page_prints_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(code, {})
    (shown,) = re.findall(r"```\n(in short: .*?)\n…\n```", page, re.DOTALL)
    assert " ".join(shown.split()) in " ".join(capsys.readouterr().out.split())
