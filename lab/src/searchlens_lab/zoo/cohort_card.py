"""Model cards of the cohort, written from its records, so that no number is typed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from searchlens.zoo import read_record
from searchlens_lab.zoo.accept import Check
from searchlens_lab.zoo.card import HEAD, TRIED, table
from searchlens_lab.zoo.cohort import COHORT, parameters
from searchlens_lab.zoo.evaluate import DEFAULT

_CARD = (
    HEAD
    + """

{parameters:,} parameters, {architecture} architecture, bf16. It solves small arithmetic problems and nothing else.
`docs/zoo-cohort.md` describes the cohort and says which of its properties were designed.

Prompt: `Problem: {{question}}\\nSolution:\\n`. The answer is in `\\boxed{{}}`, and `{end_token}` ends the text.

## Training

{training}

Seeds: {seeds}. Hardware: {hardware}. All numbers of the recipe: `records/{job}.json.gz`.

{curve}

## Measured on the dev split

Policy {policy}, prefix readout, percent of questions solved by k samples.

{dev}

{steps}

## Thresholds, on dev

{checks}

## Recipes that were tried

{tried}

## Limits

Synthetic questions, one seed. The model is really trained, but the causes of what it shows were put into the corpus by
design; it says nothing about any other model.
"""
)


_VERDICTS = {True: "yes", False: "**no**", None: "missing"}


def write_cohort_cards(folder: Path, thresholds: list[Check]) -> list[Path]:
    """Write ``README.md`` of every model whose training and dev records exist; returns the files written."""
    tried = json.loads((folder / TRIED).read_text(encoding="utf-8")) if (folder / TRIED).exists() else []
    written = []
    for name, pair in COHORT.items():
        for side in ("base", "rl"):
            training, dev = (read_record(folder, job) for job in (f"{side}-{name}", f"dev-{name}-{side}"))
            if not training or not dev:
                continue
            recipe = training["recipe"]
            checks = [check for check in thresholds if check.name.startswith(f"{name}:")]
            verdicts = [(check.name, check.value, _VERDICTS[check.holds]) for check in checks]
            trials = [(trial["pair"], trial["change"], trial["verdict"]) for trial in tried if trial["pair"] == name]
            role = f"an {pair.plays}" if pair.plays.startswith("extra") else f"in the role of {pair.plays}"
            text = _CARD.format(
                name=f"{name}-{side}",
                what=f"{'Base' if side == 'base' else 'RL'} of the pair `{name}`, {role}.",
                parameters=parameters(pair.recipe.shape),
                architecture=pair.recipe.shape.architecture,
                end_token=pair.recipe.end_token,
                training=_training(name, side, training),
                seeds=", ".join(f"{k.removesuffix('_seed')} {recipe[k]}" for k in recipe if k.endswith("_seed")),
                hardware=training["hardware"],
                job=f"{side}-{name}",
                curve=_curve(side, training["curve"]),
                policy=DEFAULT,
                dev=_numbers(dev["numbers"]),
                steps=_steps(dev["steps"]),
                checks=table(("threshold", "measured", "holds"), verdicts) if verdicts else "None of its own.",
                tried=table(("pair", "change", "verdict"), trials) if trials else "This one only.",
            )
            path = folder / f"{name}-{side}" / "README.md"
            path.write_text(text, encoding="utf-8")
            written.append(path)
    return written


def _training(name: str, side: str, record: dict[str, Any]) -> str:
    pair, recipe, last = COHORT[name], record["recipe"], record["curve"][-1]
    if side == "base":
        return (
            f"Next-token prediction on the corpus of the family {pair.family}: {last['tokens']:,} tokens in "
            f"{last['step']:,} steps, final loss {last['loss']} nats per weighted token, {last['seconds']:.0f} s."
        )
    rlvr = recipe["rlvr"]
    origin = f"{pair.start}-rl" if pair.start else f"{pair.base or name}-base"
    cells = ", ".join(f"{kind} {level}" for kind, level in rlvr["cells"])
    reading = " after reading demonstrations" if record["demonstrations"] else ""
    updates = f"{rlvr['minibatches']} update{'s' if rlvr['minibatches'] > 1 else ''}"
    return (
        f"RLVR from {origin}{reading}: {len(record['curve'])} steps of {rlvr['questions']} questions x {rlvr['group']} "
        f"samples at temperature 1, learning rate {rlvr['lr']}, advantage scaled by {rlvr['scale']}, "
        f"{updates} per batch, KL weight {rlvr['kl']}; split {pair.split} ({cells}); reward "
        f"{record['curve'][0]['reward']} to {last['reward']}, entropy {record['curve'][0]['entropy']} to "
        f"{last['entropy']} nats per token, {last['seconds']:.0f} s."
    )


def _curve(side: str, curve: list[dict[str, float]]) -> str:
    """About ten points of the training curve, up to the last one."""
    keys = ("step", "tokens", "loss") if side == "base" else ("step", "reward", "entropy", "tokens", "finished")
    step = max(1, len(curve) // 10)
    points = curve[::-step][::-1]
    return table(keys, ([point[key] for key in keys] for point in points))


def _numbers(numbers: dict[str, Any]) -> str:
    rows = []
    for role, by_policy in numbers.items():
        default, greedy = by_policy[DEFAULT], by_policy["greedy"]["pass_at"]["1"]
        values = ", ".join(f"{k}: {value}" for k, value in default["pass_at"].items())
        rows.append((role, default["questions"], values, greedy, default["finished"]))
    return table(("role", "questions", "by k", "greedy", "ended"), rows)


def _steps(steps: dict[str, Any]) -> str:
    if not steps:
        return ""
    ks = next(iter(steps.values())).keys()
    rows = ([step, *(pass_at[k] for k in ks)] for step, pass_at in steps.items())
    return "Math by RL step:\n\n" + table(("step", *(f"k = {k}" for k in ks)), rows)
