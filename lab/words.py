"""Whether pages, captions and help texts are in plain words: ``make words``. Exit status 1 if any is not.

Checked are private words, the length of sentences, and the words of a page, of the pages for users and of all pages.
In a sentence, code and the targets of links do not count, and inline code is one word. Table cells have no sentences.
Of a page everything counts but the marks of tables, lists and headings; of pages that are generated nothing.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from searchlens.cli.main import parser

ROOT = Path(__file__).parents[1]
LONG, MOST = 25, 40
"""Words that nine in ten sentences of a page do not exceed, and that no sentence does."""
PRIVATE = {
    r"house": "import rule, or ours",
    r"luck(?:y|ily)?": "wrong-key rate, or chance",
    r"readings|(?:an?|the|each|every|this|that|one|another|no|its|paper's) reading": "measure, or metric",
    r"read-?outs?": "estimator, or recorded counts",
    r"held(?![ -](?:out|up))": "kept, or compared (held against)",
    r"mend(?:s|ed|ing)?": "fix",
    r"cure[sd]?": "fix, or remedy",
    r"(?:stands?|stood)(?!-| for\b| out\b)": "is",
    r"rivals?": "alternative, or baseline",
    r"nothing is shown": "no difference is significant",
    r"order-free": "unbiased",
    r"stragglers?": "last long samples",
}
"""Words that mean something only here: what to write instead."""
PAGES = ("README.md", "CONTRIBUTING.md", "docs/*.md")
LIMITS = {
    "README.md": 600,
    "CONTRIBUTING.md": 2250,
    "docs/artifacts.md": 1300,
    "docs/engine.md": 1250,
    "docs/findings-tables.md": 2050,
    "docs/formats.md": 1600,
    "docs/power-sampling.md": 1300,
    "docs/pretrained.md": 2000,
    "docs/reading-the-paper.md": 2560,
    "docs/validation.md": 2150,
}
"""Words of a page, where it needs other than the default."""
DEFAULT = 1100
NAVIGATION = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
USERS = frozenset(re.findall(r": ([\w-]+\.md)$", NAVIGATION.partition("\n  - Reference:")[0], re.MULTILINE))
"""Pages of docs/ for users: all before the reference in the navigation of the site."""
USERS_EACH, USERS_ALL, ALL = 1600, 20_000, 45_000
"""Words of such a page, of all such pages, and of all pages of docs/ but those that are generated."""
GENERATED = {"docs/commands.md", "docs/columns.md", "docs/glossary.md"}
EXEMPT = {"docs/zoo-cohort.md"}
"""Pages that must not be changed: a pre-registration has its date."""

CODE = "CODE"
FORMS = (
    (re.compile(r"(`+)(?:.|\n)+?\1_?|\{\{.*?\}\}"), CODE),
    (re.compile(r"!?\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\([^)\s]*\)"), r"\1"),
    (re.compile(r"<!--(?:.|\n)*?-->|</?\w[^<>\n]*>|https?://\S+|\{%.*?%\}|\*\*?(?=\S)|(?<=\S)\*\*?"), ""),
)
PRIVATE_WORD = {re.compile(rf"(?<![\w-])(?:{word})(?!\w|\.md\b)", re.I): instead for word, instead in PRIVATE.items()}
END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\bcf)(?<!\bvs)(?<!\bet al)[.!?][)\]\"'”’]*\s+(?=[^a-z\s])")
MARK = re.compile(r"^\s*(?:[-*+]|\d+\.|#\.)\s+")
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`')


class Piece(NamedTuple):
    """A paragraph, list item, heading or table row."""

    place: str
    line: int
    text: str
    sentences: bool = True

    def at(self, offset: int = 0) -> str:
        """Where something in it begins."""
        return f"{self.place}:{self.line + self.text.count(chr(10), 0, offset)}" if self.line else self.place


def plain(text: str) -> str:
    """A text without code, targets of links and markup; its lines stay."""
    for pattern, new in FORMS:
        text = pattern.sub(lambda found, new=new: _as_many_lines(found.expand(new), found.group()), text)
    return text


def _as_many_lines(text: str, old: str) -> str:
    return text + "\n" * (old.count("\n") - text.count("\n"))


def pieces(place: str, text: str) -> Iterator[Piece]:
    """The pieces of a page in Markdown or reStructuredText."""
    fence, begun, lines = "", 0, list[str]()
    for number, line in enumerate([*text.split("\n"), ""], start=1):
        bare = line.strip()
        mark = re.match(r"```+|~~~+", bare)
        if fence:
            fence = "" if mark and bare.startswith(fence) else fence
            continue
        alone = bare.startswith(("|", "#", "..", ":", "{%"))
        if lines and (not bare or alone or mark or MARK.match(line)):
            yield Piece(place, begun, plain("\n".join(lines)))
            lines = []
        if mark:
            fence = mark.group()
        elif alone:
            yield Piece(place, number, plain(line), sentences=False)
        elif bare and (lines or not line.startswith("    ")):
            begun = begun if lines else number
            lines.append(MARK.sub("", line))


def strings(place: str, text: str) -> Iterator[Piece]:
    """Strings of a source of the explorer that are sentences."""
    text = re.sub(r"/\*.*?\*/|(?<![:\"])//[^\n]*", lambda found: "\n" * found.group().count("\n"), text, flags=re.S)
    for found in STRING.finditer(text):
        said = re.sub(r"\$\{[^{}]*\}", CODE, found[1] or found[2] or "")
        if re.match(r"[A-Z].*\w \w+ \w+ \w", said) and not re.search(r"[{}<>;]|=>", said):
            yield Piece(place, text.count("\n", 0, found.start()) + 1, said)


def helps(command: argparse.ArgumentParser) -> Iterator[Piece]:
    """Texts that ``--help`` of a command and of those below it prints."""
    actions = command._actions  # argparse lists them nowhere else
    for text in (command.description, command.epilog, *(action.help for action in actions)):
        if text and text != argparse.SUPPRESS:
            yield Piece(f"{command.prog} --help", 0, plain(text))
    for action in actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in {id(below): below for below in action.choices.values()}.values():
                yield from helps(below)


def count(text: str) -> int:
    """Words of a text: what has a letter or a digit between spaces."""
    return sum(any(map(str.isalnum, word)) for word in text.split())


def too_long(texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Pages, and kinds of pages, that have more words than they may, each with what to say of it."""
    words = {name: count(text) for name, text in texts.items() if name not in GENERATED}
    docs = {name: number for name, number in words.items() if name.startswith("docs/")}
    users = {name: number for name, number in docs.items() if name.removeprefix("docs/") in USERS}
    for name, number in words.items():
        most = USERS_EACH if name in users else LIMITS.get(name, DEFAULT)
        if name not in EXEMPT and number > most:
            yield name, f"{name}:1: {number:,} words, at most {most:,}"
    for name, numbers, most in (("pages for users", users, USERS_ALL), ("docs", docs, ALL)):
        if sum(numbers.values()) > most:
            yield name, f"{name}: {sum(numbers.values()):,} words, at most {most:,}"


