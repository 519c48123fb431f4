"""`searchlens check` says everything before a job starts, at once, with the file in which each key stands."""

import ast
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from conftest import Patch, Said, toy_study
from searchlens import catalogue
from searchlens.cli.main import main
from searchlens.config import addons, check, project
from searchlens.config.sampled import CheckpointSpec
from searchlens.engines.kind import engine_kind

ROOT = Path(__file__).parents[2]
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> Path:
    """A study as `init` writes it; the present folder."""
    assert main(["init", str(tmp_path / "new")]) == 0
    capsys.readouterr()
    monkeypatch.chdir(tmp_path / "new")
    return tmp_path / "new"


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small study with folders that are there, in one file `toy.yaml` over the shipped ones; the present folder."""
    content = toy_study(tmp_path) | {"equivalence": None}
    (tmp_path / "config").symlink_to(ROOT / "config")
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(content))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys: Captured, *files: str, status: int = 2) -> str:
    assert main(["check", "--quiet", *(part for file in files for part in ("--config", file))]) == status
    answer = capsys.readouterr()
    return answer.err + answer.out


PLANTED = {
    "samples: '8'": "samples: must be an integer, >= 1",
    "chunk_sample: 4": "configuration: 'chunk_sample' is unknown; did you mean 'chunk_samples'?",
    "pool_size: 020": "line 3: 020 is read as 16; write a plain number, or a text in quotes",
    "references: [gredy]": "references: 'gredy' is unknown; did you mean 'greedy'?",
    "study: {pairs: [mine, mime], benchmarks: [sums, math]}": "study.pairs: 'mime' is unknown; did you mean 'mine'?",
    "checkpoints: {mine-base: {hub: null, path: models/bse, template: qwen-boxd}, mine-rl: {dtype: float8}}": (
        "checkpoints.mine-base.template: 'qwen-boxd' is unknown; did you mean 'qwen-boxed'?",
        "checkpoints.mine-base.path: models/bse does not exist",
        "checkpoints.mine-rl.dtype: Input should be 'float32'",
    ),
    "benchmarks: {sums: {path: sum.jsonl, grader: mth, max_tokens: 8, pool: fw}, math: {max_token: 8}}": (
        "benchmarks.sums.path: sum.jsonl does not exist",
        "benchmarks.sums.grader: 'mth' is unknown; did you mean 'math'?",
        "benchmarks.sums.pool: 'fw' is unknown; did you mean 'few'?",
        "benchmarks.math: 'max_token' is unknown; did you mean 'max_tokens'?",
    ),
    "pairs: {mine: {templates: own}}": (),
    "pools: {few: [temp_0.4]}": "pools.few: 'temp_0.4' is unknown; did you mean",
}


def test_all_mistakes_come_in_one_round_with_the_file_of_each(new: Path, capsys: Captured) -> None:
    (new / "mine.yaml").write_text("\n".join(PLANTED))
    lines = said(capsys, "mine.yaml")
    wanted = [says for value in PLANTED.values() for says in ([value] if isinstance(value, str) else value)]
    assert f"the configuration has {len(wanted)} errors:" in lines
    for says in wanted:
        assert f"mine.yaml: {says}" in lines or f"mine.yaml, {says}" in lines


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("samples: '32'\nbudgets: [1, 32]", "samples: must be"),
        ("benchmarks: {math: {max_tokens: long}}", "benchmarks.math.max_tokens: must be"),
        ("benchmarks: {math: null}", "benchmarks.math: must be a mapping"),
        ("benchmarks: {math: {grader: 3}}", "benchmarks.math.grader: "),
        ("pairs: {micro-1m: {base: 3}}", "pairs.micro-1m.base: "),
        ("checkpoints: {micro-1m-rl: {path: 3}}", "checkpoints.micro-1m-rl.path: "),
        ("checkpoints: {micro-1m-rl: {engine: vlm, dtype: float16}}", "checkpoints.micro-1m-rl.engine: "),
        ("study: {pairs: micro-1m}", "study.pairs: must be a list"),
        ("study: 3", "study: must be a mapping"),
        ("equivalence: {policies: []}", "equivalence.policies: List should have at least 1 item"),
        ("pools: {few: greedy}\nbenchmarks: {math: {pool: few}}", "pools.few: must be a list"),
        ("policies: {topp0.95_t0.9: 3}", "policies.topp0.95_t0.9: must be a mapping"),
        ("pools: {16: []}", "pools: key 16 must be a string"),
        ("extensions: [no.py]\nbenchmarks: {math: {grader: mine}}", "extensions: no.py does not exist"),
    ],
)
def test_what_follows_from_a_mistake_is_not_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, says: str, capsys: Captured
) -> None:
    for name in ("config", "resources"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(written)
    lines = said(capsys, "mine.yaml")
    assert "the configuration has 1 error:" in lines
    assert f"\n  mine.yaml: {says}" in lines


def test_everything_that_is_missing_is_named_with_its_file(toy: Path, capsys: Captured) -> None:
    """A configuration without a mistake, whose folders are elsewhere."""
    (toy / "rl").rename(toy / "lr")
    (toy / "sums.jsonl").unlink()
    (toy / "mine.yaml").write_text("checkpoints: {toy-base: {path: models/bse}}\nstudy: {recorded_counts: nowhere}\n")
    lines = said(capsys, "toy.yaml", "mine.yaml")
    lines = lines.replace("error: ", "\n")
    assert "\nmine.yaml: checkpoints.toy-base.path: checkpoint folder models/bse does not exist" in lines
    assert "\ntoy.yaml: checkpoints.toy-rl.path: checkpoint folder rl does not exist" in lines
    assert "\ntoy.yaml: benchmarks.sums: cannot read benchmark file sums.jsonl" in lines
    assert "\nmine.yaml: study.recorded_counts: nowhere is no folder" in lines
    assert "config/models.yaml" not in lines


def test_a_file_that_is_called_like_a_key_is_not_one(toy: Path, capsys: Captured) -> None:
    good = '{"question": "q", "sample": 0, "text": "x", "gold": "1"}'
    for name in ("samples.jsonl", "benchmarks.jsonl"):
        (toy / name).write_text(f"{good}\n[1]\n")
        sample = ["--pair", "mine", "--role", "base", "--benchmark", "own", "--policy", "greedy"]
        assert main(["import", name, *sample, "--quiet", "--config", "toy.yaml"]) == 2
        assert f"error: {name}:2: must be" in capsys.readouterr().err
    (toy / "study.yaml").write_text("study: {smple: all}\n")
    assert "\n  study.yaml: study: 'smple' is unknown" in said(capsys, "toy.yaml", "study.yaml")


def test_a_new_study_is_not_ready_and_says_every_reason(new: Path, capsys: Captured) -> None:
    lines = said(capsys, status=1)
    assert "study cannot run yet: 2 cells, 1 comparison of Base and RL\n" in lines
    assert "configuration is valid" not in lines
    reasons = re.findall("not ready to run: (.*)", lines)
    assert reasons == [
        "config/own.yaml: checkpoints.mine-base.hub: your-org/your-base is a placeholder: name your checkpoint",
        "config/own.yaml: checkpoints.mine-rl.hub: your-org/your-rl is a placeholder: name your checkpoint",
        "not pinned: dataset HuggingFaceH4/MATH-500@main:default/test",
    ]
    assert "Hint: run `searchlens pin`" in lines
    assert main(["check", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["missing"] == reasons


@pytest.mark.parametrize("written", ["results: 'out/{user}'", "results: out}", "study: {recorded_counts: 'a{b}'}"])
def test_braces_that_snakemake_would_fill_in_are_refused(toy: Path, written: str, capsys: Captured) -> None:
    (toy / "mine.yaml").write_text(written)
    assert "must not have { or }, which Snakemake reads as a place to fill in" in said(capsys, "toy.yaml", "mine.yaml")


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("samples: 020", "020 is read as 16"),
        ("samples: -020", "-020 is read as -16"),
        ("budgets: [1, 02]", "02 is read as 2"),
        ("target_minutes: 1:30", "1:30 is read as 90"),
        ("target_minutes: 1:30.5", "1:30.5 is read as 90.5"),
        ("pools: {020: [greedy]}", "020 is read as 16"),
    ],
)
def test_a_number_that_yaml_changes_is_refused(toy: Path, written: str, says: str, capsys: Captured) -> None:
    (toy / "mine.yaml").write_text(f"# first\n{written}\n")
    assert f"mine.yaml, line 2: {says}" in said(capsys, "toy.yaml", "mine.yaml")


@pytest.mark.parametrize("written", ["samples: 1_000", "samples: 0x10", "title: '020'", "target_minutes: 010.5"])
def test_a_number_that_means_what_is_written_is_read(toy: Path, written: str) -> None:
    key, value = written.split(": ")
    (toy / "mine.yaml").write_text(f"benchmarks: {{sums: {{{written}}}}}" if key == "title" else written)
    found = check.load([*check.DEFAULT_FILES, "toy.yaml", "mine.yaml"])
    expected = {"1_000": 1000, "0x10": 16, "'020'": "020", "010.5": 10.5}[value]
    assert getattr(found.benchmarks["sums"] if key == "title" else found, key) == expected


def test_sides_that_are_drawn_otherwise_are_said_in_one_line(toy: Path, capsys: Captured) -> None:
    assert "part of a difference may be theirs" not in said(capsys, "toy.yaml", status=0)
    side = {"engine": "vllm", "dtype": "bfloat16", "kv_cache_dtype": "fp8", "quantization": "fp8", "template": "plain"}
    (toy / "mine.yaml").write_text(
        yaml.safe_dump({"checkpoints": {"toy-base": side}, "pairs": {"toy": {"templates": "own"}}})
    )
    notes = [line for line in said(capsys, "toy.yaml", "mine.yaml", status=0).splitlines() if line.startswith("pair ")]
    assert notes == [
        "pair toy: Base has engine vllm, dtype bfloat16, quantization fp8, kv_cache_dtype fp8, template plain; RL has"
        " engine transformers, dtype float32, quantization none, kv_cache_dtype auto, template zoo; part of a"
        " difference may be theirs"
    ]


def test_no_text_advises_to_install_this_package_from_a_registry() -> None:
    globs = ("src/**/*", "lab/**/*", "workflow/**/*", "profiles/**/*", "config/*", "docs/*.md", "examples/**/*", "*.*")
    files = [path for glob in globs for path in ROOT.glob(glob) if path.is_file()]
    advice = re.compile(
        rb"((pip|tool|pipx) install|uvx)[^\n]*(?<![/\w-])['\"]?searchlens(\[| |'|\"|\)|`|$)", re.MULTILINE
    )
    assert [str(path) for path in files if advice.search(path.read_bytes())] == []


# ---- the folder of a study: where commands look for its configuration, and what they merge


@pytest.fixture
def study(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A folder with the shipped configuration and settings of its own; the present folder is another one."""
    folder = tmp_path / "study"
    shutil.copytree(ROOT / "config", folder / "config")
    (folder / "resources").symlink_to(ROOT / "resources")
    (folder / "config/own.yaml").write_text("results: results/own\nstudy: {benchmarks: [math]}\nequivalence: null\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return folder


def test_a_command_outside_of_a_study_says_how_to_name_one(study: Path, capsys: Said) -> None:
    assert main(["check"]) == 2
    assert "Hint: run in the study's folder, or name it: -C DIR" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["before", "after", "variable"])
