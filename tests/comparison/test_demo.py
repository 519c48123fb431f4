"""The sample logs of the package: `searchlens compare --demo` and `searchlens.demo`."""

import gzip
import json
import re
import shlex
from pathlib import Path

import pytest

import searchlens
from searchlens.cli.main import main
from searchlens.comparison import compare_logs
from searchlens.comparison.logs import DEMO, HARNESSES, sample_logs

Said = pytest.CaptureFixture[str]


def named(said: str) -> list[str]:
    """The commands that are named on the standard error."""
    return re.findall(r"searchlens (compare .*)", said)


def test_the_demo_prints_what_compare_prints_of_the_logs_that_it_names(capsys: Said) -> None:
    assert main(["compare", "--demo"]) == 0
    shown = capsys.readouterr()
    commands = named(shown.err)
    assert len(commands) == len(HARNESSES)
    assert main(shlex.split(commands[0])) == 0
    assert capsys.readouterr().out == shown.out
    assert re.search(r"^1 RL sample is worth 2\.5 .*base samples", shown.out)


def test_options_of_compare_and_the_call_in_python_see_the_same(tmp_path: Path, capsys: Said) -> None:
    page = tmp_path / "page.html"
    assert main(["compare", "--demo", "--json", "--html", str(page)]) == 0
    said = json.loads(capsys.readouterr().out)
    found = searchlens.demo()
    assert isinstance(found, searchlens.LogComparison)
    assert json.loads(json.dumps(found.to_dict())) == said
    assert "budget equivalents: 1 RL sample is worth" in str(found)
    assert "micro-1m-rl" in page.read_text()


@pytest.mark.parametrize("harness", HARNESSES)
def test_each_log_has_both_sides_and_says_that_it_is_a_toy(harness: str) -> None:
    base, rl = sample_logs(harness)
    found = compare_logs([base], [rl])
    assert [side.model.removeprefix("hf/") for side in found.sides] == ["micro-1m-base", "micro-1m-rl"]
    assert [(side.samples, side.policies) for side in found.sides] == [(16, ("topp0.95_t1.0",))] * 2
    assert (len(found.common), found.common.how) == (60, {"text": 60})
    assert not any(side.health.reason for side in found.sides)
    for side in (base, rl):
        texts = [gzip.decompress(path.read_bytes()).decode() for path in side.iterdir()]
        assert any("Toy questions of searchlens's own" in text for text in texts)
        assert not any(re.search(r"/(root|home|work|tmp)/|hostname|https?:", text) for text in texts)


def test_the_logs_are_small() -> None:
    assert sum(path.stat().st_size for path in DEMO.rglob("*") if path.is_file()) < 250_000


@pytest.mark.parametrize("given", [[], ["logs"], ["--against", "logs"], ["logs", "--against", "logs", "--demo"]])
def test_files_of_both_sides_or_the_demo_alone(given: list[str], capsys: Said) -> None:
    assert main(["compare", *given]) == 2
    assert "--demo alone" in capsys.readouterr().err
