"""What was found as small tables of text, the same ones for the terminal and the page."""

from __future__ import annotations

from base64 import b64encode
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any

import polars as pl

from searchlens import __version__
from searchlens.analysis import claims
from searchlens.analysis.health import cut_off, percent
from searchlens.analysis.measures import BASE, DIFFERENCE, GUESS_NULL, RL, WITHOUT_WRONG_KEY, WRONG_KEY
from searchlens.api import pages
from searchlens.comparison.arrays import picture
from searchlens.comparison.logs import LogComparison
from searchlens.comparison.samples import SIZE, left_out, shown
from searchlens.comparison.statements import told
from searchlens.errors import counted
from searchlens.grading.score import is_recorded
from searchlens.reporting.tables import table as fmt

CORRECTED = "guess-corrected pass@k"
CHANGED = 20
"""Questions that changed sides that are listed."""
_SPARE = 10_000
"""Bytes for the script, and for the sentences on what is left out."""


@dataclass(frozen=True)
class Section:
    """A small table."""

    title: str
    heads: tuple[str, ...] = ()
    rows: Sequence[Sequence[str]] = ()
    """Empty: there is nothing, and ``note`` says why."""
    note: str = ""
    """One sentence on how to read it; may be empty."""


def sections(found: LogComparison) -> list[Section]:
    """All tables, in the order in which they are shown."""
    # Of unequal numbers of samples there is no support: that and the like are not identified, as the statements say.
    is_equal = not found.comparison.support.is_empty()
    cover = [(f"{tau:g}", *_three(sides)) for tau, sides in _sides(found, "Cover@tau", "tau").items()]
    note = "Percent of questions of which at least a share τ of the samples is right."
    return [
        _samples(found),
        _pass_at_k(found, f"{found.comparison.confidence:.0%}"),
        _equivalents(found),
        *([_support(found), _changes(found), Section("Cover@τ", ("τ", *_THREE), cover, note)] if is_equal else []),
        _guessing(found),
        *([_extrapolated(found)] if is_equal else []),
        _graders(found),
    ]


def _samples(found: LogComparison) -> Section:
    heads = ("side", "model", "policy", "samples", "answered", "cut off", "unknown end", "failed", "health")
    rows = []
    for side in found.sides:
        names = (side.title, side.model or "(no name)", ", ".join(side.policies), f"{side.samples:,}")
        counts = (side.counts[name] for name in ("answered", "unknown_end", "failed"))
        answered, unknown, failed = (percent(count, side.counts["samples"]) for count in counts)
        rows.append((*names, answered, cut_off(side.counts), unknown, failed, str(side.health)))
    title = f"Samples: {counted(len(found.common), 'common question')}, grader {found.grader}"
    note = "Samples are of each question; shares are of all samples of the common questions."
    return Section(title, heads, rows, note)


def _pass_at_k(found: LogComparison, level: str) -> Section:
    rates = {(row["k"], row["side"]): row for row in _measure(found, WRONG_KEY)}
    known = {row["k"]: _percent(row, "+") for row in _measure(found, WITHOUT_WRONG_KEY) if row["side"] == DIFFERENCE}
    rows = []
    for k, sides in _sides(found, "pass@k").items():
        without = ["", ""] if rates else []
        if k in known:
            shares = [claims.percent(rates[k, side]["value"]) for side in (BASE, RL)]
            without = [", ".join([*shares, claims.percent(rates[k, DIFFERENCE]["value"], sign="+")]), known[k]]
        rows.append((str(k), *_three(sides), *without))
    note = f"Percent of questions, with {level} intervals over questions."
    if rates:
        note += " Wrong keys: the same samples, with golds of other questions; without them: RL − Base if their rate is"
        note += " alike on all questions."
    heads = ("wrong keys: Base, RL, RL − Base", "without them") if rates else ()
    return Section("pass@k", ("k", *_THREE, *heads), rows, note)


