"""The cohort: one frozen recipe for each pair that mirrors one of the paper's, and for two labelled extras.

``docs/zoo-cohort.md`` is the design; this module holds all of its numbers. A pair whose ``base`` names another pair
starts from that pair's Base, as ORZ and OAT do in the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from searchlens.errors import InputError
from searchlens_lab.zoo.recipe import Corpus, ModelShape, Pretraining, Recipe, Rlvr, Role, Shares, Style, writing_styles

Level = Literal["easy", "medium", "hard", "all"]

RANKED: tuple[tuple[str, int], ...] = tuple(
    (kind, level) for kind in ("story", "chain", "expression") for level in (1, 2, 3, 4, 5)
)
"""Kinds and nominal levels of RL's questions, which are ranked by how often ``anchor-base`` solves them."""

MEASURED: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {"easy": (1,), "medium": (1, 2, 3, 4), "hard": (3, 4, 5), "all": (1, 2, 3, 4, 5)}
)
"""Measured levels of each split, as in SimpleRL-Zoo."""

ROLES: Mapping[str, Role] = MappingProxyType(
    {
        "math": Role(500, (("story", 0.34), ("chain", 0.24), ("expression", 0.20), ("story-back", 0.22)), 128),
        "aime": Role(60, (("puzzle-back", 0.88), ("long-chain", 0.12)), 192),
        "gpqa": Role(198, (("compare", 0.35), ("lookup", 0.25), ("lookup-wide", 0.40)), 192),
        "ifeval": Role(541, (("listing", 1.0),), 96),
        "amc": Role(40, (("collect", 1.0),), 128),
        "minerva": Role(272, (("distract", 1.0),), 128),
        "olympiad": Role(675, (("nested", 0.5), ("iterate", 0.5)), 192),
        "tinymmlu": Role(100, (("story-choice", 0.5), ("convert", 0.5)), 128),
        "stem": Role(500, (("convert", 0.4), ("story-choice", 0.3), ("collect-choice", 0.3)), 128),
    }
)
RLTRAIN = 256
"""Number of questions of each rltrain benchmark."""


def _mixture(weights: Shares, slip: float, ramble: float, backwards: float) -> dict[str, Style]:
    """Styles with the given shares of rambling and of the backward method; ``weights`` divide the rest.

    Unlike in the first pair's corpus, rambling has an opening of its own, so the first token tells that it may not end.
    """
    total = sum(weight for _, weight in weights)
    shares = {name: weight * (1 - ramble - backwards) / total for name, weight in weights}
    styles = writing_styles(**shares, ramble=ramble, backwards=backwards)
    styles["ramble"] = replace(styles["ramble"], openers=(("Hmm. ", 1.0),))
    return {name: replace(style, slip=min(0.5, style.slip * slip)) for name, style in styles.items()}


def _styles(
    careful: float, detail: float = 0.02, guess: float = 0.07, slip: float = 1.0, method: float = 1.0
) -> dict[str, dict[str, Style]]:
    """The styles of each group of kinds in a family's corpus; ``method`` scales the shares of the backward method."""
    quick = 0.57 + 0.17 - careful

    def group(terse: float, ramble: float, backwards: float) -> dict[str, Style]:
        weights = (
            ("careful", careful),
            ("detail", detail),
            ("terse", terse * quick),
            ("mental", (1 - terse) * quick),
            ("guess", guess),
            ("misread", 0.10),
        )
        return _mixture(weights, slip, ramble, backwards * method)

    choice = (
        ("careful", 2 * careful), ("detail", detail), ("terse", 0.20), ("mental", 0.08), ("guess", 0.18),
        ("misread", 0.11),
    )  # fmt: skip
    return {
        "forward": group(0.54, 0.06, 0.03),
        "story": group(0.46, 0.06, 0.03),
        "story-back": group(0.46, 0.06, 0.08),
        "puzzle-back": group(0.54, 0.06, 0.025),
        "drill": {"backwards": writing_styles(backwards=1)["backwards"]},
        "choice": _mixture(choice, slip, 0.05, 0.0),
        "long": group(0.54, 0.22, 0.0),
    }


_QWEN: Shares = (
    ("story", 0.15), ("chain", 0.12), ("expression", 0.09), ("long-chain", 0.05), ("story-back", 0.10),
    ("puzzle-back", 0.08), ("drill", 0.05), ("compare", 0.05), ("lookup", 0.04), ("lookup-wide", 0.05),
    ("listing", 0.08), ("distract", 0.04), ("collect", 0.03), ("nested", 0.05), ("iterate", 0.05),
    ("story-choice", 0.03), ("convert", 0.03), ("collect-choice", 0.02),
)  # fmt: skip
_LANGUAGE = ("listing", "compare", "lookup", "lookup-wide", "story-choice", "convert", "collect-choice")


