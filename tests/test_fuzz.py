"""A sample of the bad inputs of ``fuzzing.py``; ``make fuzz`` runs all of them."""

import html
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import yaml

import bad_inputs
import fuzzing
import names
import searchlens
from conftest import Make, Patch, Raw
from searchlens.errors import one_line
from searchlens.reporting.report import report_page
from small_results import finish


def own_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in the folder of this file. Forks of this process would wait for ever for threads that only it has."""
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=Path(__file__).parent
    )


@pytest.mark.long
def test_a_sample_of_bad_inputs_ends_as_expected() -> None:
    """No traceback, no hang, nothing wrong that is accepted, nothing right that is refused, and no file changed."""
    done = own_process("fuzzing.py", "--sample", "140", "--seed", "7")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all: 140 inputs, 0 not as expected" in done.stdout


def test_inputs_are_many_and_have_names_of_their_own() -> None:
    every = fuzzing.inputs()
    assert len(every) > 4000
    assert len({(each.family, each.name) for each in every}) == len(every)
    assert 50 < sum(not each.says for each in every) < 500  # right ones are among them


def test_the_runner_notices_what_it_looks_for(tmp_path: Path) -> None:
    """Expectations turned round: what is right as wrong, what is wrong as right, and words that no message has."""
    code = f"""
import json, pathlib
import bad_inputs, fuzzing
runner = fuzzing.Runner(pathlib.Path({str(tmp_path)!r}))
wrong, right = {{"mine.yaml": b"samples: -3\\n"}}, {{"mine.yaml": b"seed: 42\\n"}}
print(json.dumps([
    runner.run(bad_inputs.Input("x", "x", bad_inputs.CHECK, files, says)).problem
    for files, says in ((right, ("samples",)), (wrong, ()), (wrong, ("nowhere",)), (wrong, ("samples",)))
]))
"""
    problems = json.loads(own_process("-c", code).stdout)
    assert problems == ["accepted, although wrong", "refused, although right", "file or key is not named", ""]


# ---- Every name is refused in one clear line, or unharmed in every markup (``names.py``)


PLACES = list(names.places())


@pytest.mark.parametrize(("key", "change", "markups"), PLACES, ids=[key for key, *_ in PLACES])
@pytest.mark.long
def test_a_name_is_refused_or_unharmed(
    key: str, change: dict[str, Any], markups: dict[str, Callable[..., str]], tmp_path: Path, monkeypatch: Patch
) -> None:
    pytest.importorskip("markdown_it")
    every = names.names()
    assert len(every) >= 300
    bad_inputs.write_study(tmp_path)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.chdir(tmp_path)
    found = {name: names.outcome(key, change, markups, name, scratch) for name in every if name or "title" not in key}
    assert {name: what for name, what in found.items() if what not in ("refused", "unharmed")} == {}
    assert set(found.values()) == {"refused", "unharmed"}


def test_names_that_are_markup_elsewhere_go_through_a_report(raw: Raw, tmp_path: Path) -> None:
    """Pair and benchmark end in an underscore, which makes links of them in reStructuredText."""
    title = "*a* `b` |c| <d> \\e {f} $ =1"
    raw["pairs"] = {"1._": raw["pairs"]["toy"]}
    raw["benchmarks"] = {"a--b_": {**raw["benchmarks"]["sums"], "title": title}}
    raw["study"] = {"pairs": ["1._"], "benchmarks": ["a--b_"]}
    page = report_page(searchlens.open(finish(raw, tmp_path)))
    assert html.escape(f"1._ on {title}", quote=False) in page.replace("&#34;", '"').replace("&#39;", "'")
    assert "system-message" not in page


@pytest.mark.parametrize("results", ['it\'s "a" $x\\y*[z] %~#&;(é) 漢', " a", "~", "a.b/../c:d,e=f"])
@pytest.mark.long
def test_snakemake_plans_a_folder_of_any_name_that_is_allowed(
    raw: Raw, tmp_path: Path, make_grid: Make, results: str
) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_text(yaml.safe_dump({**raw, "results": results}))
    for name in ("models", "benchmarks", "policies", "boptr"):
        (tmp_path / f"config/{name}.yaml").write_text("seed: 42\n")
    with chdir(tmp_path):
        make_grid({**raw, "results": results})
        command = [sys.executable, "-m", "searchlens", "run", "--dry-run", "--cores", "1"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert f"{results}/manifests/toy-base/sums/" in done.stdout + done.stderr


def test_a_long_text_of_others_is_one_short_line() -> None:
    assert one_line("a\nb\x1b\u202e") == r"a\nb\x1b\u202e"
    assert len(one_line("x" * 5000)) == 201 and one_line("x" * 200) == "x" * 200