def _equivalents(found: LogComparison) -> Section:
    frame = found.comparison.equivalents
    heads: tuple[str, ...] = ("policy", "samples of RL", "samples of Base", "tokens of Base / RL")
    rows = [
        (row["policy"], str(row["budget"]), claims.located(claims.EQUIVALENT, row), claims.number(row["token_ratio"]))
        for row in frame.to_dicts()
    ]
    kept = slice(0 if frame["policy"].n_unique() > 1 else 1, 4 if frame["token_ratio"].count() else 3)
    note = "How many samples of Base solve as much as so many of RL."
    return Section("Budget equivalents", heads[kept], [row[kept] for row in rows], note)


def _support(found: LogComparison) -> Section:
    row = found.comparison.support.row(0, named=True)
    words = {
        "kept": "kept: both solve",
        "shrunk": "shrunk: Base alone",
        "expanded": f"expanded: RL alone (each by Base with a chance from 0 to {100 * row['base_epsilon']:.2g}%)",
        "out": "neither",
    }
    rows = []
    for name, word in words.items():
        questions = claims.interval(row[name], row[f"{name}_lo"], row[f"{name}_hi"], 0)
        by_chance = claims.number(row[f"{name}_null"], 1) if f"{name}_null" in row else ""
        rows.append((word, questions, str(row.get(f"{name}_significant", "")), by_chance))
    missed = max(row["base_epsilon"], row["rl_epsilon"])
    note = f"A chance of a right answer below {missed:.3f} may have been missed (95%)."
    heads = ("", "questions", "significant", "expected by chance")
    return Section("Support: questions with a right sample", heads, rows, note)


def _changes(found: LogComparison) -> Section:
    changed, of = found.comparison.support_changes.sort("p"), found.comparison
    rows = []
    for row in changed.head(CHANGED).to_dicts():
        name = found.common.base[row["question"]].id
        counts = fmt.fraction(row["base"], of.base_samples), fmt.fraction(row["rl"], of.rl_samples)
        rows.append((name, row["change"], *counts, f"{row['p_holm']:.2g}"))
    more = f" {changed.height - CHANGED:,} more are in --json." if changed.height > CHANGED else ""
    note = f"Those with the smallest p first.{more}" if rows else "There are none."
    heads = ("question", "change", "right of Base", "right of RL", "p (Holm)")
    return Section("Questions that one side alone solves", heads, rows, note)


def _guessing(found: LogComparison) -> Section:
    sides, title = _sides(found, CORRECTED), "Corrected for guessing"
    if not sides:
        return Section(title, note=claims.say(claims.OPEN_ANSWERS, {"wrong_key": _measure(found, WRONG_KEY)}))
    nulls = {row["k"]: row["value"] for row in _measure(found, GUESS_NULL) if row["side"] == BASE}
    rows = [(str(k), *_three(line), claims.percent(nulls.get(k))) for k, line in sides.items()]
    note = "pass@k without what guessing among the lettered options adds, in percent."
    return Section(title, ("k", *_THREE, "guessing alone"), rows, note)


def _extrapolated(found: LogComparison) -> Section:
    rows = []
    for row in found.comparison.extrapolated.to_dicts():
        covered, trusted = claims.number(row["coverage"]), "yes" if row["trusted"] else "no"
        rows.append((row["side"], row["model"], str(row["k"]), _percent(row), covered, trusted))
    note = "Trials predict the known pool from a quarter of it." if rows else "There are too few samples to try it."
    heads = ("side", "difficulty", "k", "pass@k", "right in trials", "to be trusted")
    return Section("pass@k beyond the samples", heads, rows, note)


def _graders(found: LogComparison) -> Section:
    rows = []
    for row in found.agreeing.to_dicts():
        share = claims.percent(row["share"], row["lo"], row["hi"])
        alone = f"{row['ours_alone']:,}", f"{row['theirs_alone']:,}"
        rows.append((row["side"], row["grader"], f"{row['compared']:,}", share, *alone))
    note = "Percent of the samples that were compared." if rows else "No other grader applies."
    heads = ("side", "grader", "samples", "agree", f"right by {found.grader} alone", "by the other alone")
    return Section("Other graders on the same samples", heads, rows, note)