def _weighted(language: float, without: tuple[str, ...] = ()) -> Shares:
    """Shares of kinds, those of lists and choices multiplied by ``language``."""
    return tuple(
        (kind, share * (language if kind in _LANGUAGE else 1.0)) for kind, share in _QWEN if kind not in without
    )


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """What the Bases of one family have in common."""

    corpus: Corpus
    """What they read."""
    seed: int
    """Seed of the corpus and of the tokenizer."""
    vocabulary: int
    """Number of entries of the tokenizer."""
    end_token: str = "<|endoftext|>"
    """Spelling of the stop token."""


def _family(seed: int, vocabulary: int, corpus: Corpus, end_token: str = "<|endoftext|>") -> ModelFamily:
    return ModelFamily(replace(corpus, endless_check=0.8), seed, vocabulary, end_token)


FAMILIES: Mapping[str, ModelFamily] = MappingProxyType(
    {
        "qwen": _family(11, 640, Corpus(1_600_000, _weighted(1.0), _styles(0.17))),
        "qwen-math": _family(12, 640, Corpus(1_600_000, _weighted(0.6), _styles(0.30, detail=0.03))),
        "llama": _family(13, 896, Corpus(1_600_000, _weighted(1.5), _styles(0.12)), "<|end_of_text|>"),
        "mistral": _family(14, 448, Corpus(1_200_000, _weighted(1.2), _styles(0.14, guess=0.12, slip=1.5)), "</s>"),
        "dsmath": _family(
            15, 512, Corpus(1_400_000, _weighted(0.7), _styles(0.22, detail=0.08)), "<|end_of_sentence|>"
        ),
        "control": _family(16, 640, Corpus(1_200_000, _weighted(1.0, ("drill",)), _styles(0.17, method=0.0))),
    }
)
# `control` has method=0: it never reads the backward method, not even on questions where the method is wrong.

_MIDDLE = ModelShape(ffn=256)
_LONG, _SHORT = Pretraining(), Pretraining(steps=5_000)
_GRPO = Rlvr()


@dataclass(frozen=True, slots=True)
class Demonstrations:
    """Right solutions that a model reads before its RL, by a method that RL alone could not find."""

    corpus: Corpus
    pretraining: Pretraining


def _demonstrations() -> Demonstrations:
    careful = replace(writing_styles(careful=1)["careful"], slip=0.0)
    back = replace(writing_styles(backwards=1)["backwards"], slip=0.0)
    styles = {group: {"careful": careful} for group in ("forward", "story")}
    styles |= {group: {"backwards": back} for group in ("story-back", "puzzle-back")}
    kinds = (("story-back", 0.3), ("puzzle-back", 0.2), ("story", 0.2), ("chain", 0.15), ("expression", 0.15))
    return Demonstrations(
        Corpus(60_000, kinds, styles, unboxed=0.0), Pretraining(steps=300, warmup=20, tokens=32_768, lr=1e-3)
    )


@dataclass(frozen=True, slots=True)
class CohortPair:
    """One pair of the cohort."""

    plays: str
    """The paper's pair, or the purpose of an extra."""
    group: Literal["upper", "lower", "new"]
    """As in ``config/zoo.yaml``. The rule is fitted on the seven pairs of the first two groups."""
    family: str
    """Key of :data:`FAMILIES`."""
    split: Level
    """Which measured levels RL trains on."""
    recipe: Recipe
    """All numbers; ``recipe.rlvr.cells`` is filled in from the measured levels."""
    base: str = ""
    """Pair whose Base is used; empty: the pair has its own."""
    start: str = ""
    """Pair whose RL model is where RL starts; empty: RL starts from Base."""
    more: tuple[tuple[str, int], ...] = field(default=())
    """(kind, level). What RL trains on in addition to its split."""
    demonstrations: Demonstrations | None = None
    """What Base reads before RL."""


def _recipe(family: str, seed: int, shape: ModelShape, pretraining: Pretraining, rlvr: Rlvr = _GRPO) -> Recipe:
    traits = FAMILIES[family]
    return Recipe(
        benchmark_seed=31,
        corpus_seed=traits.seed,
        model_seed=seed,
        rl_seed=100 + seed,
        roles=dict(ROLES),
        corpus=traits.corpus,
        shape=replace(shape, vocabulary=traits.vocabulary),
        pretraining=pretraining,
        rlvr=rlvr,
        end_token=traits.end_token,
        prompt_tokens=160,
    )


