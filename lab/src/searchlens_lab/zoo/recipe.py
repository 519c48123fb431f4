"""The recipe of a pair: every number of its benchmarks, corpus, model, pretraining and RLVR in one frozen object."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Shares = tuple[tuple[str, float], ...]
"""Names with positive weights; they need not sum to one where names are drawn from them."""


@dataclass(frozen=True, slots=True)
class Role:
    """One benchmark."""

    questions: int
    kinds: Shares
    """Kinds of question with their shares. The shares sum to one, and the benchmark has them exactly, up to
    rounding."""
    max_tokens: int
    """Token limit of one sample, the stop token included."""


@dataclass(frozen=True, slots=True)
class Style:
    """A way to write a solution."""

    share: float
    """Weight of the style among the solutions of a group of kinds."""
    slip: float
    """Probability per step that a result is replaced by a near one; later steps use the wrong result."""
    openers: Shares
    """Opening phrases. Styles share them, so the first token does not tell the style."""


_STEP, _QUICK, _OKAY, _HMM = "Step by step: ", "Quick: ", "Okay. ", "Hmm. "
_DETAIL, _GUESS, _BACK = "In detail: ", "I guess ", "Work backwards. "
_RARE = ("First, ", "Well, ", "Now, ", "Here: ", "Look: ", "Fine. ", "Note: ", "Right. ")


def _openers(*shares: tuple[str, float]) -> Shares:
    """Openers, of which a tenth is spread over the rare ones.

    A nucleus of 0.95 never draws the least likely 5%. The rare openers take that place, so that the nucleus does not
    hide ``Work backwards.``
    """
    return (*((name, 0.9 * share) for name, share in shares), *((name, 0.1 / len(_RARE)) for name in _RARE))


def writing_styles(
    careful: float = 0,
    detail: float = 0,
    terse: float = 0,
    mental: float = 0,
    guess: float = 0,
    misread: float = 0,
    ramble: float = 0,
    backwards: float = 0,
) -> dict[str, Style]:
    """Every style of writing with the given share."""
    return {
        "careful": Style(careful, 0.03, _openers((_STEP, 0.82), (_OKAY, 0.18))),
        "detail": Style(detail, 0.02, ((_DETAIL, 1.0),)),
        "terse": Style(terse, 0.08, _openers((_QUICK, 0.60), (_OKAY, 0.40))),
        "mental": Style(mental, 0.08, _openers((_QUICK, 0.65), (_OKAY, 0.35))),
        "guess": Style(guess, 0.0, ((_GUESS, 0.6), (_QUICK, 0.4))),
        "misread": Style(misread, 0.03, _openers((_STEP, 0.35), (_OKAY, 0.40), (_QUICK, 0.25))),
        "ramble": Style(ramble, 0.05, ((_HMM, 0.8), (_STEP, 0.2))),
        "backwards": Style(backwards, 0.05, ((_BACK, 1.0),)),
    }


@dataclass(frozen=True, slots=True)
class Corpus:
    """What Base reads."""

    documents: int = 1_600_000
    """Number of documents, each a problem with a solution."""
    kinds: Shares = (
        ("story", 0.19),
        ("chain", 0.15),
        ("expression", 0.10),
        ("long-chain", 0.06),
        ("story-back", 0.12),
        ("puzzle-back", 0.09),
        ("drill", 0.05),
        ("compare", 0.06),
        ("lookup", 0.07),
        ("listing", 0.11),
    )
    styles: dict[str, dict[str, Style]] = field(
        default_factory=lambda: {
            "forward": writing_styles(0.17, 0.02, 0.31, 0.26, 0.07, 0.10, 0.04, 0.03),
            "story": writing_styles(0.17, 0.02, 0.26, 0.31, 0.07, 0.10, 0.04, 0.03),
            "story-back": writing_styles(0.18, 0.02, 0.25, 0.30, 0.06, 0.07, 0.04, 0.08),
            "puzzle-back": writing_styles(0.20, 0.02, 0.31, 0.26, 0.06, 0.08, 0.04, 0.025),
            "drill": writing_styles(backwards=1),
            "choice": writing_styles(0.34, 0.02, 0.20, 0.08, 0.22, 0.11, 0.03, 0),
        }
    )
    """Group of kinds to its styles. Groups: ``forward`` and ``story`` (to follow the text is right; stories are more
    often solved in the head), ``story-back`` and ``puzzle-back`` (only the style ``backwards`` is right), ``drill`` and
    ``choice``; in the cohort also ``long``, where more solutions ramble."""
    unboxed: float = 0.05
    """Probability that a solution forgets the box around its answer."""
    endless_check: float = 0.30
    """Probability that a solution of the style ``ramble`` never ends."""
    listing_faults: Shares = (
        ("short", 0.08),
        ("over", 0.05),
        ("endless", 0.17),
        ("case", 0.07),
        ("separator", 0.06),
        ("closing", 0.10),
        ("first", 0.15),
        ("forbidden", 0.30),
    )
    """Probability of each fault in a list."""
    max_tokens: int = 256
    """Documents are cut at this length, and then have no stop token."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder with tied embeddings and rotary base 10,000."""

    vocabulary: int = 640
    hidden: int = 128
    layers: int = 5
    heads: int = 4
    kv_heads: int = 2
    ffn: int = 384
    context: int = 512
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-6
    architecture: Literal["qwen2", "llama", "mistral"] = "qwen2"
    """As transformers names it. Only Qwen2 has biases in its attention; apart from that, all three compute the same
    function at these contexts."""


