"""What was found as one HTML page that asks for nothing: no script, no font, no image, no request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from searchlens import __version__
from searchlens.api.statements import told
from searchlens.comparing.found import LogComparison
from searchlens.comparing.sections import Section, remarks, sections
from searchlens.errors import printable
from searchlens.grading.recorded import is_recorded
from searchlens.readings.measures import BASE, LUCK, RL

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --base: #2166ac; --rl: #b2182b; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .3rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .2rem .7rem .2rem 0; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
th, td { white-space: nowrap; } .prose td { white-space: normal; min-width: 9rem; overflow-wrap: anywhere; }
.note { color: color-mix(in srgb, CanvasText 70%, Canvas); font-size: .9rem; margin: .2rem 0; }
svg { max-width: 36rem; width: 100%; height: auto; }
@media (prefers-color-scheme: dark) { :root { --base: #78b4e8; --rl: #f4877e; } }
pre { white-space: pre-wrap; overflow-wrap: anywhere; border-left: 3px solid var(--line); padding-left: .6rem; }
@media (max-width: 30rem) {
  body { padding: .7rem; } .prose thead { display: none; } .prose td { display: block; border: 0; padding: 0 0 .2rem; }
  .prose tr { display: block; border-bottom: 1px solid var(--line); padding: .4rem 0; }
  .prose td:first-child { font-weight: 600; }
  .prose td:last-child::before { content: "Cannot say: "; font-weight: 600; }
  svg { font-size: 17px; }
}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(found: LogComparison) -> str:
    """The page, complete, as text of HTML."""
    base, rl = found.sides
    title = f"{base.model or 'Base'} and {rl.model or 'RL'}"
    parts = [
        f"<h1>{_text(title)}</h1>",
        f"<p>{_text(_head(found))}</p>",
        "<h2>What these data can and cannot say</h2>",
        _table(
            ("reading", "they say", "they cannot say"),
            [(each.reading, each.can, each.cannot) for each in told(found.statements)],
            "prose",
        ),
        "<h2>pass@k by number of samples</h2>",
        _curves(found),
    ]
    parts += [_section(each) for each in sections(found)]
    parts += _examples(found)
    notes = "".join(f"<li>{_text(line)}</li>" for line in remarks(found))
    parts += ["<h2>Notes</h2>", f"<ul>{notes}</ul>" if notes else "<p>None.</p>"]
    parts.append(f'<p class="note">searchlens {_text(__version__)}</p>')
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{_text(title)}</title><style>{_STYLE}</style>"
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n' + "\n".join(parts) + "\n</body></html>\n"


def _head(found: LogComparison) -> str:
    base, rl = found.sides
    count = len(found.common)
    return (
        f"{count:,} question{'s' * (count != 1)}, {base.samples:,} samples of Base and {rl.samples:,} of RL, judged by"
        f" {'the verdicts in the logs' if is_recorded(found.grader) else found.grader}."
    )


def _text(text: object) -> str:
    """Text as text: nothing in it is markup, and characters that are not to be seen are escapes."""
    return escape(printable(str(text)))


def _section(section: Section) -> str:
    table = _table(section.heads, section.rows) if section.rows else ""
    note = f'<p class="note">{_text(section.note)}</p>' if section.note else ""
    return f"<h2>{_text(section.title)}</h2>\n{table}{note}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "") -> str:
    head = "".join(f"<th>{_text(name)}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    named = f' class="{kind}"' if kind else ""
    table = f"<table{named}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide" tabindex="0">{table}</div>'


def _examples(found: LogComparison) -> Iterator[str]:
    """Ends of texts that graders judge differently, unless texts are withheld."""
    rows = found.opinions.examples.to_dicts()
    if not rows:
        return
    yield "<h2>Samples that graders judge differently</h2>"
    note = f"No text is shown: {found.withheld}." if found.withheld else "The end of each text, if there is one."
    yield f'<p class="note">{_text(note)}</p>'
    for row in rows:
        ours, theirs = ("right" if row[name] else "wrong" for name in ("ours", "theirs"))
        where = f"{row['side']}, question {row['question']}, sample {row['sample']}"
        gold = "" if found.withheld else f", gold {row['gold']}"
        said = f"{where}: {found.grader} {ours}, {row['grader']} {theirs}{gold}"
        yield f"<p>{_text(said)}</p>"
        if row["end"] and not found.withheld:
            yield f"<pre>{_text(row['end'])}</pre>"


# ---- curves

_WIDE, _HIGH = 560, 300
_LEFT, _TOP, _RIGHT, _BOTTOM = 54, 12, 12, 40


def _curves(found: LogComparison) -> str:
    """pass@k of both sides with their bands, and their luck as broken lines."""
    frame = found.comparison.measures
    rows = frame.filter(measure="pass@k").to_dicts()
    ks = sorted({row["k"] for row in rows})
    if len(ks) < 2:
        return ""
    parts = [_axes(ks)]
    for side, colour in ((BASE, "var(--base)"), (RL, "var(--rl)")):
        line = sorted((row for row in rows if row["side"] == side), key=lambda row: row["k"])
        ends = [*((row["k"], row["hi"]) for row in line), *((row["k"], row["lo"]) for row in reversed(line))]
        parts.append(f'<polygon points="{_points(ends, ks)}" fill="{colour}" opacity="0.2"/>')
        parts.append(_line([(row["k"], row["value"]) for row in line], ks, colour))
        lucky = frame.filter(measure=LUCK, side=side).sort("k").select("k", "value").rows()
        parts.append(_line(lucky, ks, colour, ' stroke-dasharray="4 4"') if lucky else "")
    legend = (
        f'<text x="{_LEFT + 10}" y="{_TOP + 14}" fill="var(--base)">Base</text>'
        f'<text x="{_LEFT + 65}" y="{_TOP + 14}" fill="var(--rl)">RL</text>'
    )
    if not frame.filter(measure=LUCK).is_empty():
        legend += f'<text x="{_LEFT + 105}" y="{_TOP + 14}">broken: luck</text>'
    box = f'viewBox="0 0 {_WIDE} {_HIGH}" role="img" aria-label="pass@k of Base and RL by number of samples"'
    return f'<svg {box} font-size="13" fill="currentColor">{"".join(parts)}{legend}</svg>'


def _line(points: Sequence[tuple[int, float]], ks: Sequence[int], colour: str, more: str = "") -> str:
    return f'<polyline points="{_points(points, ks)}" fill="none" stroke="{colour}" stroke-width="2"{more}/>'


def _points(points: Sequence[tuple[int, float]], ks: Sequence[int]) -> str:
    return " ".join(f"{_x(k, ks):.1f},{_y(value):.1f}" for k, value in points)


def _x(k: int, ks: Sequence[int]) -> float:
    """Every doubling is as wide as any other: the k are powers of two."""
    return _LEFT + (_WIDE - _LEFT - _RIGHT) * (k.bit_length() - 1) / max(1, ks[-1].bit_length() - 1)


def _y(value: float) -> float:
    return _TOP + (_HIGH - _TOP - _BOTTOM) * (1 - value)


def _axes(ks: Sequence[int]) -> str:
    grid = "".join(
        f'<line x1="{_LEFT}" x2="{_WIDE - _RIGHT}" y1="{_y(share):.1f}" y2="{_y(share):.1f}" stroke="var(--line)"/>'
        f'<text x="{_LEFT - 6}" y="{_y(share) + 4:.1f}" text-anchor="end">{share:.0%}</text>'
        for share in (0.0, 0.25, 0.5, 0.75, 1.0)
    )
    marks = "".join(f'<text x="{_x(k, ks):.1f}" y="{_HIGH - _BOTTOM + 18}" text-anchor="middle">{k}</text>' for k in ks)
    return grid + marks + f'<text x="{_WIDE / 2:.0f}" y="{_HIGH - 4}" text-anchor="middle">samples k</text>'
