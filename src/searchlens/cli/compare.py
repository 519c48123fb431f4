"""The command that needs no study: two sides' logs to all readings."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from searchlens.cli.options import Commands, grid_of, is_configured, log_options, log_wishes, put, whole
from searchlens.cli.terminal import cells, page, wrapped
from searchlens.errors import InputError, one_line, require_known
from searchlens.store.files import replace_text

if TYPE_CHECKING:
    from searchlens.comparison import LogComparison
    from searchlens.comparison.sections import Section


def _compare(args: argparse.Namespace) -> None:
    from searchlens.comparison import Wishes, compare_logs
    from searchlens.comparison import page as html

    if args.html and not Path(args.html).absolute().parent.is_dir():
        raise InputError(f"--html {args.html}: there is no folder {Path(args.html).parent}")
    known = _known_benchmark(args)
    wishes = Wishes(
        grader=args.grader or known["grader"],
        questions=known["questions"],
        models=(args.base_model, args.rl_model),
        tasks=tuple(args.task),
        failed=args.failed,
        log=log_wishes(args),
        withheld=known["withheld"] or ("--no-texts" if args.no_texts else ""),
        every_text=args.all_graders,
        seed=args.seed,
        workers=args.threads,
    )
    found = compare_logs([Path(path) for path in args.base], [Path(path) for path in args.against], wishes)
    if args.html:
        replace_text(Path(args.html), html(found))
    columns = shutil.get_terminal_size().columns
    put(args, found.to_dict() if args.json else {}, lambda _: rendered(found, columns), page)


def _known_benchmark(args: argparse.Namespace) -> dict[str, Any]:
    """Questions and grader of a benchmark of a study, and why its texts are not to be quoted."""
    if not args.benchmark:
        return {"questions": None, "grader": "", "withheld": ""}
    if not is_configured(args):
        raise InputError(
            f"--benchmark {args.benchmark}: there is no configuration here",
            "name the folder of a study that has the benchmark: -C DIR; or leave --benchmark out: the logs have golds",
        )
    grid = grid_of(args)
    name = require_known(args.benchmark, grid.config.benchmarks, "benchmark")
    grader = grid.study.benchmark(name).grader
    return {"questions": grid.inputs.questions(name), "grader": grader, "withheld": grid.study.terms(name)}


def rendered(found: LogComparison, width: int) -> str:
    """All tables, then a sentence on what each reading can and cannot say, wrapped at ``width`` cells."""
    from searchlens.comparison.sections import remarks, sections
    from searchlens.comparison.statements import told

    width = max(40, width)
    lines: list[str] = []
    for section in sections(found):
        lines += [*_section(section, width), ""]
    lines.append("What these data can and cannot say")
    for each in told(found.statements):
        lines += wrapped(f"{each.reading}: {each.can}", width)
        lines += wrapped(f"  cannot say: {each.cannot}", width) if each.cannot else []
    notes = [line for note in remarks(found) for line in wrapped(f"note: {note}", width)]
    return "\n".join([*lines, "", *notes] if notes else lines)


def _section(section: Section, width: int) -> Iterator[str]:
    yield section.title
    if section.rows:
        table = [[one_line(cell) for cell in row] for row in (section.heads, *section.rows)]
        columns = [max(map(cells, column)) for column in zip(*table, strict=True)]
        for row in table:
            padded = (cell + " " * (wide - cells(cell)) for cell, wide in zip(row, columns, strict=True))
            yield f"  {'  '.join(padded)}".rstrip()
    if section.note:
        yield from wrapped(f"  {section.note}", width)


def add_to(command: Commands) -> None:
    """Add the command."""
    command.group("logs of other tools")
    sub = command("compare", _compare, "compare Base and RL from their log files: all readings at once")
    sub.add_argument("base", metavar="BASE", nargs="+", help="files or folders with samples of Base")
    sub.add_argument("--against", metavar="RL", nargs="+", required=True, help="files or folders with samples of RL")
    sub.text("--html", "FILE", "write a page for others to read")
    sub.shared("--json")
    text = "grader (docs/grading.md), or recorded[:SCORER]: the logs' verdicts (default: math or choice, by the golds)"
    sub.text("--grader", "NAME", text)
    sub.text("--benchmark", "NAME", "key of benchmarks of a study (-C DIR), whose golds count")
    sub.text("--base-model", "NAME", "model of Base, if its files have several")
    sub.text("--rl-model", "NAME", "model of RL, if its files have several")
    text = "what to do with failed requests and missing samples"
    sub.add_argument("--failed", default="", choices=("drop", "wrong", "unequal"), help=text)
    log_options(sub)
    sub.flag("--all-graders", "let math-verify judge all texts, not 2,000 of them")
    sub.flag("--no-texts", "quote no text on the page")
    sub.text("--seed", "N", "seed of all that is drawn (default: 0)", type=whole(0), default=0)
    cores = len(os.sched_getaffinity(0))
    sub.text("--threads", "N", "processes (default: all cores)", type=whole(1), default=cores)
