"""Writes docs/commands.md, every command with its options and an example: ``make schema``. All is from the parsers."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from searchlens import catalogue
from searchlens.benchmarks.known import known_benchmark
from searchlens.cli.main import parser
from searchlens.cli.options import FIRST
from searchlens.formats.export import lost

PAGE = Path(__file__).parents[1] / "docs/commands.md"
SHARED = "options of most commands"
HEAD = """# Commands

For whoever types a command: each with its options and an example, as `--help` prints them, and the formats and
benchmarks that are known. `make schema` writes this page; a first study is in [own-study.md](own-study.md).

"""


def row(action: argparse.Action) -> str:
    """An option or argument as a row of a table."""
    value = action.metavar or (action.choices and "{" + ",".join(action.choices) + "}") or action.dest.upper()
    words = [", ".join(action.option_strings), "" if action.nargs == 0 else str(value)]
    return f"| `{' '.join(filter(None, words))}` | {plain(action.help or '')} |\n"


def plain(text: str) -> str:
    """A text of ``--help`` in Markdown, outside of code."""
    text = " ".join(text.replace("%%", "%").replace("|", "\\|").split())
    return "`".join(re.sub(r"([<*_])", r"\\\1", part) if i % 2 == 0 else part for i, part in enumerate(text.split("`")))


def options(command: argparse.ArgumentParser, shared: bool) -> str:
    """The table of a command's own options, or of those that most commands have."""
    groups = [group for group in command._action_groups if (group.title == SHARED) == shared]
    actions = [each for group in groups for each in group._group_actions if each.dest != "help"]
    rows = "".join(row(each) for each in actions if each.help != argparse.SUPPRESS)
    return rows and f"| | |\n|---|---|\n{rows}\n"


def sections() -> Iterator[str]:
    """Options of most commands, then every command, first those that most users want."""
    every = parser().commands
    first = [name for names in FIRST.values() for name in names]
    yield f"## Options of most commands\n\n{options(every['check'], True)}"
    for name in [*first, *sorted(set(every) - set(first))]:
        command = every[name]
        example = "\n".join(line.strip() for line in (command.epilog or "").split("\n")[1:])
        yield f"## searchlens {name}\n\n{plain(command.description or '')}\n\n"
        yield f"```bash\n{example}\n```\n\n{options(command, False)}"


def formats() -> str:
    """Formats that are read and written, as they are declared."""
    read = catalogue.declared("reader")
    rows = [(name, each.options) for name, each in sorted(read.items())]
    text = (
        "## Formats that are read\n\n| reader | of | made from | tried on the tool's own files |\n|---|---|---|---|\n"
    )
    for name, said in rows:
        text += f"| `{name}` | {said['title']} | {said.get('versions', '')} | {'yes' if said['ran'] else 'no'} |\n"
    text += "\n## Formats that are written\n\n| `--to` | cannot hold |\n|---|---|\n"
    return text + "".join(f"| `{name}` | {plain(lost(name))} |\n" for name in sorted(catalogue.declared("exporter")))


def benchmarks() -> str:
    """The known benchmarks, as they are declared."""
    text = "\n## Benchmarks that are known\n\n`check: true` compares a file with the number of questions.\n\n"
    text += "| family | questions | regime | licence | dataset on the hub |\n|---|---|---|---|---|\n"
    for known in map(known_benchmark, catalogue.declared("family")):
        sizes = "; ".join(f"{size}: {meaning}" for size, meaning in known.sizes.items())
        hub = known.hub and f"{' '.join(filter(None, (known.hub, known.config)))} ({known.split})"
        licence = known.licence + ", gated" * known.gated
        text += f"| `{known.name}` | {plain(sizes)} | {known.regime} | {licence} | {plain(hub)} |\n"
    return text


def page() -> str:
    """The text of the page."""
    return HEAD + "".join(sections()) + formats() + benchmarks()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