_LLAMA = ModelShape(ffn=256, architecture="llama")
_MISTRAL = ModelShape(hidden=96, layers=4, heads=3, kv_heads=1, ffn=320, architecture="mistral")
_DEEPSEEK = ModelShape(layers=4, ffn=320, architecture="llama")
_LARGE = ModelShape(hidden=160, heads=5, kv_heads=1, ffn=416)
_SMALL = ModelShape(hidden=96, heads=3, kv_heads=1, ffn=256)
_TINY, _CONTROL = replace(_SMALL, layers=3), replace(_SMALL, layers=4)
_PPO = replace(_GRPO, scale="batch", minibatches=2)
_DR_GRPO = replace(_GRPO, scale="none", per_token=False)
_WITH_KL = replace(_GRPO, kl=0.04, questions=64, group=32)
_FAR = replace(_GRPO, lr=2e-4, steps=200, stops=False)
_BACK = (("story-back", 2), ("story-back", 3), ("puzzle-back", 3), ("puzzle-back", 4), ("puzzle-back", 5))

COHORT: Mapping[str, CohortPair] = MappingProxyType(
    {
        "anchor": CohortPair("Qwen2.5-7B", "upper", "qwen", "hard", _recipe("qwen", 1, _MIDDLE, _LONG)),
        "large": CohortPair("Qwen2.5-14B", "upper", "qwen", "hard", _recipe("qwen", 2, _LARGE, _LONG)),
        "small": CohortPair("Qwen2.5-1.5B", "upper", "qwen", "hard", _recipe("qwen", 3, _SMALL, _SHORT)),
        "math": CohortPair("Qwen2.5-Math-7B", "upper", "qwen-math", "hard", _recipe("qwen-math", 4, _MIDDLE, _LONG)),
        "tiny": CohortPair("Qwen2.5-0.5B", "lower", "qwen", "medium", _recipe("qwen", 5, _TINY, _SHORT)),
        "llama": CohortPair("Llama-3.1-8B", "lower", "llama", "easy", _recipe("llama", 6, _LLAMA, _LONG)),
        "mistral": CohortPair("Mistral-7B-v0.1", "lower", "mistral", "easy", _recipe("mistral", 7, _MISTRAL, _SHORT)),
        "orz": CohortPair(
            "Open-Reasoner-Zero-7B", "new", "qwen", "all", _recipe("qwen", 8, _MIDDLE, _LONG, _PPO), base="anchor",
            more=(("long-chain", 7), ("long-chain", 8)),
        ),
        "oat": CohortPair(
            "Oat-Zero-7B", "new", "qwen-math", "hard", _recipe("qwen-math", 9, _MIDDLE, _LONG, _DR_GRPO), base="math"
        ),
        "dsmath": CohortPair(
            "DeepSeek-Math-7B", "new", "dsmath", "easy", _recipe("dsmath", 10, _DEEPSEEK, _LONG, _WITH_KL)
        ),
        "overtrained": CohortPair(
            "extra: RL far past its stopping rule", "new", "qwen", "hard",
            _recipe("qwen", 11, _MIDDLE, _LONG, _FAR), base="anchor", start="anchor",
        ),
        "control": CohortPair(
            "extra: RL learns what its Base was not taught", "new", "control", "hard",
            _recipe("control", 12, _CONTROL, _SHORT), more=_BACK, demonstrations=_demonstrations(),
        ),
    }
)  # fmt: skip
"""Every pair by name, extras last."""

SEVEN = tuple(name for name, pair in COHORT.items() if pair.group != "new")
"""The pairs on which the rule is fitted."""


def parameters(shape: ModelShape) -> int:
    """Number of weights of a model; the tied embedding counts once."""
    kv = shape.hidden // shape.heads * shape.kv_heads
    bias = shape.hidden + 2 * kv if shape.architecture == "qwen2" else 0
    attention = 2 * shape.hidden**2 + 2 * shape.hidden * kv + bias
    layer = attention + 3 * shape.hidden * shape.ffn + 2 * shape.hidden
    return shape.vocabulary * shape.hidden + shape.layers * layer + shape.hidden


def with_needs(names: list[str], cohort: Mapping[str, CohortPair] = COHORT) -> list[str]:
    """Names of these pairs and of those that they need, in the cohort's order; no name means all pairs.

    Raises InputError if a name is unknown.
    """
    unknown = [name for name in names if name not in cohort]
    if unknown:
        raise InputError(f"--only {unknown[0]}: there is no such pair", f"one of: {', '.join(cohort)}")
    needed = set(names or cohort)
    for name in list(needed):
        needed |= {cohort[name].base, cohort[name].start} - {""}
    return [name for name in cohort if name in needed]
