"""`searchlens show`: questions with their golds, and the answers of Base and RL to them, side by side."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import polars as pl

from searchlens.api.study import Study
from searchlens.benchmarks.prompter import Prompt
from searchlens.cli.terminal import BAR, shortened, side_by_side, wrapped
from searchlens.errors import InputError, require_known

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
        lines.append(f"{matching} {'question' if matching == 1 else 'questions'}{what}{shown_}")
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