@dataclass(frozen=True, slots=True)
class Pretraining:
    """Next-token prediction with AdamW, linear warm-up and cosine decay."""

    steps: int = 6_000
    warmup: int = 100
    """``steps``, ``warmup``: optimizer steps."""
    tokens: int = 131_072
    """Tokens in one step, padding included."""
    lr: float = 3e-3
    final_lr: float = 0.03
    """``lr``, ``final_lr``: peak learning rate, and the fraction of it at the end."""
    weight_decay: float = 0.05
    betas: tuple[float, float] = (0.9, 0.98)
    clip: float = 1.0
    prompt_weight: float = 0.1
    """Loss weight of the prompt's tokens; the tokens of a solution weigh 1."""


@dataclass(frozen=True, slots=True)
class Rlvr:
    """Group-normalised policy gradient on a binary verifiable reward; one on-policy update per batch."""

    kinds: Shares = (("story", 0.45), ("chain", 0.30), ("expression", 0.25))
    """Kinds of question; forward mathematics only."""
    levels: tuple[int, ...] = (3, 4, 5)
    """Levels of those kinds."""
    questions: int = 128
    group: int = 16
    """``questions``, ``group``: questions per step, and samples per question."""
    max_tokens: int = 128
    """Token limit of a sample; a sample that reaches it has reward 0."""
    lr: float = 5e-5
    """AdamW without weight decay; linear warm-up over ``warmup`` steps, then constant."""
    warmup: int = 10
    betas: tuple[float, float] = (0.9, 0.98)
    clip: float = 1.0
    steps: int = 100
    """Largest number of steps."""
    min_steps: int = 40
    """Neither rule applies before this step."""
    window: int = 20
    entropy_floor: float = 0.085
    """Training stops when the mean entropy (nats per token) of the last ``window`` steps is below this."""
    patience: float = 0.005
    """It also stops when the mean reward of the last ``window`` steps exceeds that of the ``window`` steps before by
    less than this."""
    stops: bool = True
    """Whether the two rules apply at all; otherwise training ends after ``steps``."""
    cells: tuple[tuple[str, int], ...] = ()
    """(kind, level). A split by measured level: questions are drawn from these combinations, with equal chances,
    instead of from ``kinds`` and ``levels``."""
    scale: Literal["group", "none", "batch"] = "group"
    """Divisor of the advantage after it was centred within its group: the group's standard deviation (GRPO), none (Dr.
    GRPO), or the standard deviation over the batch."""
    per_token: bool = True
    """Divide the loss by the number of tokens used; otherwise by the constant samples x ``max_tokens`` (Dr. GRPO)."""
    minibatches: int = 1
    """Updates per batch. After the first one the samples are off-policy, and the ratio is clipped (PPO)."""
    ratio_clip: float = 0.2
    """A sample whose ratio is farther than this from 1 has no gradient."""
    kl: float = 0.0
    """Weight of the divergence from Base (estimator k3 of Schulman, 2020) over the tokens of the samples used; 0: no
    such term."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One pair and its benchmarks. Two runs with equal recipes differ only by the order of sums on the GPU."""

    benchmark_seed: int = 21
    corpus_seed: int = 1
    model_seed: int = 0
    rl_seed: int = 99
    tokenizer_documents: int = 30_000
    roles: dict[str, Role] = field(
        default_factory=lambda: {
            "math": Role(
                500, (("story", 0.34), ("chain", 0.24), ("expression", 0.20), ("story-back", 0.22)), max_tokens=128
            ),
            "aime": Role(60, (("puzzle-back", 0.90), ("long-chain", 0.10)), max_tokens=192),
            "gpqa": Role(198, (("compare", 0.5), ("lookup", 0.5)), max_tokens=128),
            "ifeval": Role(541, (("listing", 1.0),), max_tokens=64),
        }
    )
    corpus: Corpus = Corpus()
    shape: ModelShape = ModelShape()
    pretraining: Pretraining = Pretraining()
    rlvr: Rlvr = Rlvr()
    end_token: str = "<|endoftext|>"
    """Spelling of the stop token."""
    prompt_tokens: int = 96
    """Upper bound of the tokens of a prompt."""
