"""Commands of logs and samples: compare logs, import, list, export, record, trace, check and remove samples."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from searchlens.catalogue import declared
from searchlens.cli.options import Commands, Parser, cell_of, grid_of, is_configured, opened, put, run_command, whole
from searchlens.cli.terminal import cells, page, say, wrapped
from searchlens.config.model import TraceSpec
from searchlens.config.project import IMPORTS_FILE
from searchlens.errors import InputError, JobError, counted, one_line, require_known
from searchlens.plan import Grid, Traced
from searchlens.store import snapshots
from searchlens.store.files import replace_text

if TYPE_CHECKING:
    from searchlens.comparison import LogComparison
    from searchlens.comparison.sections import Section


_OPEN = ("date", "partial", "repeats", "id_key", "question_key", "gold_key")


def _log_options(sub: Parser) -> None:
    """What formats of logs leave open; ``_log_wishes`` reads it."""
    sub.several("--task", "NAME", "task of the logs, if they have several")
    sub.text("--date", "NAME", "run of the logs, if they have several (lm-eval)")
    sub.flag("--partial", "read logs of unfinished runs")
    sub.text("--repeats", "N", "samples of each question (EvalScope without reviews)")
    for option, what in (("--id-key", "ids"), ("--question-key", "questions"), ("--gold-key", "right answers")):
        sub.text(option, "FIELD", f"field that has {what}, if its name is unusual (lm-eval, NeMo-Skills)")


def _log_wishes(args: argparse.Namespace, *more: str) -> dict[str, str]:
    """What was said of it and of more options; a reader gets them by these names."""
    given = {name: getattr(args, name) for name in (*_OPEN, *more)}
    return {name: "yes" if value is True else value for name, value in given.items() if value}


def _compare(args: argparse.Namespace) -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its matrices are small, and waiting threads use processor time
    from searchlens.comparison import Wishes, compare_tasks
    from searchlens.comparison import page as html

    if args.html and not Path(args.html).absolute().parent.is_dir():
        raise InputError(f"--html {args.html}: there is no folder {Path(args.html).parent}")
    base, rl = _sides(args)
    known = _known_benchmark(args)
    wishes = Wishes(
        grader=args.grader or known["grader"],
        questions=known["questions"],
        models=(args.base_model, args.rl_model),
        tasks=tuple(args.task),
        failed=args.failed,
        log=_log_wishes(args),
        withheld=known["withheld"] or ("--no-texts" if args.no_texts else ""),
        samples=bool(args.html),
        every_text=args.all_graders,
        seed=args.seed,
        workers=args.threads or len(os.sched_getaffinity(0)),
    )
    found = compare_tasks(base, rl, wishes)
    if args.html:
        replace_text(Path(args.html), html(*found))
    columns = shutil.get_terminal_size().columns
    tasks = {one.task: one.to_dict() for one in found if args.json}
    put(args, tasks.get("", {"tasks": tasks}), lambda _: _all_tasks(found, columns), page)


def _all_tasks(found: Sequence[LogComparison], width: int) -> str:
    """What is shown of each task, behind the answers in short if there are several."""
    each = [rendered(one, width) for one in found]
    short = (line for one in found for line in wrapped(f"{one.task}: {one.statements[0].can}", max(40, width)))
    return "\n\n".join(["\n".join(short), *each] if len(found) > 1 else each)


def _sides(args: argparse.Namespace) -> tuple[list[Path], list[Path]]:
    """The files of Base and RL: those that are named, or the sample logs."""
    from searchlens.comparison.logs import HARNESSES, sample_logs

    if bool(args.base) != bool(args.against) or bool(args.base) == args.demo:
        raise InputError(
            "compare reads files of both sides: BASE --against RL; or the sample logs: --demo alone",
            "searchlens compare logs/base --against logs/rl",
        )
    if not args.demo:
        return [Path(path) for path in args.base], [Path(path) for path in args.against]
    say("A toy pair of a million parameters on 60 toy questions of our own. The logs, by harness:", sys.stderr)
    for harness, title in HARNESSES.items():
        paths = " --against ".join(shlex.quote(str(path)) for path in sample_logs(harness))
        say(f"{title}: searchlens compare {paths}", sys.stderr)
    base, rl = sample_logs()
    return [base], [rl]


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
    """The answer in short, all tables, then what each measure can and cannot say, wrapped at ``width`` cells."""
    from searchlens.comparison.sections import remarks, sections
    from searchlens.comparison.statements import told

    width = max(40, width)
    short, *others = told(found.statements)
    lines = [*([f"Task {found.task}"] if found.task else []), *wrapped(short.can, width), ""]
    for section in sections(found):
        lines += [*_section(section, width), ""]
    lines.append("What these data can and cannot say")
    for each in others:
        lines += wrapped(f"{each.measure}: {each.can}", width)
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


def _add_compare(command: Commands) -> None:
    text = "compare Base and RL from their log files: all measures at once"
    sub = command("compare", _compare, text, "--demo", "logs/base --against logs/rl --html page.html")
    sub.add_argument("base", metavar="BASE", nargs="*", help="files or folders with samples of Base")
    sub.add_argument("--against", metavar="RL", nargs="+", default=[], help="files or folders with samples of RL")
    sub.flag("--demo", "compare sample logs of a toy pair, which come with the package")
    sub.text("--html", "FILE", "write a page for others to read")
    sub.shared("--json")
    text = "grader (docs/grading.md), or recorded[:SCORER]: the logs' verdicts (default: math or choice, by the golds)"
    sub.text("--grader", "NAME", text)
    sub.text("--benchmark", "NAME", "benchmark of a study (-C DIR), whose right answers are taken")
    sub.text("--base-model", "NAME", "model of Base, if its files have several")
    sub.text("--rl-model", "NAME", "model of RL, if its files have several")
    sub.choice("--failed", "what to do with failed requests and missing samples", "drop", "wrong", "unequal")
    _log_options(sub)
    sub.flag("--all-graders", "let math-verify judge all texts, not 2,000 of them")
    sub.flag("--no-texts", "quote no text on the page")
    sub.text("--seed", "N", "seed of all that is drawn", type=whole(0), default=0)
    sub.text("--threads", "N", "processes (default: all cores)", type=whole(1), default=None)


def _import(args: argparse.Namespace) -> None:
    from searchlens.cli.stages.importing import Request, import_samples
    from searchlens.formats.reading import Choices

    given, wishes = vars(args), _log_wishes(args, "requests", "right", "logprobs")
    same = {name: given[name] for name in ("role", "base", "rl", "policy", "ids", "failed")}
    choices = Choices(**same, tasks=tuple(args.task), wishes=wishes)
    same = {name: given[name] for name in ("pair", "benchmark", "grader", "subset")}
    request = Request(**same, choices=choices, is_confirmed=args.yes)
    imported = import_samples(grid_of(args), [Path(file) for file in args.files], request, is_dry=args.dry_run)
    say("\n".join(imported.report))
    if args.dry_run:
        say("nothing was written (--dry-run)")
        return
    for record, shard in zip(imported.records, imported.shards, strict=True):
        say(f"imported {counted(shard.sidecar['rows'], 'sample')} as {record.name} into {shard.path}")
    names = {record.name for record in imported.records}
    say(f"next: {run_command(args) if _takes(grid_of(args), names) else run_command(args, IMPORTS_FILE)}")


def _takes(grid: Grid, names: set[str]) -> bool:
    """Whether a study has imports of these names, and can be run as it is."""
    if not names <= {item.name for item in grid.study.imports}:
        return False
    try:
        grid.check()
        grid.require_ready()
    except InputError:
        return False
    return True


def _imports(args: argparse.Namespace) -> None:
    from searchlens.cli.verify import listing, remove

    grid = grid_of(args)
    for line in remove(grid, args.remove) if args.remove else listing(grid):
        say(line)


def _export(args: argparse.Namespace) -> None:
    from searchlens.formats.export import export, lost

    study = opened(args)
    written = export(study, args.to, Path(args.output), args.policy)
    say(f"{counted(len(written), 'file')} under {args.output}")
    say(f"not in this format: {lost(args.to)}")
    for name in study.cells["benchmark"].unique():
        if why := study.withheld(name):
            say(f"{name}: questions, golds, texts and answers are left out, ids are there: {why}")


def _record(args: argparse.Namespace) -> None:
    from searchlens.cli.stages.record import record

    written, unfinished = record(grid_of(args), Path(args.output))
    for path in written:
        say(path)
    for cell in unfinished:
        say(f"skipped, because it is not sampled and scored yet: {cell}")
    if not written:
        raise JobError("nothing was recorded", f"`{run_command(args)}` samples and scores what is missing")


def _rerun(args: argparse.Namespace) -> None:
    from searchlens.cli.verify import set_cell_aside

    grid = grid_of(args)
    cell = cell_of(grid, args)
    if args.policy:
        names = [name for generation in grid.jobs.generations(*cell) for name in generation.policies]
        require_known(args.policy, names, "policy")
    shards, moved = set_cell_aside(grid, *cell, args.policy)
    for path in moved:
        say(path)
    say(f"{counted(len(shards), 'shard')} moved aside; `{run_command(args)}` samples again what is missing")


def _trace(args: argparse.Namespace) -> None:
    from searchlens.sampling import trace

    grid = grid_of(args)
    section = grid.config.study.trace or TraceSpec()
    traced = Traced(args.questions or section.questions, args.runs)
    snapshots.save(grid.config)  # sidecars have its fingerprint
    for path in trace(grid, *cell_of(grid, args), args.policy, traced, threads=args.threads):
        say(path)


def _work(args: argparse.Namespace) -> None:
    from searchlens.cli.run import require_engines
    from searchlens.sampling import stop_signals, work

    grid = grid_of(args)
    grid.check()
    grid.require_ready()
    require_engines(grid)
    snapshots.save(grid.config)  # sidecars of shards have its fingerprint
    with stop_signals(grid.config.grace_seconds) as notice:
        work(grid, notice, threads=args.threads)


def _push(args: argparse.Namespace) -> None:
    from searchlens.cli.transport import push

    say(push(grid_of(args), args.place, args.there))


def _pull(args: argparse.Namespace) -> None:
    from searchlens.cli.transport import pull

    say(pull(grid_of(args), args.place))


def _verify(args: argparse.Namespace) -> None:
    from searchlens.cli.verify import rendered, verify

    study = None if args.folder else grid_of(args)
    report = verify(study.layout.results if study else Path(args.folder), repair=args.repair, study=study)
    put(args, asdict(report), lambda _: rendered(report))
    if report.damaged and not report.repaired:
        raise InputError(f"{report.counts}, {len(report.damaged)} are damaged or missing", "; ".join(report.advice))


def _prune(args: argparse.Namespace) -> None:
    from searchlens.cli.verify import unused
    from searchlens.store import files

    found = unused(grid_of(args))
    paths = list(chain(*found.values()))
    for path in paths:
        say(path)
    if args.delete:
        files.remove(paths)
    *first, last = (counted(len(each), kind) for kind, each in found.items())
    say(f"{', '.join(first)} and {last} {'deleted' if args.delete else 'would be deleted (add --delete)'}")


def add_to(command: Commands) -> None:
    """Add the commands of logs and of samples."""
    command.group("samples")
    _add_compare(command)
    _add_imports(command)
    sub = command("export", _export, "write samples for another tool (docs/formats.md)", "mine/results out --to csv")
    sub.add_argument("--to", required=True, choices=tuple(declared("exporter")), help="format of the files")
    sub.several("--policy", "NAME", "a policy; default: all")
    sub.add_argument("folder", metavar="RESULTS", help="results folder")
    sub.add_argument("output", metavar="OUT", help="folder that does not exist yet")
    sub = command("record", _record, "save recorded counts of finished cells", "-C mine --output counts")
    text = "folder of recorded counts; later studies name it as `study.recorded_counts`"
    sub.text("--output", "FOLDER", text, required=True)
    sub = command("rerun", _rerun, "let the next run draw samples again", "--checkpoint mine-rl --benchmark math500")
    sub.shared("--checkpoint", "--benchmark")
    sub.text("--policy", "NAME", "move samples of this policy alone")
    text = "record searches whose samples exist: draw the first again"
    sub = command("trace", _trace, text, "--checkpoint mine-base --benchmark math500 --policy entropy_tree_b4")
    sub.shared("--checkpoint", "--benchmark")
    sub.text("--policy", "NAME", "a policy that was sampled there", required=True)
    sub.text("--questions", "N", "the first N questions (default: study.trace, or 3)", type=whole(1), default=None)
    sub.text("--runs", "N", "how many runs of each", type=whole(1), default=1)
    sub.shared("--threads")
    sub = command("work", _work, "sample what is missing, with other workers, until all is there", "mine --threads 4")
    sub.add_argument("study", metavar="STUDY", nargs="?", default=argparse.SUPPRESS, help="folder of the study, as -C")
    sub.shared("--threads")
    text = "folder of the study there, which has its configuration"
    sub = command("push", _push, "send samples to this study's folder elsewhere", "-C mine me@cluster:studies/mine")
    sub.add_argument("place", metavar="[HOST:]DIR", help=text)
    sub.text("--there", "PROGRAM", "searchlens on that machine, which verifies them", default="searchlens")
    sub = command("pull", _pull, "fetch samples from this study's folder elsewhere", "-C mine me@cluster:studies/mine")
    sub.add_argument("place", metavar="[HOST:]DIR", help=text)
    sub = command("verify", _verify, "check a whole results folder: shards, manifests, tables", "mine/results")
    sub.results()
    sub.flag("--repair", "set damaged files aside, so that the next run makes them again")
    sub.shared("--json")
    sub = command("prune", _prune, "list unused samples and leftovers of killed jobs", "-C mine", "-C mine --delete")
    sub.flag("--delete", "delete them, instead of listing them")


def _add_imports(command: Commands) -> None:
    text = "import samples that were drawn elsewhere (docs/import.md)"
    example = "samples.jsonl --pair mine --role rl --benchmark math500 --policy temp_1.0 --dry-run"
    sub = command("import", _import, text, example)
    sub.add_argument("files", metavar="FILE", nargs="+", help="files or folders of one format")
    sub.add_argument("--pair", required=True, metavar="NAME", help="key of pairs, or a new name")
    sub.add_argument("--benchmark", required=True, metavar="NAME", help="key of benchmarks, or a new name")
    sub.choice("--role", "side of the pair that drew all samples", "base", "rl")
    sub.text("--base", "MODEL", "Base, as the log names it")
    sub.text("--rl", "MODEL", "RL, as the log names it")
    sub.text("--policy", "NAME", "name of the policy; default: what the log says")
    text = "grader of a new benchmark (docs/grading.md), or recorded[:SCORER]: the log's verdicts"
    sub.text("--grader", "NAME", text, default="math")
    text = "how the log names questions; index: by their order in the benchmark"
    sub.choice("--ids", text, "own", "index", default="own")
    sub.text("--subset", "NAME", "new benchmark of the questions that have samples")
    sub.choice("--failed", "what to do with failed requests", "drop", "wrong")
    sub.flag("--dry-run", "show what was found and write nothing")
    sub.flag("--yes", "import in spite of what was found")
    _log_options(sub)
    sub.text("--requests", "FILE", "what was asked (batch output)")
    sub.text("--right", "CONDITION", "such as 'acc == 1' (rollouts of training)")
    sub.choice("--logprobs", "log-probabilities are those of the raw model (batch output)", "raw")
    sub = command("imports", _imports, "list imported samples, or take some back", "-C mine --remove mine/math500")
    sub.text("--remove", "PAIR/BENCHMARK[/ROLE[/POLICY]]", "take these samples back")
