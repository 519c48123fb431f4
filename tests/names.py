"""Names that a configuration may try, and what becomes of each: refused in one line, or unharmed in every markup.

    python tests/names.py            # counts, in JSON

A key (of a pair, checkpoint, benchmark, policy or pool), a title and a folder of results is each a place for a name.
"""

import csv
import html
import json
import re
import shlex
import string
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import chdir
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl

import bad_inputs
from searchlens.config import check
from searchlens.config.check.load import merge
from searchlens.errors import InputError, printable
from searchlens.reporting import captions
from searchlens.reporting.explorer_html import element
from searchlens.reporting.tables import table
from searchlens.store.frames import write_csv
from searchlens.store.layout import Layout

SECTIONS = ("checkpoints", "pairs", "benchmarks", "policies", "pools")


BLANKS = "\t\n\r\x0b\x0c \0\x07\x1b\x7f\x85\x9b\xa0\xad\u200b\u200e\u202e\u2028\u2066\ufeff\ufffe\ue000\ud800\udcff"
LETTERS = "éßİ漢😀−—“αﬁ\u0302"
WORDS = r"""
    *a* **a** a_ a__ _a_ __a__ |x| `a` ``a`` [1]_ [a]_ a:: a\_ 1. a. A. i. #. 1.2 a... --a a--b a---b ---- ====
    a\ \* ~~a~~ ==a== $a$ $$a$$ a$b \$a $\frac$ \input{x} \a %a a%20b {a} {} {{a}} {%a%} {#a#} {user} {0} {a!r}
    }{ ^^5c ?` !` <<a>> ''a'' ,,a "a" [x](y) ![x](y) <a@b.c> http://a.b www.a.b a@b.c <b>a</b> </td> <!-- ]]>
    &lt; &amp; &#60; &a &copy </script> javascript:a =1+1 +1 -1 @a '=1 a,b a"b a;b 1e5 0x10 020 1:30 1_000 NULL
    null ~ true NaN inf None nan - -- -rf --help @file . .. .a ..a CON nul aux.txt com1 a. C:a a/b a\b /a ../a
    a/../b a//b ./a $(a) `id` $HOME ${HOME} a;id a|b a&b a>b !a ~a ~root a* a? [a] a{b,c} a'b study boptr all
    none base rl data questions questions.jsonl a.json a.parquet pool-0 a.r1 pool-01234567
"""
PHRASES = r"""
    `a <b>`_
    :a: b
    .. a::
    .. raw:: html
    - a
    * a
    + a
    # a
    > a
    1. a
    [x]: y
    =cmd|' /C calc'!A0
    a  b
"""


def names() -> list[str]:
    """Every punctuation mark, blank, control and some letters at three places, and what means something to somebody."""
    forms = ("{}a", "a{}b", "a{}", "{0}{0}")
    found = [form.format(mark) for mark in string.punctuation + BLANKS + LETTERS for form in forms]
    found += [*WORDS.split(), *(line.removeprefix("    ") for line in PHRASES.strip("\n").split("\n"))]
    found += ["", "漢" * 100, *("x" * count for count in (100, 101, 200, 201, 256, 5000))]
    return list(dict.fromkeys(found))


# ---- what reads a name out of a markup again


