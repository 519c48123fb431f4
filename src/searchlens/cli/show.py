"""`searchlens show`: questions with their golds, and the answers of Base and RL to them, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from searchlens.api.study import Study
from searchlens.benchmarks.prompter import Prompt
from searchlens.cli.terminal import BAR, shortened, side_by_side, wrapped
from searchlens.errors import InputError, require_known

RL_SOLVES, BASE_SOLVES, DISAGREE = "rl-solves", "base-solves", "graders-disagree"
FILTERS = (RL_SOLVES, BASE_SOLVES, DISAGREE)
ALL = "all"
SIDES = {"base": "Base", "rl": "RL"}
NARROW = 80
"""Width of a terminal below which the sides stand below each other."""
_NARROWEST = 20
LINES = 16
"""Lines of one answer, unless whole texts are asked for."""

Record = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What to show."""

    pair: str = ""
    benchmark: str = ""
    """``pair``, ``benchmark``: empty: the first of the study."""
    questions: Sequence[str] = ()
    """Positions or ids; empty: those that the filter lets pass."""
    policies: Sequence[str] = ()
    """Empty: the default policy, or those of samples on which graders disagree. ``all``: all that both sides have."""
    only: str = ""
    """One of ``FILTERS``: questions that one side solves and no sample of the other does, under these policies, or with
    a sample on which two graders disagree. Empty: every question."""
    samples: int = 2
    """Of each side, policy and question: the first right and the first wrong one, then the others in order."""
    limit: int = 5
    """Questions."""
    prompt: bool = False
    """Also the prompts as they were sent."""


def shown(study: Study, wanted: Wanted) -> Record:
    """The questions and answers to show, as plain types.

    ``under`` are policies that a filter reads, ``matching`` is the number of questions that it lets pass, None if they
    were named, and ``withheld`` says why no text is shown, or is empty. Each of ``questions`` has index, id, text,
    gold, tags, note, and ``policies``, each with what ``base`` and ``rl`` answered. Raises InputError if a name is
    unknown, or files that the filter reads are not there.
    """
    side = _cell(study, wanted)
    policies = _policies(study, side, wanted.policies)
    matching = None if wanted.questions else _matching(study, side, policies, wanted.only)
    named = [int(name) if name.isascii() and name.isdigit() else name for name in wanted.questions]
    chosen = named if matching is None else matching[: wanted.limit]
    disagreeing = _disagreements(study, side, required=wanted.only == DISAGREE)
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


def _cell(study: Study, wanted: Wanted) -> dict[str, str]:
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
    either = list(dict.fromkeys(name for names in classes for name in names))
    if list(named) == [ALL]:
        return [name for name in classes[0] if name in set(classes[1])]
    return [require_known(name, either, "policy") for name in named]


# ---- which questions


def _matching(study: Study, side: Mapping[str, str], policies: Sequence[str], only: str) -> Sequence[int | str]:
    """Positions, or ids, of the questions that a filter lets pass."""
    if only == DISAGREE:
        return list(dict.fromkeys(row["question"] for row in _disagreements(study, side, required=True)))
    right = [_right(study, side[role], side["benchmark"], policies) for role in SIDES]
    both = right[0].join(right[1], on="question", suffix="_rl", how="full", coalesce=True).sort("question").fill_null(0)
    passes = {
        RL_SOLVES: (pl.col("correct") == 0) & (pl.col("correct_rl") > 0),
        BASE_SOLVES: (pl.col("correct") > 0) & (pl.col("correct_rl") == 0),
    }
    return list(both.filter(passes.get(only, pl.lit(value=True)))["question"])


def _right(study: Study, checkpoint: str, benchmark: str, policies: Sequence[str]) -> pl.DataFrame:
    """Right samples of every question under some policies."""
    classes = study.classes(checkpoint, benchmark).filter(pl.col("policy").is_in(list(policies)))
    return classes.group_by("question").agg(pl.col("correct").sum())