def _measure(found: LogComparison, name: str) -> list[dict[str, Any]]:
    return found.comparison.measures.filter(pl.col("measure") == name).to_dicts()


def _sides(found: LogComparison, name: str, key: str = "k") -> dict[Any, dict[str, dict[str, Any]]]:
    by_key: dict[Any, dict[str, dict[str, Any]]] = {}
    for row in _measure(found, name):
        by_key.setdefault(row[key], {})[row["side"]] = row
    return by_key


_THREE = ("Base", "RL", "RL − Base")


def _three(sides: dict[str, dict[str, Any]]) -> tuple[str, str, str]:
    return _percent(sides[BASE]), _percent(sides[RL]), _percent(sides[DIFFERENCE], "+")


def _percent(row: dict[str, Any], sign: str = "") -> str:
    return claims.percent(row["value"], row["lo"], row["hi"], sign)


def remarks(found: LogComparison) -> Iterator[str]:
    """What was left out or chosen, one line each."""
    yield from found.notes
    for side in found.sides:
        if side.not_stated:
            yield f"{side.title}: the log does not state {', '.join(side.not_stated)}"
        yield from (f"{side.title}: {note}" for note in side.notes)
    if found.withheld:
        yield f"no text is quoted: {found.withheld}"


def page(*compared: LogComparison) -> str:
    """The page of one or more tasks, complete, as text of HTML of at most ``samples.SIZE`` bytes."""
    parts = [_part(each) for each in compared]
    room = SIZE - _SPARE - len(_rendered(parts).encode())
    for i, found in enumerate(compared):
        if found.to_read is not None:
            questions = list(shown(found.to_read, found.common, found.grader))
            sizes = [0, *accumulate(len(each.encode()) for each in questions)]
            count = bisect(sizes, room // (len(parts) - i)) - 1
            room -= sizes[count]
            parts[i] |= {"questions": questions[:count], "left_out": left_out(found.to_read, count)}
    return _rendered(parts)


def _rendered(parts: Sequence[Mapping[str, Any]]) -> str:
    script = Path(__file__).with_name("search.js").read_text()
    digest = b64encode(sha256(script.encode()).digest()).decode()
    values = {"parts": parts, "script": script, "digest": digest, "version": __version__}
    return pages.rendered("comparison/page.html.j2", **values)


def _part(found: LogComparison) -> dict[str, Any]:
    """What the page says of a comparison, without samples to be read."""
    base, rl = found.sides
    judge = "the verdicts in the logs" if is_recorded(found.grader) else found.grader
    drawn = f"{counted(base.samples, 'sample')} of Base and {rl.samples:,} of RL"
    short, *others = told(found.statements)
    return {
        "task": found.task,
        "title": f"{base.model or 'Base'} and {rl.model or 'RL'}",
        "head": f"{counted(len(found.common), 'question')}, {drawn}, judged by {judge}.",
        "short": short.can,
        "statements": [(each.measure, each.can, each.cannot) for each in others],
        "picture": picture(found.comparison),
        "sections": sections(found),
        "examples": list(_examples(found)),
        "withheld": found.withheld,
        "notes": list(remarks(found)),
    }


def _examples(found: LogComparison) -> Iterator[tuple[str, str]]:
    """Samples that graders judge differently, each with the end of its text unless texts are withheld."""
    for row in found.examples.to_dicts():
        ours, theirs = ("right" if row[name] else "wrong" for name in ("ours", "theirs"))
        where = f"{row['side']}, question {row['question']}, sample {row['sample']}"
        gold, end = ("", "") if found.withheld else (f", gold {row['gold']}", row["end"] or "")
        yield f"{where}: {found.grader} {ours}, {row['grader']} {theirs}{gold}", end
