"""The structure of the package: which package may import which, and what stands in one place only."""

import ast
import json
import re
import runpy
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from mutations import TARGETS

PACKAGE = Path(__file__).parents[1] / "src/searchlens"
FILES = sorted(PACKAGE.rglob("*.py"))

FLOORS = (
    {"__version__", "errors", "garbage", "progress", "seeds"},
    {"config"},
    {"catalogue"},
    {"store"},
    {"engines", "zoo"},
    {"search"},
    {"benchmarks"},
    {"analysis", "check", "grading", "plan"},
    {"api", "boptr", "sampling"},
    {"formats", "reporting"},
    {"comparison"},
    {"cli"},
)
"""Rooms from low to high: one imports itself and those on lower floors. ``check`` is ``config/check``."""

LATE = {"cli", "__main__.py", "comparison", "engines"}
"""Where any import may stand inside a function: one command must not load the libraries of all others."""

OPTIONAL = {
    *("torch", "transformers", "tokenizers", "safetensors", "vllm", "nltk", "langdetect", "huggingface_hub"),
    *("gguf", "sentencepiece", "peft", "docutils", "jinja2"),
}
"""Extras, and libraries that only a machine with a network needs: imported where they are used."""

LATE_BY_FILE = {
    "benchmarks/files.py": {"searchlens.store": "the planner reads questions, and most of them are no Parquet files"},
    "benchmarks/prompts.py": {"searchlens.store": "most commands need no template, and so no reader of YAML"},
    "search": {"numpy": "the planner reads what a controller is composed of"},
    "analysis/uncertainty.py": {"statsmodels": "takes a second to import, and few need it"},
}
"""Imports inside functions, with their reasons."""

LOOSE = {"catalogue", "errors", "garbage", "progress", "seeds", "zoo"}