def _disagreements(study: Study, side: Mapping[str, str], *, required: bool) -> list[Record]:
    """Samples that one of two graders calls right and the other does not."""
    found = []
    for role in SIDES:
        if not required and not study.layout.agreement(side[role], side["benchmark"]).exists():
            continue
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
    wanted: Wanted,
    disagreeing: Sequence[Record],
) -> Record:
    withheld, benchmark = study.withheld(side["benchmark"]), side["benchmark"]
    if wanted.only == DISAGREE and not wanted.policies:
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
    answers: list[Record] = [
        {
            "policy": policy,
            **{role: _side(study, side[role], benchmark, policy, which, wanted, disagreeing, role) for role in SIDES},
        }
        for policy in policies
    ]
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
    study: Study,
    checkpoint: str,
    benchmark: str,
    policy: str,
    which: int | str,
    wanted: Wanted,
    disagreeing: Sequence[Record],
    role: str,
) -> Record:
    """Answers of one checkpoint under one policy, or why there are none."""
    record: Record = {"checkpoint": checkpoint, "right": None, "of": None, "samples": [], "reason": ""}
    try:
        rows = study.samples(checkpoint, benchmark, policy, which)
    except InputError as error:
        counts = _counts(study, checkpoint, benchmark, policy, which)
        return {**record, **counts, "reason": error.message, "question": {"index": which} if counts else {}}
    second = {
        row["sample"]: row["math_verify"]
        for row in disagreeing
        if (row["role"], row["policy"], row["question"]) == (role, policy, rows["id"][0])
    }
    chosen = _chosen(rows, wanted.samples, second)
    graded = rows["correct"].drop_nulls()
    return {
        **record,
        "right": int(graded.sum()) if len(graded) else None,
        "of": rows.height,
        "samples": [_sample(row, second.get(row["sample"]), study.withheld(benchmark)) for row in chosen.to_dicts()],
        "question": {"index": rows["question"][0], "id": rows["id"][0]},
    }


def _counts(study: Study, checkpoint: str, benchmark: str, policy: str, which: int | str) -> Record:
    """Right samples of a question of which only counts are kept."""
    if not isinstance(which, int) or not study.layout.landscape_frame(checkpoint, benchmark, "classes").exists():
        return {}
    rows = study.classes(checkpoint, benchmark).filter(policy=policy, question=which)
    return dict(rows.select(right="correct", of="samples").row(0, named=True)) if rows.height else {}


def _chosen(rows: pl.DataFrame, count: int, second: Mapping[int, str]) -> pl.DataFrame:
    """Some samples in order: those on which graders disagree, the first right and the first wrong one, the first."""
    order = [
        *second,
        *(
            rows.filter(correct=right)["sample"].head(1).item(0)
            for right in (True, False)
            if rows.filter(correct=right).height
        ),
    ]
    order += rows["sample"].to_list()
    return rows.filter(pl.col("sample").is_in(list(dict.fromkeys(order))[:count])).sort("sample")


def _sample(row: Mapping[str, Any], second: str | None, withheld: str) -> Record:
    verdict = (
        "not graded"
        if row["correct"] is None
        else "right"
        if row["correct"]
        else "unknown"
        if row["unknown"]
        else "wrong"
    )
    keys = ("sample", "tokens", "logprob", "finish")
    texts = {key: None if withheld else row[key] for key in ("answer", "text")}
    return {**{key: row[key] for key in keys}, "verdict": verdict, "math_verify": second, **texts}


# ---- for terminals


def rendered(record: Record, width: int, most: int | None = LINES) -> str:
    """The result of ``shown`` as text, at most ``width`` cells wide, with at most ``most`` lines of one answer."""
    width = max(width, _NARROWEST)
    lines = [f"{record['pair']} on {record['benchmark']}, {record['results']}"]
    if record["matching"] is not None:
        one, other = "that RL solves and no sample of Base does", "that Base solves and no sample of RL does"
        under = f"under {' and '.join(record['under'])}"
        what = {RL_SOLVES: f"{one} {under}", BASE_SOLVES: f"{other} {under}"}
        what[DISAGREE] = "with a sample on which two graders disagree"
        shown_ = (
            f"; the first {len(record['questions'])} are shown" if record["matching"] > len(record["questions"]) else ""
        )
        noun = "question" if record["matching"] == 1 else "questions"
        lines.append(f"{record['matching']} {noun} {what.get(record['only'], '')}".rstrip() + shown_)
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
    counts = "" if side["of"] is None else f": {_unknown(side['right'])} of {side['of']} right"
    lines = wrapped(f"{SIDES[role]} ({side['checkpoint']}){counts}", width)
    lines += wrapped(side["reason"], width) if side["reason"] else []
    for sample in side["samples"]:
        lines += ["-" * width, *wrapped(_head(sample), width)]
        if sample["text"] is not None:
            text = wrapped(sample["text"], width)
            lines += text if most is None else shortened(text, most)
    return lines


def _head(sample: Record) -> str:
    """Verdict, answer, log-probability, length and end of one sample."""
    parts = [f"sample {sample['sample']}: {sample['verdict']}"]
    if sample["math_verify"]:
        parts.append(f"math-verify alone: {sample['math_verify']}")
    if sample["answer"] is not None:
        parts.append(f"answer {sample['answer']}")
    parts.append(f"log p {'unknown' if sample['logprob'] is None else format(sample['logprob'], '.2f')}")
    parts.append(f"{_unknown(sample['tokens'])} tokens")
    return ", ".join([*parts, f"finish {sample['finish'] or 'unknown'}"])


def _unknown(value: int | None) -> str:
    return "unknown" if value is None else str(value)
