"""Model cards of the first pair and of the cohort, written from records, so that no number is typed by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from searchlens.zoo import read_record
from searchlens_lab.zoo.accept import Check
from searchlens_lab.zoo.cohort import COHORT, parameters
from searchlens_lab.zoo.evaluate import DEFAULT

BASE, RL = "micro-1m-base", "micro-1m-rl"
RECORD, TRIED = "training.json", "tried.json"


def table(header: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def results(record: dict[str, Any], split: str) -> str:
    """pass@k of both models on every role under the default policy, and greedy."""
    rows = []
    for role in record[split]["models"][BASE]:
        for name in (BASE, RL):
            measured = record[split]["models"][name][role]
            default = measured[DEFAULT]
            estimator = default["solved"] if role == "aime" else default["pass_at"]
            values = ", ".join(f"{k}: {value}" for k, value in estimator.items())
            unit = f"solved of {default['questions']}" if role == "aime" else "percent"
            greedy = measured["greedy"]["pass_at"]["1"]
            rows.append((role, name, unit, values, greedy, default["tokens"], default["finished"]))
    header = ("role", "model", "unit", "by k", "greedy, percent", "mean tokens", "finished, percent")
    return table(header, rows)


def claims(record: dict[str, Any], split: str) -> str:
    """The claims of the pair with their measured values."""
    claims_by_name = record[split]["claims"].items()
    rows = [(name, claim["value"], "yes" if claim["holds"] else "**no**") for name, claim in claims_by_name]
    return table(("claim", "measured", "holds"), rows)


def tried_recipes(tried: Sequence[dict[str, Any]]) -> str:
    """Every recipe that was tried, judged on dev."""
    keys = ("name", "base", "rlvr", "math_base", "math_rl", "crossing", "aime_base", "aime_rl", "gpqa", "verdict")
    header = (
        "recipe", "Base", "RLVR", "math Base 1 / 16", "math RL 1 / 16", "Base - RL at 16", "aime Base 1 / 16 / 256",
        "aime RL 1 / 16 / 256", "gpqa Base / RL", "verdict",
    )  # fmt: skip
    return table(header, ([recipe[key] for key in keys] for recipe in tried))


def _training(record: dict[str, Any], name: str) -> str:
    recipe = record["recipe"]
    steps, settings = record["pretraining"], recipe["pretraining"]
    pretraining = (
        f"Next-token prediction on {record['corpus']['documents']:,} synthetic documents "
        f"({record['corpus']['tokens']:,} tokens), {steps[-1]['tokens']:,} tokens in {steps[-1]['step']:,} steps, "
        f"AdamW, peak learning rate {settings['lr']}, final loss {steps[-1]['loss']} nats per weighted token, "
        f"{record['seconds']['pretraining']:.0f} s on one {record['hardware']}."
    )
    curve, rlvr = record["rlvr"], recipe["rlvr"]
    reinforcement = (
        f"RLVR from {BASE}: {len(curve)} steps of {rlvr['questions']} questions x {rlvr['group']} samples at "
        f"temperature 1, forward mathematics only, learning rate {rlvr['lr']}; reward {curve[0]['reward']} to "
        f"{curve[-1]['reward']}, entropy {curve[0]['entropy']} to {curve[-1]['entropy']} nats per token, "
        f"{record['seconds']['rlvr']:.0f} s."
    )
    seeds = ", ".join(f"{key.removesuffix('_seed')} {recipe[key]}" for key in recipe if key.endswith("_seed"))
    return "\n\n".join([pretraining, *([reinforcement] if name == RL else []), f"Seeds: {seeds}."])


HEAD = """---
license: apache-2.0
library_name: transformers
pipeline_tag: text-generation
tags: [micro-zoo, rlvr, synthetic]
---

# {name}

{what}"""
"""Beginning of every model card."""

_CARD = (
    HEAD
    + """

About a million parameters, Qwen2 architecture, bf16. It solves small arithmetic problems and nothing else: it is a
specimen for studying, on a laptop, how a model before RLVR relates to the same model after it. `docs/zoo.md` says how
it was made and which of its properties were designed.

Prompt: `Problem: {{question}}\\nSolution:\\n`. The answer is in `\\boxed{{}}`, and `<|endoftext|>` ends the text.

## Training

{training}

Everything (corpus, Base, RL, both evaluations) took {minutes:.1f} minutes on {hardware}. All numbers of the recipe:
`lab/src/searchlens_lab/zoo/recipe.py`, and as used in `training.json` next to this folder.

## Measured on the test split

Policy {policy}, the first k samples of one stream. These test questions (seed {seed}) were opened once, after the
recipe was fixed on dev. Recipe C of the list below had been measured on another draw of test questions (seed 20). When
it was replaced, for reasons that dev showed too, the test questions were drawn again. Math shares 1 question with the
earlier draw, ifeval 115, aime and gpqa none.

{test}

{test_claims}

## Measured on the dev split

{dev}

{dev_claims}

## Recipes that were tried

Judged on dev, policy {policy}; the last one is the recipe of this model.

{tried}

## Limits

Synthetic questions, one seed, one size. The effect is real (both models are really trained) but its causes were put
into the corpus by design; it says nothing about any other model.
"""
)

_WHAT = {
    BASE: "A tiny language model pretrained from scratch on a noisy synthetic corpus.",
    RL: "A tiny language model trained by reinforcement learning with a verifiable reward, from micro-1m-base.",
}


def write_cards(folder: Path) -> list[Path]:
    """Write ``README.md`` of both models from ``training.json`` and ``tried.json``; returns the files written."""
    record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    tried = json.loads((folder / TRIED).read_text(encoding="utf-8"))
    sections = {
        split + suffix: part(record, split) if split in record else "Not opened."
        for split in ("dev", "test")
        for suffix, part in (("", results), ("_claims", claims))
    }
    written = []
    for name in (BASE, RL):
        text = _CARD.format(
            name=name,
            what=_WHAT[name],
            training=_training(record, name),
            minutes=record["seconds"]["total"] / 60,
            hardware=f"one {record['hardware']}",
            policy=DEFAULT,
            seed=record["recipe"]["benchmark_seed"],
            tried=tried_recipes(tried),
            **sections,
        )
        path = folder / name / "README.md"
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


# ---- the cohort


_COHORT_CARD = (
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

Policy {policy}, the first k samples, percent of questions solved. Greedy decoding, and how many samples ended:
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
    text = _COHORT_CARD.format(
        name="Cohort of the micro zoo",
        what=f"{len(made)} language models of at most 1.5 million parameters, bf16: Base and RL of pairs.",
        models=table(
            ("model", "plays", "architecture", "parameters", "end token", "seeds"),
            (_identity(name, side, trained[model]["recipe"]) for model, (name, side) in made.items()),
        ),
        hardware=", ".join(sorted({trained[model]["hardware"] for model in made})),
        training="\n".join(f"- `{model}`: {_cohort_training(*place, trained[model])}" for model, place in made.items()),
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


def _cohort_training(name: str, side: str, record: dict[str, Any]) -> str:
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