def sentences(piece: Piece) -> Iterator[tuple[int, int]]:
    """Where each sentence of a piece begins, and its words."""
    starts = [0, *(found.end() for found in END.finditer(piece.text)), len(piece.text)]
    for start, end in pairwise(starts):
        if words := count(piece.text[start:end]):
            yield start, words


def faults(page: Iterable[Piece]) -> Iterator[str]:
    """What is not in order in the pieces of a page, each with its place."""
    page = list(page)
    for piece in page:
        for word, instead in PRIVATE_WORD.items():
            for found in word.finditer(piece.text):
                yield f"{piece.at(found.start())}: {found.group()!r}: write {instead}"
    found = [(piece.at(start), words) for piece in page if piece.sentences for start, words in sentences(piece)]
    many = sum(words > LONG for _, words in found) * 10 > len(found)
    for place, words in found:
        if words > (LONG if many else MOST):
            yield f"{place}: a sentence of {words} words" + (f": more than one in ten has over {LONG}" * many)


def main(names: list[str]) -> int:
    """Check all, or the pages that are named; returns the exit status."""
    texts = {str(path.relative_to(ROOT)): path.read_text("utf-8") for glob in PAGES for path in sorted(ROOT.glob(glob))}
    pages = {name: list(pieces(name, text)) for name, text in texts.items() if name not in EXEMPT}
    for name, glob, split in (
        ("captions", "workflow/report/**/*.rst", pieces),
        ("paper", "paper/*.md", pieces),
        ("explorer", "web/src/**/*.js", strings),
    ):
        files = sorted(ROOT.glob(glob))
        pages[name] = [piece for path in files for piece in split(str(path.relative_to(ROOT)), path.read_text("utf-8"))]
    pages["help"] = list(helps(parser()))
    bad = 0
    long = dict(too_long(texts))
    for name in sorted({*pages, *long} & set(names or {*pages, *long})):
        said = [*faults(pages.get(name, ())), *filter(None, [long.get(name)])]
        bad += len(said)
        print(*said, sep="\n", end="\n" * bool(said))
    print(f"{bad} faults")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