class _Texts(HTMLParser):
    """Texts of the elements of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts = [""]
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag in ("td", "th", "h3", "p", "li"):
            self.texts.append("")

    def handle_data(self, data: str) -> None:
        self.texts[-1] += data


_LATEX = {
    **{f"\\{mark}": mark for mark in "&%$#_{}"},
    r"\textbackslash{}": "\\",
    r"\textasciitilde{}": "~",
    r"\textasciicircum{}": "^",
    r"\textasciigrave{}": "`",
    **{f"${mark}$": mark for mark in "<>|-"},
    "{}": "",
    "---": "—",
    "--": "–",
    "``": "“",
    "''": "”",
    ",,": "„",
    "?`": "¿",
    "!`": "¡",
    **{f"${command}$": mark for mark, command in table._MATHS.items()},
}


def _table(name: str) -> table.Table:
    frame = pl.DataFrame({"name": [name, "plain"], "value": ["1", "2"]})
    return table.Table(data=frame, parts=[table.Part(frame, title=name)], notes=[name])


def in_latex(name: str) -> str:
    """As LaTeX prints it."""
    line = next(line for line in table.latex(_table(name)).splitlines() if line.endswith(" & 1 \\\\"))
    hats = re.sub(r"\$\\widehat\{(.)\}\$", "\\1\u0302", line.removesuffix(" & 1 \\\\"))
    longest = sorted(map(re.escape, _LATEX), key=len, reverse=True)
    return re.sub("|".join(longest), lambda found: _LATEX[found[0]], hats)


def in_html(name: str, folder: Path) -> str:
    path = folder / "t.csv"
    path.write_text("")
    texts = _Texts(table.html(_table(name), path)).texts
    cells = [text.strip("\n") for text in texts]
    return name if cells.count(name) == 3 else repr(cells)


def in_csv(name: str, folder: Path) -> str:
    write_csv(pl.DataFrame({"name": [name, "plain"]}), folder / "t.csv")
    with (folder / "t.csv").open(newline="", encoding="utf-8") as file:
        _, (found,), (plain,) = csv.reader(file)
    assert plain == "plain"
    return found.removeprefix("'") if found != name and found[1:2] in tuple("=+-@") else found


def in_markdown(name: str) -> str:
    from markdown_it import MarkdownIt

    page = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(table.markdown(_table(name)))
    cells = [text.strip("\n") for text in _Texts(page).texts]
    return name if cells.count(name) == 3 else repr(cells)


def in_figure(name: str) -> str:
    """As matplotlib takes it for a title."""
    from matplotlib.text import Text

    shown, is_formula = Text(text=name)._preprocess_math(name)
    return repr(shown) if is_formula else str(shown)


def in_caption(name: str) -> str:
    """As the pair and as the benchmark in the caption of every figure."""
    for path in sorted((captions.folder() / "figures").glob("*.rst")):
        text = captions.source("figure", path.stem)
        if "wildcards" in text:
            page = captions.html(text, {"pair": name, "benchmark": name})
            shown = " ".join(html.unescape(re.sub("<[^>]+>", "", page)).split())
            if not shown.startswith(f"{name} on {name}:") or "system-message" in page:
                return shown[:80]
    return name


def in_rule(name: str) -> str:
    """As wildcards of Snakemake, which finds them in a path again, and as words of a shell."""
    from snakemake.io import apply_wildcards, regex_from_filepattern

    layout = Layout(Path("results"))
    cell = ("{pair,[^/]+}", "{benchmark,[^/]+}", "pool-01234567")
    for path in (
        layout.figure(*cell, "svg"),
        layout.manifest(*cell),
        layout.landscape_frame(*cell),
        layout.recovery_frame(*cell),
    ):
        pattern = str(path)
        made = apply_wildcards(re.sub(r",\[\^/\]\+", "", pattern), {"pair": name, "benchmark": name})
        found = re.fullmatch(regex_from_filepattern(pattern), made)
        if not found or {*found.groups()} != {name}:
            return f"{made}: {found and found.groups()}"
    return shlex.split(shlex.quote(name))[0]


def in_results(name: str) -> str:
    """As the folder of results: what Snakemake makes of paths in it, and argparse of an option."""
    from argparse import ArgumentParser

    from snakemake.io import apply_wildcards, get_wildcard_names, regex_from_filepattern

    pattern = str(Layout(Path(name)).figure("{pair}", "{benchmark}", "x", "svg"))
    if get_wildcard_names(pattern) != {"pair", "benchmark"}:
        return pattern
    made = apply_wildcards(pattern, {"pair": "p", "benchmark": "b"})
    if not re.fullmatch(regex_from_filepattern(pattern), made):
        return made
    parser = ArgumentParser()
    parser.add_argument("--output")
    try:
        output = parser.parse_args(["--output", shlex.split(shlex.quote(str(Path(name, "figures"))))[0]]).output
    except SystemExit:
        return "an option"
    return name if Path(output).parent == Path(name) else output


def in_element(name: str) -> str:
    """As JSON in the explorer, and as the name of a file in it."""
    if json.loads(json.dumps({"name": name}, ensure_ascii=False).encode())["name"] != name:
        return "JSON"
    found: list[str] = []

    class Paths(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            found.append(dict(attrs)["data-path"])

    Paths().feed(element(name, b""))
    return found[0]


def in_terminal(name: str) -> str:
    return printable(name).encode("utf-8").decode()


def as_file(name: str, folder: Path) -> str:
    (folder / f"{name}.json").write_text("{}")
    found = [path.stem for path in folder.glob("*.json")]
    (folder / f"{name}.json").unlink()
    return found[0]


COMMON: dict[str, Callable[..., str]] = {
    "LaTeX": in_latex,
    "HTML": in_html,
    "CSV": in_csv,
    "Markdown": in_markdown,
    "figure": in_figure,
    "explorer": in_element,
    "terminal": in_terminal,
}
KEY = COMMON | {"caption": in_caption, "rule": in_rule, "file": as_file}
RESULTS: dict[str, Callable[..., str]] = {"rule": in_results, "terminal": in_terminal, "explorer": in_element}


def places() -> Iterator[tuple[str, dict[str, Any], dict[str, Callable[..., str]]]]:
    """Key, the configuration that has a name there as ``NAME``, and the markups that it goes through."""
    for section in SECTIONS:
        value = next(iter(bad_inputs.config()[section].values())) or {"local": {"temperature": 0.7}}
        yield section, {section: {"NAME": value}}, KEY
    yield "benchmarks.sums.title", {"benchmarks": {"sums": {"title": "NAME"}}}, COMMON
    yield "results", {"results": "NAME"}, RESULTS


def renamed(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {renamed(key, name): renamed(part, name) for key, part in value.items()}
    return name if value == "NAME" else value


def refusal(change: dict[str, Any], name: str) -> str:
    """What the reader of the configuration says of a name; empty if it takes it."""
    files = check.read(check.files())
    try:
        check.validate(merge(files.merged, renamed(change, name)))
    except InputError as error:
        return str(error)
    return ""


def unclear(message: str, key: str) -> str:
    """What is wrong with a refusal: more than one line about it, no key, something that controls a terminal."""
    _, *lines, hint = message.splitlines()
    if not hint.startswith("Hint: ") or len(lines) != 1:
        return f"{len(lines)} lines"
    if key.partition(".")[0] not in lines[0] or not re.search(r"found|'.*'", lines[0]):
        return f"no key or value: {lines[0]}"
    return "" if len(lines[0]) < 500 else f"{len(lines[0])} characters"


def outcome(key: str, change: dict[str, Any], markups: dict[str, Callable[..., str]], name: str, folder: Path) -> str:
    """``refused``, ``unharmed``, or what is wrong."""
    message = refusal(change, name)
    if message:
        wrong = unclear(message, key)
        return f"unclear: {wrong}" if wrong else "refused"
    for markup, reads in markups.items():
        needs_folder = "folder" in reads.__annotations__
        try:
            found = reads(name, folder) if needs_folder else reads(name)
        except Exception as error:
            found = f"{type(error).__name__}: {str(error)[:100]}"
        if found != name:
            return f"{markup}: {found[:160]}"
    return "unharmed"


def outcomes() -> Iterator[tuple[str, str, str]]:
    """Key, name and outcome of every name at every place."""
    with tempfile.TemporaryDirectory() as made, chdir(made):
        bad_inputs.write_study(Path("study"))
        Path("scratch").mkdir()
        scratch = Path("scratch").absolute()
        with chdir("study"):
            for key, change, markups in places():
                for name in names() if key != "benchmarks.sums.title" else filter(None, names()):  # empty: the key
                    yield key, name, outcome(key, change, markups, name, scratch)


def main() -> None:
    kinds: Counter[str] = Counter()
    for key, name, found in outcomes():
        kind = found if found in ("refused", "unharmed") else "wrong"
        kinds[kind] += 1
        if kind == "wrong":
            print(f"{key} {name[:40]!a}: {found!a}", file=sys.stderr)
    print(json.dumps({"names": len(names()), **{kind: kinds[kind] for kind in ("refused", "unharmed", "wrong")}}))


if __name__ == "__main__":
    main()