def test_a_study_is_named_from_anywhere(study: Path, place: str, monkeypatch: Patch, capsys: Said) -> None:
    """Its own settings are merged without naming them, paths are relative to it, and the present folder stays."""
    here = Path.cwd()
    if place == "variable":
        monkeypatch.setenv("SEARCHLENS_STUDY", str(study))
    named = {"before": ["-C", str(study), "check"], "after": ["check", "-C", str(study)], "variable": ["check"]}
    assert main(named[place]) == 0
    answer = capsys.readouterr()
    assert answer.out.startswith("configuration is valid: 2 cells")
    assert answer.err == "study: config/own.yaml; results: results/own\n"
    assert Path.cwd() == here and not list(here.iterdir())


def test_the_folder_of_an_option_wins_over_the_variable(study: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("SEARCHLENS_STUDY", "nowhere")
    assert main(["check"]) == 2
    assert main(["-C", str(study), "check"]) == 0


def test_a_job_with_a_snapshot_stays_in_its_folder(study: Path, monkeypatch: Patch, capsys: Said) -> None:
    """Its paths are relative to the folder in which Snakemake started it, whatever the variable says."""
    assert main(["-C", str(study), "snapshot"]) == 0
    snapshot = capsys.readouterr().out.strip()
    monkeypatch.chdir(study)
    monkeypatch.setenv("SEARCHLENS_STUDY", "nowhere")
    assert main(["check", "--snapshot", snapshot]) == 0


def test_files_are_merged_in_the_order_in_which_they_are_named(study: Path, capsys: Said) -> None:
    for name, folder in (("a", "results/a"), ("b", "results/b")):
        (study / f"{name}.yaml").write_text(yaml.safe_dump({"results": folder}))
    assert main(["check", "-C", str(study), "--config", "b.yaml", "--config", "a.yaml"]) == 0
    assert capsys.readouterr().err == "study: config/own.yaml, b.yaml, a.yaml; results: results/a\n"


def test_a_new_study_is_valid_and_says_what_is_missing(tmp_path: Path, capsys: Said) -> None:
    """Before anything is filled in: two cells with placeholders, and a law to be fitted."""
    folder = tmp_path / "new"
    assert main(["init", str(folder)]) == 0
    commands = re.findall(r"searchlens (-C \S+ \w+)", capsys.readouterr().out)
    assert commands == [f"-C {folder} {command}" for command in ("check", "plan", "run")]
    assert [main(command.split()) for command in commands[:2]] == [1, 0]
    answer = capsys.readouterr().out
    assert "BOPTR is fitted on mine/math500" in answer
    assert "50 generations, 50 to make" in answer


def test_a_new_study_has_the_shipped_files_with_their_comments(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path / "new")]) == 0
    for path in ("config/config.yaml", "config/policies.yaml", "config/paper.yaml", "profiles/slurm/config.yaml"):
        assert (tmp_path / "new" / path).read_bytes() == (ROOT / path).read_bytes()
    assert (tmp_path / "new/slurm/config.yaml").exists()
    assert not (tmp_path / "new/config/zoo.yaml").exists(), "it needs the cohort"
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["Snakefile", "config", "profiles", "slurm"]


