"""The model card of the cohort, written from its records, so that no number is typed by hand."""

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

They solve small arithmetic problems and nothing else. `docs/zoo-cohort.md` describes the pairs and says which of their
properties were designed.

Prompt: `Problem: {{question}}\\nSolution:\\n`. The answer is in `\\boxed{{}}`, and the end token ends the text.

## Models

{models}

## Training

All numbers of the recipes, the curves and the math of RL's steps: `records/`, one file per job. Hardware: {hardware}.

{training}

## Measured on the dev split

Policy {policy}, prefix readout, percent of questions solved by k samples. Greedy decoding, and how many samples ended:
`records/dev-*.json.gz`.

{dev}

## Thresholds, on dev

{checks}

## Recipes that were tried

{tried}

## Limits

Synthetic questions, one seed. The models are really trained, but the causes of what they show were put into the corpus
by design; they say nothing about any other model.
"""
)


_VERDICTS = {True: "yes", False: "**no**", None: "missing"}


def write_cohort_card(folder: Path, thresholds: list[Check]) -> Path:
    """Write ``README.md`` of the models whose training and dev records exist; returns the file."""
    models = {f"{name}-{side}": (name, side) for name in COHORT for side in ("base", "rl")}
    trained = {model: read_record(folder, f"{side}-{name}") for model, (name, side) in models.items()}
    measured = {model: read_record(folder, f"dev-{model}") for model in models}
    made = {model: place for model, place in models.items() if trained[model] and measured[model]}
    tried = json.loads((folder / TRIED).read_text(encoding="utf-8")) if (folder / TRIED).exists() else []
    text = _CARD.format(
        name="Cohort of the micro zoo",
        what=f"{len(made)} language models of at most 1.5 million parameters, bf16: Base and RL of pairs.",
        models=table(
            ("model", "plays", "architecture", "parameters", "end token", "seeds"),
            (_identity(name, side, trained[model]["recipe"]) for model, (name, side) in made.items()),
        ),
        hardware=", ".join(sorted({trained[model]["hardware"] for model in made})),
        training="\n".join(f"- `{model}`: {_training(*place, trained[model])}" for model, place in made.items()),
        policy=DEFAULT,
        dev=_dev({model: measured[model]["numbers"] for model in made}),
        checks=table(("threshold", "measured", "holds"), ((c.name, c.value, _VERDICTS[c.holds]) for c in thresholds)),
        tried=table(("pair", "change", "verdict"), ((t["pair"], t["change"], t["verdict"]) for t in tried))
        if tried
        else "These only.",
    )
    path = folder / "README.md"
    path.write_text(text, encoding="utf-8")
    return path


def _identity(name: str, side: str, recipe: dict[str, Any]) -> tuple[object, ...]:
    pair = COHORT[name]
    seeds = ", ".join(f"{key.removesuffix('_seed')} {recipe[key]}" for key in recipe if key.endswith("_seed"))
    shape, end = pair.recipe.shape, pair.recipe.end_token.replace("|", r"\|")
    return f"`{name}-{side}`", pair.plays, shape.architecture, f"{parameters(shape):,}", f"`{end}`", seeds


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


def _dev(numbers: dict[str, dict[str, Any]]) -> str:
    """A row per model and a column per role, with its budgets."""
    curves = {
        model: {role: by_policy[DEFAULT]["pass_at"] for role, by_policy in roles.items()}
        for model, roles in numbers.items()
    }
    budgets = {role: ", ".join(curve) for roles in curves.values() for role, curve in roles.items()}
    rows = (
        (f"`{model}`", *(", ".join(map(str, roles.get(role, {}).values())) for role in budgets))
        for model, roles in curves.items()
    )
    return table(("model", *(f"{role}, k = {ks}" for role, ks in budgets.items())), rows)
