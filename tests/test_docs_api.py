"""docs/api.md and the notebook run as they are written, on a finished study."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from small_results import finish, inside

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/api.md").read_text()
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(raw: dict[str, Any], tmp_path: Path) -> Path:
    finish(raw, tmp_path)
    return tmp_path


def test_every_example_of_the_page_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = BLOCK.findall(PAGE)
    assert len(blocks) == PAGE.count("```") // 2
    names: dict[str, Any] = {}
    with inside(folder):
        for block in blocks:
            exec(compile(block, "docs/api.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "budget equivalents: In samples, 1 of RL equal" in printed
    assert "q2 Compute 2+3. 5" in printed
    assert names["samples"].height == 4


def test_the_page_has_every_frame_of_a_comparison() -> None:
    from searchlens.api.comparison import FRAMES

    assert [name for name in FRAMES if f"`{name}`" not in PAGE] == []