@pytest.mark.parametrize("name", ["config", "Snakefile", "slurm"])
def test_nothing_is_written_over_a_study(tmp_path: Path, name: str, capsys: Said) -> None:
    (tmp_path / name).write_text("mine")
    assert main(["init", str(tmp_path)]) == 2
    assert f"already has {name}" in capsys.readouterr().err
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "mine")]


def test_a_study_needs_a_folder(tmp_path: Path, capsys: Said) -> None:
    (tmp_path / "file").write_text("")
    assert main(["init", str(tmp_path / "file")]) == 2
    assert "is a file" in capsys.readouterr().err


def test_a_new_demo_plans_the_jobs_of_the_demo(tmp_path: Path) -> None:
    """Through Snakemake, from another folder: the study's Snakefile includes the workflow, and own.yaml is merged."""
    assert main(["init", "--demo", str(tmp_path / "demo")]) == 0
    command = [sys.executable, "-m", "searchlens", "-C", str(tmp_path / "demo"), "run", "--dry-run", "--cores", "1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    jobs = dict(re.findall(r"^([\w-]+) +(\d+)$", done.stdout + done.stderr, re.MULTILINE))
    assert jobs["generate"] == "4" and jobs["landscape_micro-1m-rl"] == "1", "AIME sampled, the others read"
    assert jobs["study"] == "1", "everything that the repository's own Snakefile makes by default"


def test_a_path_of_the_study_is_relative_to_it() -> None:
    assert project.locate("zoo/base", Path("study")) == Path("study/zoo/base")
    assert project.locate("/weights", Path("study")) == Path("/weights")


def test_a_command_without_its_library_names_the_extra(study: Path, monkeypatch: Patch, capsys: Said) -> None:
    """One message for every library, wherever it is imported."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    (study / "config/own.yaml").write_text("checkpoints: {x: {hub: a/b}}\n")
    assert main(["-C", str(study), "pin"]) == 2
    assert "Hint: pip install 'huggingface-hub>=" in capsys.readouterr().err


def imported() -> Iterator[str]:
    """Top-level name of every module that the package imports, anywhere in it."""
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                yield (node.module or "").split(".")[0]
            elif isinstance(node, ast.Import):
                yield from (alias.name.split(".")[0] for alias in node.names)


def test_every_library_that_is_imported_is_a_dependency_or_an_extra() -> None:
    """And every extra that a message names exists."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(addons.EXTRAS.values()) <= set(declared["optional-dependencies"])
    base = {re.split(r"[<>=]", text)[0].replace("-", "_").lower() for text in declared["dependencies"]}
    parts_of_them = {"yaml", "pydantic_core", "sympy", "latex2sympy2_extended", "antlr4"}
    of_torch_for_gpus = {"triton"}  # the engine does without where it is missing
    by_hand = {"lm_eval"}
    of_vllm = {"packaging"}
    of_engines = {engine_kind(CheckpointSpec(engine=name)).library for name in catalogue.declared("engine")}
    assert of_engines <= set(declared["optional-dependencies"]), "its extra has the name of the library"
    known = base | of_engines | parts_of_them | of_torch_for_gpus | by_hand | of_vllm
    known |= set(addons.EXTRAS) | set(sys.stdlib_module_names)
    assert set(imported()) - known == {"searchlens"}