def running(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes that run: blocks for type checkers do not."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"):
            yield node
            yield from running(node)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> tuple[tuple[str, str], ...]:
    """(module, name) of every import of searchlens that runs; the name is empty for a whole module."""
    found: list[tuple[str, str]] = []
    for node in running(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "searchlens":
            found += [(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names if alias.name.split(".")[0] == "searchlens"]
    return tuple(found)


def package_of(path: Path) -> str:
    """Package of a file, or its own name for a loose one; checks of the configuration are apart from its records."""
    parts = path.relative_to(PACKAGE).parts
    return "check" if parts[:2] == ("config", "check") else parts[0].removesuffix(".py")


def target_of(module: str, name: str) -> str:
    """Package that an import reaches."""
    parts = [*module.split("."), name]
    return "check" if parts[1:3] == ["config", "check"] else parts[1]


def test_folders_import_only_lower_floors() -> None:
    below: dict[str, set[str]] = {}
    lower: set[str] = set()
    for floor in FLOORS:
        below |= {room: {room, *lower} for room in floor}
        lower |= floor
    found = [
        f"{path.relative_to(PACKAGE)}: {module}.{name}"
        for path in FILES
        for module, name in imports(path)
        if path not in (PACKAGE / "__init__.py", PACKAGE / "__main__.py")
        and target_of(module, name) not in below[package_of(path)]
    ]
    assert not found


def test_few_folders() -> None:
    folders = {path.parent for path in FILES}
    assert len(folders) <= 22
    assert len({folder.relative_to(PACKAGE).parts[0] for folder in folders - {PACKAGE}}) <= 15


def test_only_its_own_files_name_an_engine() -> None:
    """What differs between engines is declared (``engines/kind.py``)."""
    named = {
        package_of(path)
        for path in FILES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Constant) and node.value == "vllm"
    }
    assert named == {"engines"}


def test_requests_are_built_by_name() -> None:
    """So a field can be added anywhere."""
    found = [
        f"{path.relative_to(PACKAGE)}: {ast.unparse(node)}"
        for path in FILES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Request" and node.args
    ]
    assert not found


def test_single_modules() -> None:
    """Search and policies know of engines what a request is; boptr, grading and engines know nothing of shards."""
    for path in FILES:
        package = package_of(path)
        for module, name in imports(path):
            full = f"{module}.{name}"
            if package == "search" and full.startswith("searchlens.engines"):
                assert full.startswith("searchlens.engines.base"), f"{path} imports {full}"
            if package in ("boptr", "grading", "engines"):
                assert not full.startswith("searchlens.store.shards"), f"{path} imports {full}"


def test_the_instrument_knows_of_the_laboratory_only_what_installs_it() -> None:
    naming = {str(path.relative_to(PACKAGE)) for path in FILES if "searchlens_lab" in path.read_text()}
    assert naming == {"config/addons.py", "zoo.py"}  # where it is not there, messages say what brings it


def test_private_names_stay_in_their_package() -> None:
    found = []
    for path in FILES:
        for module, name in imports(path):
            private = any(part.startswith("_") and not part.startswith("__") for part in [*module.split("."), name])
            if private and target_of(module, name) != package_of(path) and package_of(path) != "cli":
                found.append(f"{path.relative_to(PACKAGE)}: {module}.{name}")
    assert not found


def test_imports_stand_at_the_top() -> None:
    found = []
    for path in FILES:
        place = path.relative_to(PACKAGE)
        if set(place.parts) & LATE:
            continue
        reasons = {**LATE_BY_FILE.get(str(place), {}), **LATE_BY_FILE.get(place.parts[0], {})}
        allowed = (*OPTIONAL, *reasons)
        found += [f"{place}: {module}" for module in imports_inside_functions(path) if not module.startswith(allowed)]
    assert not found


def imports_inside_functions(path: Path) -> Iterator[str]:
    """Modules that functions of a file import."""
    for function in ast.walk(tree_of(path)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.ImportFrom):
                    yield node.module or ""
                elif isinstance(node, ast.Import):
                    yield from (alias.name for alias in node.names)


def test_few_files_lie_loose() -> None:
    assert {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"} == LOOSE


def test_one_place_says_how_often_garbage_is_looked_for() -> None:
    spelled = re.compile(r"gc\.set_threshold\(")
    files = [*FILES, *PACKAGE.parents[1].glob("workflow/rules/*.smk"), PACKAGE.parents[1] / "workflow/Snakefile"]
    assert [path.name for path in files if spelled.search(path.read_text())] == ["garbage.py"]


def test_only_the_layout_spells_paths_under_the_results() -> None:
    folders = ("generations", "manifests", "jobs", "locks", "scores", "verdicts", "imports", "hashes", "aside")
    pattern = re.compile(rf"""["'/]({"|".join(folders)})["'/]|results ?/ ?["']""")
    found = []
    for path in FILES:
        if path.relative_to(PACKAGE).parts[0] in ("zoo",) or path.name == "layout.py":
            continue
        lines = strings_of(path)
        found += [f"{path.relative_to(PACKAGE)}: {text}" for text in lines if pattern.search(text)]
    assert not found


@pytest.mark.parametrize("package", ["store", "analysis", "boptr"])
def test_values_are_frozen(package: str) -> None:
    """What one function has computed no other may change."""
    found = [
        f"{path.relative_to(PACKAGE)}: {node.name}"
        for path in sorted((PACKAGE / package).rglob("*.py"))
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef)
        for decorator in map(ast.unparse, node.decorator_list)
        if decorator.startswith("dataclass") and "frozen=True" not in decorator
    ]
    assert not found


def strings_of(path: Path) -> Iterator[str]:
    """Parts of paths: operands of ``/`` that are strings, and strings with a slash, docstrings left out."""
    tree = tree_of(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            for side in (node.left, node.right):
                if isinstance(side, ast.Constant) and isinstance(side.value, str):
                    yield f"/{side.value}/"


def test_what_changed_decides_which_suites_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file all that it imports counts, of a folder all that is in it; without a known commit everything runs."""
    changed = runpy.run_path(str(PACKAGE.parents[1] / ".ci/changed"))["main"]
    suite = "tests/engines/test_engine_contract.py"
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 128, ""))
    assert changed("unknown", suite) == 0
    for name, status in {"src/searchlens/engines/base.py": 0, "src/searchlens/boptr/fit.py": 1, "docs/x.md": 1}.items():
        listed = subprocess.CompletedProcess([], 0, f"{name}\n")
        monkeypatch.setattr(subprocess, "run", lambda *_, listed=listed, **__: listed)
        assert changed("known", suite, "profiles") == status, name
        assert changed("known", str(Path(name).parent)) == 0


def test_what_checks_and_updates_watch_is_there() -> None:
    """So a file that moved is not watched in vain."""
    root = PACKAGE.parents[1]
    watched = re.findall(r"(?:unknown\)\"|if changed) ([^;\"]+)", (root / ".ci/run").read_text())
    places = {place for places in watched for place in places.split() if not place.startswith("$")}
    assert "requirements" in places and all((root / place).exists() for place in places)
    needs = {"github-actions": ".github/workflows/*.yaml", "npm": "package.json", "pip": "*.txt"}
    for update in yaml.safe_load((root / ".github/dependabot.yml").read_text())["updates"]:
        folder = root / update["directory"].strip("/")
        assert list(folder.glob(needs[update["package-ecosystem"]])), update


def test_public_checks_run_targets_that_exist() -> None:
    """Each `make` of the workflow on GitHub is one of the Makefile, and every one of its actions has a hash."""
    jobs = yaml.safe_load((PACKAGE.parents[1] / ".github/workflows/tests.yaml").read_text())["jobs"]
    text = json.dumps(jobs)
    asked = {name for words in re.findall(r"\bmake ([a-z][a-z -]*)", text) for name in words.split()}
    targets = set(re.findall(r"^([a-z-]+):", (PACKAGE.parents[1] / "Makefile").read_text(), re.MULTILINE))
    assert asked and asked <= targets
    assert all(re.search(r"@[0-9a-f]{40}$", action) for action in re.findall(r'"uses": "([^"]+)"', text))


def test_every_test_that_shall_notice_a_change_is_there() -> None:
    """The tests of changed code are listed by name: one that was renamed would be left out unseen."""
    tests = Path(__file__).parent
    for name in dict.fromkeys(name for _, names in TARGETS.values() for name in names):
        file, _, part = name.partition("::")
        texts = [path.read_text() for path in tests.rglob(f"test_{file}.py")]
        found = [test for text in texts for test in re.findall(r"^ *def (test_\w+)", text, re.MULTILINE)]
        assert any(re.search(part, test) for test in found), name
