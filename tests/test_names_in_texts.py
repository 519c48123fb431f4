"""Names in backticks, in pages and in docstrings, are names that there are.

What counts: a file with the suffix of a source or page, a dotted or private name, an option of a command line, and a
key of the configuration below one of its sections.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from searchlens.config.check.schema import keys_at, schema

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FOLDERS = ("src", "lab", "tests", "workflow", "validation", "perf", "config", "docs", "profiles", "slurm")

WRITTEN_BY_READERS = {
    *("capitals.py", "last_word.py", "mine.py", "cohort.yaml"),
    *(f"config/{name}.yaml" for name in ("sums", "amc", "worked", "capitals", "mine", "large", "own")),
    *(f"config/{name}.yaml" for name in ("chat", "no-thinking", "base", "sft")),
    "config/adapter.yaml",
}
"""Files of the examples, which a reader makes, and the description of a cohort, which lies next to landscapes."""


def docstrings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""


@cache
def names() -> tuple[tuple[str, str], ...]:
    """Place and content of everything in backticks; blocks of code left out."""
    found = []
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        found += [(page.name, name) for name in re.findall(r"`([^`\n]+)`", text)]
    for path in sorted((ROOT / "src").rglob("*.py")):
        place = str(path.relative_to(ROOT))
        found += [(place, name) for text in docstrings(path) for name in re.findall(r"``([^`\n]+)``", text)]
    return tuple(found)


@cache
def files() -> tuple[str, ...]:
    """Every file of the project, as a path that begins with a slash."""
    inner = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    return tuple("/" + path.relative_to(ROOT).as_posix() for path in [*inner, *ROOT.iterdir()])


@cache
def words() -> frozenset[str]:
    """Every identifier in the code, and every part of an option."""
    texts = [
        path.read_text() for folder in ("src", "tests", "validation", "perf") for path in (ROOT / folder).rglob("*.py")
    ]
    texts += [path.read_text() for path in (ROOT / "workflow").rglob("*.smk")]
    return frozenset(re.findall(r"\w+", "\n".join(texts)))


def is_key(name: str) -> bool:
    *place, key = name.split(".")
    try:
        return key in keys_at(place)
    except (KeyError, TypeError):
        return False


def test_files_exist() -> None:
    named = [(place, name) for place, name in names() if re.fullmatch(r"[\w./-]+\.(py|md|smk|yaml)", name)]
    assert len(named) > 50
    missing = [
        (place, name)
        for place, name in named
        if name not in WRITTEN_BY_READERS
        and not name.startswith("stem.")
        and not any(f.endswith("/" + name) for f in files())
    ]
    assert missing == []


def test_dotted_and_private_names_exist() -> None:
    """The last part is an identifier of the code; below a section of the configuration, a key or an identifier."""
    named = [
        (place, name) for place, name in names() if re.fullmatch(r"[A-Z]\w*\.\w+|_[a-z]\w+|[a-z_]+(\.[a-z_]+)+", name)
    ]
    assert len(named) > 100
    sections = schema()["properties"]
    missing = [
        (place, name)
        for place, name in named
        if not name.endswith((".py", ".md", ".yaml", ".json", ".csv", ".parquet"))
        and not (name.split(".")[0] in sections and is_key(name))
        and not set(name.split(".")) <= words()
    ]
    assert missing == []


def test_options_of_command_lines_exist() -> None:
    named = [(place, name) for place, name in names() if re.fullmatch(r"--[a-z-]+", name)]
    assert len(named) > 10
    ours = [path.read_text() for folder in ("src", "lab/src") for path in (ROOT / folder).rglob("*.py")]
    of_others = {  # of snakemake and apptainer
        *("--configfile", "--config", "--sdm", "--dry-run", "--cores", "--profile", "--rerun-triggers", "--resources"),
        "--bind",
    }
    missing = [
        (place, name) for place, name in named if name not in of_others and not any(name in text for text in ours)
    ]
    assert missing == []
