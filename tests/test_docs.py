"""Pages of documentation: each can be found from the index, no link leads nowhere, and every command is taken."""

import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from snakemake.cli import get_argument_parser

import searchlens
from searchlens.cli.main import parser
from test_requests import own_profile

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\((?!\w+:)([^)\s#]*)(?:#([^)\s]*))?\)")
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(ROOT / folder / "README.md" for folder in ("config", "profiles", "results")),
    *sorted((ROOT / "docs").glob("*.md")),
]


def links(page: Path) -> list[tuple[Path, str]]:
    """Relative links of a page: the file, and the heading in it, which may be empty."""
    found = LINK.findall(page.read_text())
    return [((page.parent / path).resolve() if path else page, heading) for path, heading in found]


def anchors(page: Path) -> set[str]:
    """Headings of a page as its readers link to them: lower case, hyphens for spaces, without punctuation."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    assert not [path for path, _ in links(page) if not path.exists()]
    unknown = [(path.name, heading) for path, heading in links(page) if heading and heading not in anchors(path)]
    assert not unknown


def test_every_page_is_in_the_index() -> None:
    """A page that the index does not list would never be read."""
    index = ROOT / "docs" / "README.md"
    assert {path for path in PAGES if path.parent == index.parent} - {index} <= {path for path, _ in links(index)}


def test_one_version_stands_wherever_a_release_sets_it() -> None:
    bump = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["bumpversion"]
    assert bump["current_version"] == searchlens.__version__
    for place in bump["files"]:
        pattern = place["search"].replace("{current_version}", re.escape(searchlens.__version__))
        assert re.search(pattern, (ROOT / place["filename"]).read_text()), place


def test_the_paper_cites_what_it_lists_and_names_files_that_exist() -> None:
    paper, listed = ((ROOT / "paper" / name).read_text() for name in ("paper.md", "paper.bib"))
    assert set(re.findall(r"[\[ ]@(\w+)", paper)) == set(re.findall(r"^@\w+\{(\w+),", listed, re.MULTILINE))
    assert not [name for name in re.findall(r"`([\w/.-]+\.(?:md|yaml))`", paper) if not (ROOT / name).exists()]
    assert 600 <= len(paper.split("\n---\n", 1)[1].split()) <= 1000


def test_the_catalogue_of_workflows_finds_what_it_asks_for() -> None:
    usage = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    assert usage["software-stack-deployment"]["conda"] and usage["report"] and usage["mandatory-flags"]["desc"]
    assert (ROOT / "workflow/Snakefile").exists() and (ROOT / "config/README.md").exists()
    assert {"snakemake", "workflow"} <= set(re.findall(r"\w+", (ROOT / "README.md").read_text().lower()))


# ---- commands

BLOCK = re.compile(r"^ *```\w*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
PLACEHOLDERS = {"<checkpoint>": "toy-base", "<benchmark>": "sums", "COMMAND": "check", "FORMAT": "jsonl"}


def commands(program: str) -> Iterator[tuple[list[str], bool]]:
    """Words of every command of a program, and whether it stands on a line of its own, not inside of a sentence."""
    for page in PAGES:
        text = page.read_text().replace("\\\n", " ")
        rest = BLOCK.sub("", text)
        blocks = "\n".join(BLOCK.findall(text)) + "\n" + "\n".join(re.findall(r"^ {4,}(\S.*)", rest, re.MULTILINE))
        # Behind a prompt, variables or another command; up to what a shell reads.
        begin, end = r"^ *(?:\$ )?(?:[A-Z_]+=\S+ +)*(?:.*&& )?", r"(?: (?:[|>#&]|2>).*)?$"
        for line in re.findall(f"{begin}({program}(?: .*?)?){end}", blocks, re.MULTILINE):
            yield _words(line), True
        for line in re.findall(f"`({program}(?: [^`]*)?)`", rest):
            yield _words(line), False


def _words(line: str) -> list[str]:
    for placeholder, value in PLACEHOLDERS.items():
        line = line.replace(placeholder, value)
    return shlex.split(line)


@pytest.mark.parametrize("name", ["glossary", "commands", "columns"])
def test_the_page_is_generated(name: str) -> None:
    """From what tables print, from the parsers, and from the schemas of the frames."""
    made = runpy.run_path(str(ROOT / f"lab/{name}.py"))
    assert made["PAGE"].read_text() == made["page"](), "run `make schema`"


def test_described_columns_are_those_of_the_code() -> None:
    """Beside the columns of a schema, those that a stage joins to it have no type."""
    page = (ROOT / "docs/columns.md").read_text()
    others = re.findall(r"^\| (`[^|]*`) \|  \| ", page, re.MULTILINE)
    assert others == ["`token_ratio`", "`coverage`", "`trusted`"]


def test_the_python_reference_has_every_public_name() -> None:
    listed = re.findall(r"^::: searchlens\.(\w+)$", (ROOT / "docs/python.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(searchlens._PUBLIC)


MKDOCS = next(filter(None, (shutil.which("mkdocs"), shutil.which(str(ROOT / ".venv-docs/bin/mkdocs")))), "")


@pytest.mark.skipif(not MKDOCS, reason="mkdocs is not installed (make docs)")
def test_the_site_can_be_built(tmp_path: Path) -> None:
    """No link or anchor leads nowhere, which would be a warning, and a table, list or block is drawn as one."""
    build = [MKDOCS, "build", "--strict", "--quiet", "--config-file", str(ROOT / "mkdocs.yml")]
    done = subprocess.run([*build, "--site-dir", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = {path: path.read_text() for path in tmp_path.rglob("index.html")}
    assert len(pages) > 40 and (tmp_path / "search/search_index.json").exists()
    texts = {path: re.sub(r"<pre.*?</pre>", "", text, flags=re.DOTALL) for path, text in pages.items()}
    assert [
        path for path, text in texts.items() if re.search(r"<p>\||^[-*] \w|^\d+\. \w|```", text, re.MULTILINE)
    ] == []
    listed = re.findall(r"^- \[.*?\]\((.*?)\): \w", (tmp_path / "llms.txt").read_text(), re.MULTILINE)
    assert len(listed) > 40 and all((tmp_path / address / "index.html").is_file() for address in listed)


def test_every_page_is_in_the_navigation() -> None:
    """Of the site, in one of its sections."""
    navigation = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1]
    assert {path.name for path in (ROOT / "docs").glob("*.md")} == set(re.findall(r": ([\w-]+\.md)$", navigation, re.M))


def test_every_command_is_one_that_searchlens_takes(capsys: pytest.CaptureFixture[str]) -> None:
    """In a sentence the name may stand alone."""
    refused, found = [], list(commands("searchlens"))
    for words, whole in found:
        try:
            parser().parse_args(words[1:])
        except SystemExit as ended:
            said = capsys.readouterr().err
            if ended.code and (whole or "arguments are required" not in said):
                refused.append((words, said.splitlines()[-1]))
    assert not refused
    assert len([words for words, whole in found if whole]) > 50


SNAKEMAKE = [words for words, _ in commands("snakemake") if not {"...", "--version"} & set(words)]


def test_every_command_is_one_that_snakemake_takes() -> None:
    for words in SNAKEMAKE:
        get_argument_parser().parse_args(words[1:])  # ends the test at an option that it does not know


def runs() -> list[tuple[str, ...]]:
    """Commands with settings of a profile or of the command line, each once, with one file in place of all others."""
    lines = {shlex.join(words) for words in SNAKEMAKE if {"--config", "--profile"} & set(words)}
    shapes = {re.sub(r" -n| --sdm conda|(?<=--configfile )(?:[^\s-]\S*(?: |$))+", "", line) for line in lines}
    return [tuple(shlex.split(shape.replace("--configfile ", "--configfile own.yaml "))) for shape in sorted(shapes)]


@pytest.mark.parametrize("words", runs(), ids=shlex.join)
@pytest.mark.long
def test_commands_with_settings_can_be_run(words: tuple[str, ...], raw: dict[str, Any], tmp_path: Path) -> None:
    """Dry, in the folder of a small study, which has not the single files that pages ask for."""
    (tmp_path / "config").mkdir()
    (tmp_path / "DIR").mkdir()
    for name in ("config/config", "config/models", "config/benchmarks", "config/policies", "config/boptr", "own"):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(raw if name == "config/config" else {}))
    own_profile(tmp_path, "slurm")
    snakemake = [str(Path(sys.executable).parent / "snakemake"), "--snakefile", str(ROOT / "Snakefile"), "--dry-run"]
    settings = [word for word in words[1:] if not word.startswith("results/")]
    done = subprocess.run([*snakemake, *settings], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
