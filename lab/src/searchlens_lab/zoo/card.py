"""Model cards, written from records, so that no number is typed by hand, and the thresholds of the cohort."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from searchlens.zoo import read_record
from searchlens_lab.zoo.cohort import COHORT, SEVEN, parameters
from searchlens_lab.zoo.evaluate import BUDGETS, DEFAULT, paired_interval

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


# ---- whether a cohort is accepted: the thresholds of docs/zoo-cohort.md, set before training, on the dev records

ALPHAS = tuple(2 ** (k / 5) for k in range(-10, 21))
BETA = 0.6
WEAK = ("tiny", "mistral")
"""Pairs with a lower threshold on RL's gain."""
EXTRAS = ("overtrained", "control")


@dataclass(frozen=True, slots=True)
class Check:
    """One threshold with the measured value; ``holds`` is None if there is no measurement."""

    name: str
    value: object
    holds: bool | None


@dataclass(frozen=True, slots=True)
class AlphaFit:
    """Base's budgets as a function of RL's: alpha, the path N(1..16), and the mean error in percentage points."""

    alpha: float
    path: tuple[int, ...]
    error: float


def path(alpha: float, beta: float = BETA) -> tuple[int, ...]:
    """Base's budget for each of RL's: the power law, rounded to the nearest budget in log2 (half up) and clipped."""
    exponents = (math.floor(math.log2(alpha * b**beta) + 0.5 + 1e-9) for b in BUDGETS)
    return tuple(2 ** min(max(k, 0), 4) for k in exponents)


def fit_alpha(base: Mapping[str, Mapping[str, float]], rl: Mapping[str, float]) -> AlphaFit:
    """The alpha on the grid 2^(k/5) whose path, under some Base policy, is nearest to RL's curve; the first of equals.

    ``base``: pass@k in percent by policy and k. ``rl``: pass@k in percent under the default policy.
    """
    fits = (
        AlphaFit(alpha, ns, float(np.mean([abs(curve[str(n)] - rl[str(b)]) for b, n in zip(BUDGETS, ns, strict=True)])))
        for alpha in ALPHAS
        for ns in [path(alpha)]
        for curve in base.values()
    )
    return min(fits, key=lambda fit: fit.error)


class Records:
    """The dev records in a cohort's folder, Base and RL of each pair that has both sides."""

    def __init__(self, folder: Path) -> None:
        self.models: dict[str, Any] = {}
        for name, pair in COHORT.items():
            sides = [read_record(folder, f"dev-{model}") for model in (f"{pair.base or name}-base", f"{name}-rl")]
            if all(sides):
                self.models[name] = sides

    def at(self, name: str, role: str, key: str, k: int | None = None) -> tuple[float, float]:
        """A number of Base and the same one of RL, under the default policy; ``k`` picks it from a curve."""
        base, rl = (side["numbers"][role][DEFAULT][key] for side in self.models[name])
        return (base, rl) if k is None else (base[str(k)], rl[str(k)])

    def difference(self, name: str, role: str, k: int, envelope: bool = False) -> tuple[float, tuple[float, float]]:
        """RL - Base at ``k`` in points with its paired interval; ``envelope``: by Base's best measured policy."""
        base, rl = (side["solved"] for side in self.models[name])
        bits = {key.split("/")[1]: _bits(curve[str(k)]) for key, curve in base.items() if key.startswith(f"{role}/")}
        best = max(bits, key=lambda policy: bits[policy].sum()) if envelope else DEFAULT
        change = _bits(rl[f"{role}/{DEFAULT}"][str(k)]) - bits[best]
        return round(100 * float(change.mean()), 2), paired_interval(change)


def _bits(text: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.frombuffer(text.encode(), np.uint8).astype(np.int64) - ord("0")


def checks(folder: Path) -> list[Check]:
    """All thresholds, in the order of the design page."""
    records = Records(folder)
    results = [check for name in records.models if name not in EXTRAS for check in _pair(records, name)]
    results += _cohort(records) if set(SEVEN) <= records.models.keys() else [Check("cohort", "incomplete", None)]
    for name, sign, envelope in (("control", 1, True), ("overtrained", -1, False)):
        if name in records.models:
            value, (low, high) = records.difference(name, "math", 16, envelope)
            what = "RL - Base's envelope" if envelope else "RL - Base"
            bound = low if sign > 0 else -high
            results.append(Check(f"{name}: {what} at 16, interval without 0", [value, low, high], bound > 0))
    return results


def _pair(records: Records, name: str) -> list[Check]:
    least = 5 if name in WEAK else 10
    gain, _ = records.difference(name, "math", 1)
    late, (low, high) = records.difference(name, "math", 16)
    ends = records.at(name, "math", "finished")
    return [
        Check(f"{name}: math, RL - Base at 1 >= {least}", gain, gain >= least),
        Check(f"{name}: math, RL ends >= 95%", list(ends), ends[1] >= 95),
        Check(f"{name}: math, Base - RL at 16, lower end >= -3", [-late, -high, -low], -high >= -3),
    ]


def _cohort(records: Records) -> list[Check]:
    floors = {name: _floor(records, name) for name in SEVEN}
    effects = {role: records.difference("anchor", role, 1) for role in ("gpqa", "ifeval")}
    ends = records.at("anchor", "olympiad", "finished")
    fits = {name: _fit(records, name) for name in SEVEN}
    spread = float(np.std([math.log(fit.alpha) for fit in fits.values()], ddof=1))
    paths = {fit.path for fit in fits.values()}
    return [
        Check("floor on aime: anchor and five of seven", floors, floors["anchor"] and sum(floors.values()) >= 5),
        Check("nonmath effect on anchor (else: no effect)", effects,
              any(abs(value) >= 5 and low * high > 0 for value, (low, high) in effects.values())),
        Check("termination on olympiad, anchor: <= 85% and >= 95%", list(ends), ends[0] <= 85 and ends[1] >= 95),
        Check("spread of ln alpha >= 0.3", {n: round(f.alpha, 3) for n, f in fits.items()} | {"sd": round(spread, 3)},
              spread >= 0.3),
        Check("distinct paths >= 4", sorted(map(list, paths)), len(paths) >= 4),
    ]  # fmt: skip


def _floor(records: Records, name: str) -> bool:
    base, rl = records.at(name, "aime", "solved")
    scale = 60 / records.at(name, "aime", "questions")[0]
    first, last = scale * rl["1"], scale * rl["16"]  # type: ignore[index]
    rising = base["16"] < base["64"] < base["256"]  # type: ignore[index]
    return 3 <= first <= 8 and last - first <= 3 and bool(rising)


def _fit(records: Records, name: str) -> AlphaFit:
    base, rl = (side["numbers"]["math"] for side in records.models[name])
    return fit_alpha({name: cell["pass_at"] for name, cell in base.items() if name != "greedy"}, rl[DEFAULT]["pass_at"])


def text_table(thresholds: Sequence[Check]) -> str:
    """One line for each threshold."""
    word = {True: "holds  ", False: "FAILS  ", None: "missing"}
    return "\n".join(f"{word[check.holds]} {check.name}: {check.value}" for check in thresholds)


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
