"""`searchlens show` and `diff` as text: the answers of both sides to questions, and what changed between folders."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import polars as pl

from searchlens.analysis.claims import interval, number, percent
from searchlens.api.differences import EXACT, Differences
from searchlens.api.study import Study
from searchlens.benchmarks.prompter import Prompt
from searchlens.cli.terminal import BAR, shortened, side_by_side, wrapped
from searchlens.errors import InputError, counted, require_known

RL_SOLVES, BASE_SOLVES, DISAGREE = "rl-solves", "base-solves", "graders-disagree"
SIDES = {"base": "Base", "rl": "RL"}
NARROW = 80
"""Width of a terminal below which the sides stand below each other."""
_NARROWEST = 20
LINES = 16
"""Lines of one answer, unless whole texts are asked for."""

Record = dict[str, Any]


def shown(study: Study, wanted: argparse.Namespace) -> Record:
    """The questions and answers that the options of the command want, as plain types.

    ``under`` are policies that a filter reads, ``matching`` is the number of questions that it lets pass, None if they
    were named, and ``withheld`` says why no text is shown, or is empty. Each of ``questions`` has index, id, text,
    gold, tags, note, and ``policies``, each with what ``base`` and ``rl`` answered. Raises InputError if a name is
    unknown, or files that the filter reads are not there.
    """
    side = _cell(study, wanted)
    policies = _policies(study, side, wanted.policy)
    disagreeing = _disagreements(study, side, required=wanted.only == DISAGREE)
    matching = None if wanted.question else _matching(study, side, policies, wanted.only, disagreeing)
    named = [int(name) if name.isascii() and name.isdigit() else name for name in wanted.question]
    chosen = named if matching is None else matching[: wanted.limit]
    return {
        "results": str(study.results),
        "pair": side["pair"],
        "benchmark": side["benchmark"],
        "only": wanted.only,
        "under": policies,
        "matching": None if matching is None else len(matching),
        "withheld": study.withheld(side["benchmark"]),
        "questions": [_question(study, side, which, policies, wanted, disagreeing) for which in chosen],
    }


def _cell(study: Study, wanted: argparse.Namespace) -> dict[str, str]:
    """Pair, benchmark and both checkpoints."""
    sides = [dict(zip(("pair", "benchmark", *SIDES), side, strict=True)) for side in study.sides]
    if not sides:
        raise InputError(f"{study.results} has no pair with both sides on a benchmark")
    for key, name in (("pair", wanted.pair), ("benchmark", wanted.benchmark)):
        if name:
            require_known(name, {side[key] for side in sides}, key)
    for side in sides:
        if wanted.pair in ("", side["pair"]) and wanted.benchmark in ("", side["benchmark"]):
            return side
    raise InputError(f"pair {wanted.pair} has no samples of both sides on benchmark {wanted.benchmark}")


def _policies(study: Study, side: Mapping[str, str], named: Sequence[str]) -> list[str]:
    if not named:
        return [study.default_policy]
    classes = [study.classes(side[role], side["benchmark"])["policy"].unique(maintain_order=True) for role in SIDES]
    if list(named) == ["all"]:
        return [name for name in classes[0] if name in set(classes[1])]
    either = list(dict.fromkeys(name for names in classes for name in names))
    return [require_known(name, either, "policy") for name in named]


# ---- which questions


def _matching(
    study: Study, side: Mapping[str, str], policies: Sequence[str], only: str, disagreeing: Sequence[Record]
) -> Sequence[int | str]:
    """Positions, or ids, of the questions that a filter lets pass."""
    if only == DISAGREE:
        return list(dict.fromkeys(row["question"] for row in disagreeing))
    base, rl = (
        study.classes(side[role], side["benchmark"])
        .filter(pl.col("policy").is_in(list(policies)))
        .group_by("question")
        .agg(pl.col("correct").sum())
        for role in SIDES
    )
    both = base.join(rl, on="question", suffix="_rl", how="full", coalesce=True).sort("question").fill_null(0)
    passes = {
        RL_SOLVES: (pl.col("correct") == 0) & (pl.col("correct_rl") > 0),
        BASE_SOLVES: (pl.col("correct") > 0) & (pl.col("correct_rl") == 0),
    }
    return list(both.filter(passes.get(only, pl.lit(value=True)))["question"])


def _disagreements(study: Study, side: Mapping[str, str], *, required: bool) -> list[Record]:
    """Samples that one of two graders calls right and the other does not."""
    found = []
    for role in SIDES:
        if required or study.layout.agreement(side[role], side["benchmark"]).exists():
            rows = study.agreement(side[role], side["benchmark"])
            differ = (pl.col("ours") == "right") != (pl.col("math_verify") == "right")
            found += rows.filter(differ).select(pl.lit(role).alias("role"), pl.all()).to_dicts()
    return found


# ---- one question


def _question(
    study: Study,
    side: Mapping[str, str],
    which: int | str,
    policies: Sequence[str],
    wanted: argparse.Namespace,
    disagreeing: Sequence[Record],
) -> Record:
    withheld, benchmark = study.withheld(side["benchmark"]), side["benchmark"]
    if wanted.only == DISAGREE and not wanted.policy:
        policies = list(dict.fromkeys(row["policy"] for row in disagreeing if row["question"] == which)) or policies
    found: Record = {"index": None, "id": None, "text": None, "gold": None, "tags": {}, "note": withheld}
    absent: InputError | None = None
    try:
        question = study.question(benchmark, which)
        which = question.index
        found |= {"index": question.index, "id": question.id}
        found |= {} if withheld else {"text": question.text, "gold": question.gold, "tags": dict(question.tags)}
    except InputError as error:
        absent = error
        found["note"] = withheld or f"the text of the question is not here: {error.message}"
    answers: list[Record] = []
    for policy in policies:
        answers.append({"policy": policy})
        for role in SIDES:
            second = [row for row in disagreeing if (row["role"], row["policy"]) == (role, policy)]
            answers[-1][role] = _side(study, (side[role], benchmark, policy, which), wanted.samples, second)
    known = [answer[role].pop("question") for answer in answers for role in SIDES]
    if absent:
        if not any(known):
            raise absent
        found |= next(filter(None, known))
    sent = {role: _prompt(study, side[role], benchmark, which) for role in SIDES} if wanted.prompt else {}
    return {**found, "prompts": sent, "policies": answers}


def _prompt(study: Study, checkpoint: str, benchmark: str, which: int | str) -> Record:
    """The prompt of a question (``Prompt``), or why it is not known."""
    try:
        return asdict(study.prompts(checkpoint, benchmark, [which])[0])
    except InputError as error:
        return {"reason": error.message}


def _side(
    study: Study, cell: tuple[str, str, str, int | str], count: int, disagreeing: Sequence[Mapping[str, Any]]
) -> Record:
    """Answers of one checkpoint to one question under one policy, or why there are none."""
    record: Record = {"checkpoint": cell[0], "right": None, "of": None, "samples": [], "reason": ""}
    try:
        rows = study.samples(*cell)
    except InputError as error:
        counts = _counts(study, *cell)
        return {**record, **counts, "reason": error.message, "question": {"index": cell[3]} if counts else {}}
    second = {row["sample"]: row["math_verify"] for row in disagreeing if row["question"] == rows["id"][0]}
    graded, withheld = rows["correct"].drop_nulls(), study.withheld(cell[1])
    # Samples on which graders disagree, then the first right and the first wrong one, then the others.
    firsts = [sample for right in (True, False) for sample in rows.filter(correct=right)["sample"].head(1)]
    order = list(dict.fromkeys([*second, *firsts, *rows["sample"]]))[:count]
    chosen, verdicts = rows.filter(pl.col("sample").is_in(order)).sort("sample"), {None: "not graded", True: "right"}
    return {
        **record,
        "right": int(graded.sum()) if len(graded) else None,
        "of": rows.height,
        "samples": [
            {
                **{key: row[key] for key in ("sample", "tokens", "logprob", "finish")},
                "verdict": verdicts.get(row["correct"], "unknown" if row["unknown"] else "wrong"),
                "math_verify": second.get(row["sample"]),
                **{key: None if withheld else row[key] for key in ("answer", "text")},
            }
            for row in chosen.to_dicts()
        ],
        "question": {"index": rows["question"][0], "id": rows["id"][0]},
    }


def _counts(study: Study, checkpoint: str, benchmark: str, policy: str, which: int | str) -> Record:
    """Right samples of a question of which only counts are kept."""
    if not isinstance(which, int) or not study.layout.landscape_frame(checkpoint, benchmark, "classes").exists():
        return {}
    rows = study.classes(checkpoint, benchmark).filter(policy=policy, question=which)
    return dict(rows.select(right="correct", of="samples").row(0, named=True)) if rows.height else {}


# ---- for terminals


def rendered(record: Record, width: int, most: int | None = LINES) -> str:
    """The result of ``shown`` as text, at most ``width`` cells wide, with at most ``most`` lines of one answer."""
    width = max(width, _NARROWEST)
    lines = [f"{record['pair']} on {record['benchmark']}, {record['results']}"]
    if (matching := record["matching"]) is not None:
        under, count = f"under {' and '.join(record['under'])}", len(record["questions"])
        what = {
            RL_SOLVES: f" that RL solves and no sample of Base does {under}",
            BASE_SOLVES: f" that Base solves and no sample of RL does {under}",
            DISAGREE: " with a sample on which two graders disagree",
        }.get(record["only"], "")
        shown_ = f"; the first {count} are shown" if matching > count else ""
        lines.append(f"{counted(matching, 'question')}{what}{shown_}")
    if record["withheld"]:
        lines += wrapped(f"Texts are not shown. {record['withheld']}.", width)
    for question in record["questions"]:
        lines += _question_lines(question, width, most)
    return "\n".join(line for text in lines for line in wrapped(text, width))


def prompt_lines(title: str, sent: Record) -> list[str]:
    """A prompt (``Prompt``) with its special tokens marked, and the ids of all tokens; or why it is not known."""
    if "reason" in sent:
        return [f"{title}: not known, {sent['reason']}"]
    ids = " ".join(map(str, sent["ids"]))
    return [f"{title}, {len(sent['ids'])} tokens, special ones in ⟦⟧:", str(Prompt(**sent)), f"(ids: {ids})"]


def _question_lines(question: Record, width: int, most: int | None) -> list[str]:
    lines = ["", "=" * width, f"question {question['index']} ({question['id']})"]
    if question["tags"]:
        lines += wrapped(", ".join(f"{key}: {value}" for key, value in question["tags"].items()), width)
    if question["text"] is not None:
        lines += wrapped(question["text"], width)
    if question["gold"]:
        lines += wrapped(f"gold: {question['gold']}", width)
    if question["note"]:
        lines += wrapped(f"({question['note']})", width)
    same = len({str(sent) for sent in question["prompts"].values()}) == 1
    for role, sent in list(question["prompts"].items())[: 1 if same else None]:
        title = f"prompt of {'Base and RL' if same else SIDES[role]}"
        lines += ["", *(part for line in prompt_lines(title, sent) for part in wrapped(line, width))]
    for answers in question["policies"]:
        lines += ["", answers["policy"]]
        if width < NARROW:
            lines += [line for role in SIDES for line in _side_lines(role, answers[role], width, most)]
        else:
            column = (width - len(BAR)) // 2
            base, rl = (_side_lines(role, answers[role], column, most) for role in SIDES)
            lines += side_by_side(base, rl, column)
    return lines


def _side_lines(role: str, side: Record, width: int, most: int | None) -> list[str]:
    right = "unknown" if side["right"] is None else side["right"]
    counts = "" if side["of"] is None else f": {right} of {side['of']} right"
    lines = wrapped(f"{SIDES[role]} ({side['checkpoint']}){counts}", width)
    lines += wrapped(side["reason"], width) if side["reason"] else []
    for sample in side["samples"]:
        head = f"sample {sample['sample']}: {sample['verdict']}"
        if sample["math_verify"]:
            head += f", math-verify alone: {sample['math_verify']}"
        if sample["answer"] is not None:
            head += f", answer {sample['answer']}"
        log_p = "unknown" if sample["logprob"] is None else format(sample["logprob"], ".2f")
        tokens = "unknown" if sample["tokens"] is None else sample["tokens"]
        head += f", log p {log_p}, {tokens} tokens, finish {sample['finish'] or 'unknown'}"
        lines += ["-" * width, *wrapped(head, width)]
        if sample["text"] is not None:
            text = wrapped(sample["text"], width)
            lines += text if most is None else shortened(text, most)
    return lines


# ---- what changed between two folders

DIFF_LINES = 20
"""Changes of one kind that are listed, the largest first, unless all are asked for."""
_SHARES = ("P", "Q", "B", "T", "D", "valid", "stopped", "truncated")
_PERCENT = ("pass@k", "Cover", "G-Pass", "mG-Pass", "guess")
_KINDS = {"same": "the same", "other": "others", "unknown": "unknown (counts alone)"}
_INTERVALS = {"exact": "the same samples", "paired": "paired over questions", "independent": "as if independent"}


def rendered_diff(found: Differences, names: tuple[str, str], most: int | None = DIFF_LINES) -> str:
    """What changed between two folders as text, largest differences first, at most ``most`` lines of a kind."""
    keys, compared = found.configuration, found.compared
    more = f" and {len(keys) - DIFF_LINES} more" if len(keys) > DIFF_LINES else ""
    configuration = f"configuration: other {', '.join(keys[:DIFF_LINES])}{more}" if keys else "configuration: the same"
    lines = [f"A: {names[0]}", f"B: {names[1]}", configuration, *_cells(found)]
    counts = dict(found.samples["samples"].value_counts().iter_rows())
    parts = [f"{counts[kind]} {word}" for kind, word in _KINDS.items() if kind in counts]
    lines.append(f"samples, by cell and policy: {', '.join(parts) or 'none in both'}")
    points = _points(found.points, most)
    lines += _changes("operating points", points, compared["points"], most, found.points.height)
    lines += _changes("recovery verdicts", list(_verdicts(found.recoveries)), compared["recoveries"], most)
    lines += _changes("measures", _measures(found.measures), compared["measures"], most)
    lines += _changes("sets of exponents", list(_sets(found.sets)), compared["sets"], most)
    return "\n".join([*lines, *(f"note: {note}" for note in found.notes)])


def _cells(found: Differences) -> Iterator[str]:
    words = {"added": "only in B", "removed": "only in A"}
    for row in found.cells.to_dicts():
        cell = f"{row['checkpoint']}/{row['benchmark']}"
        changed = f"{row['change']}: {row['a'] or 'unknown'} -> {row['b'] or 'unknown'}"
        yield f"cell {cell} {words.get(row['change'], changed)}"
    keys = ("checkpoint", "benchmark", "change")
    for (checkpoint, benchmark, change), rows in found.policies.group_by(keys, maintain_order=True):
        yield f"policies of {checkpoint}/{benchmark} {words[str(change)]}: {', '.join(rows['policy'])}"


def _changes(
    what: str, changes: list[tuple[float, str]], compared: int, most: int | None, changed: int | None = None
) -> Iterator[str]:
    changed = len(changes) if changed is None else changed
    yield f"{what}: {compared} in both, {changed} changed"
    ordered = [text for _, text in sorted(changes, key=lambda change: -change[0])]
    shown = ordered if most is None else ordered[:most]
    yield from (f"  {text}" for text in shown)
    if len(shown) < changed:
        yield f"  ... and {changed - len(shown)} more (--all)"


def _points(points: pl.DataFrame, most: int | None) -> list[tuple[float, str]]:
    """Changes of points: unless all are asked for, of P and Q, which do not depend on the order of samples."""
    first = pl.col("metric").is_in(["P", "Q"]) & (pl.col("estimator") == "unbiased")
    rows = points if most is None else points.filter(first)
    name = "{checkpoint}/{benchmark} {policy} n={budget} {metric} {estimator}"
    return [_line(name.format(**row), row, as_share=row["metric"] in _SHARES) for row in rows.to_dicts()]


def _measures(measures: pl.DataFrame) -> list[tuple[float, str]]:
    return [
        _line(
            f"{row['pair']}/{row['benchmark']} {'N*, ' if row['frame'] == 'equivalents' else ''}{row['what']}",
            row,
            as_share=row["frame"] == "measures" and row["what"].startswith(_PERCENT),
        )
        for row in measures.to_dicts()
    ]


def _line(name: str, row: Mapping[str, Any], *, as_share: bool) -> tuple[float, str]:
    """The size of a change, and the change in words; shares in percent, their differences in points."""
    show = percent if as_share else number
    change = f"{show(row['a'])} -> {show(row['b'])}"
    if row["difference"] is None:
        return float("inf"), f"{name}: {change} (a dash: below one sample, or beyond those there are)"
    lo, hi = (None, None) if row["interval"] == EXACT else (row["lo"], row["hi"])
    difference = row["difference"]
    value = percent(difference, lo, hi, "+") if as_share else interval(difference, lo, hi, 2, "+")
    size = abs(difference) * (100 if as_share else 1)
    how = _INTERVALS[row["interval"]] if row["lo"] is not None else "an end lies beyond the samples"
    return size, f"{name}: {change}, {value} {'points ' if as_share else ''}({how})"


def _verdicts(rows: pl.DataFrame) -> Iterator[tuple[float, str]]:
    for row in rows.to_dicts():
        name = f"{row['pair']}/{row['benchmark']} {row['metric']} {row['estimator']} N={row['budget']}"
        verdict = "inside -> outside" if row["inside_a"] else "outside -> inside"
        gaps = (percent(row[side], row[f"{side}_lo"], row[f"{side}_hi"], "+") for side in ("a", "b"))
        yield 0.0, f"{name}: RL {verdict}; RL − best of Base {' -> '.join(gaps)} points"


def _sets(rows: pl.DataFrame) -> Iterator[tuple[float, str]]:
    for row in rows.to_dicts():
        sets = (
            "empty" if row[f"{side}_lo"] is None else f"{row[f'{side}_lo']:.2f} to {row[f'{side}_hi']:.2f}"
            for side in ("a", "b")
        )
        yield 0.0, f"{row['pair']}/{row['benchmark']} {row['policy']}: β {' -> '.join(sets)}"
