"""The configuration, typed: every key, its type, its default and what it means, in one place.

The JSON schema under ``workflow/schemas/`` and ``config/README.md`` are generated from these models (``make schema``);
a test fails when they disagree. ``validate`` reports all errors at once, before anything is scheduled.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from searchlens import benchmarks, policies
from searchlens.benchmarks import families, prompts
from searchlens.errors import InputError

DEFAULT_FILES = (
    "config/config.yaml",
    "config/models.yaml",
    "config/benchmarks.yaml",
    "config/policies.yaml",
    "config/boptr.yaml",
)

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Repository = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$")]
Positive = Annotated[int, Field(ge=1)]
Proportion = Annotated[float, Field(ge=0, le=1)]
Nonnegative = Annotated[float, Field(ge=0)]

COMPARED = ("autoregressive", "beam", "power", "entropy_tree", "mcts", "thought_tree", "step_beam")
"""Controllers that have a reference to be compared with."""


class Strict(BaseModel):
    """Unknown keys and wrong types are errors; nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)


class Vllm(Strict):
    """How vLLM runs a checkpoint; nothing here decides its samples."""

    tensor_parallel: Positive = 1
    """GPUs that share the weights; a job asks the scheduler for as many."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of each GPU's memory for weights, activations, and keys and values."""
    max_model_len: Positive | None = None
    """Most tokens of prompt and completion together; null: what the model was made for."""
    load_format: Literal["auto", "safetensors", "fastsafetensors", "runai_streamer"] = "auto"
    """How the weights are read from disk."""
    enforce_eager: bool = False
    """Run without CUDA graphs: a faster start and slower steps. On a CPU always so."""


class Checkpoint(Strict):
    """One set of weights."""

    path: str | None = None
    """Folder in transformers layout, relative to the working directory; this or ``hub``."""
    sha256: Sha256 | None = None
    """Fingerprint of the folder (``searchlens fingerprint``); checked before anything is generated. Without it the
    fingerprint is computed at planning time."""
    hub: Repository | None = None
    """``owner/name`` on the Hugging Face hub; commit and hashes are those of the lock file (``searchlens pin``), and
    ``searchlens fetch`` downloads it."""
    revision: str = "main"
    """Branch, tag or commit of ``hub`` that is looked up when it is pinned."""
    context: Positive | None = None
    """Most tokens of prompt and completion together that the model was made for; null: checked once it is loaded."""
    engine: Literal["transformers", "vllm"] = "transformers"
    """Engine family; part of the generation id. transformers: the embedded engine; vllm: docs/generation.md."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Type of weights and activations, float16 with vllm only; part of the generation id."""
    quantization: Annotated[str, Field(pattern=r"^[a-z0-9_-]+$")] | None = None
    """vLLM's name of a method that quantises the weights while they are loaded, such as fp8; part of the generation id.
    Null: as the checkpoint is."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to run; recorded with each shard, not part of the generation id. A job asks for a GPU only under cuda."""
    template: str = "zoo"
    """Prompt template of the model family; Base and RL of a pair share one. Part of the generation id."""
    seed: int | None = None
    """Seed of this checkpoint's sample streams, instead of the general ``seed``; part of the generation id."""
    max_rows: Positive | None = None
    """Most samples decoded at once; by default what suits the device."""
    vllm: Vllm = Vllm()


class Batch(Strict):
    """The weights of a pair sampled again: checkpoints of the same ``path`` or ``hub`` with a ``seed`` of their own."""

    base: Name | None = None
    """Checkpoint that repeats Base; null: Base is not repeated."""
    rl: Name | None = None
    """Checkpoint that repeats RL; null: RL is not repeated."""


class Pair(Strict):
    """A Base checkpoint and what RL made of it."""

    base: Name
    rl: Name
    group: Literal["upper", "lower", "new"] = "upper"
    """Cohort of BOPTR; a new pair is predicted with everything frozen and fits nothing."""
    parameters: Annotated[float, Field(gt=0)] | None = None
    """Number of parameters: the size feature of V4."""
    rltrain: Name | None = None
    """Benchmark (role ``rltrain``) with questions of this pair's own RL-training split; null: the only one there is."""
    templates: Literal["shared", "own"] = "shared"
    """Whether Base and RL are asked alike. ``own``: each by its own template, which is then part of the difference."""
    searches: bool = True
    """Whether the expanded policies (``searches`` of a benchmark) are sampled on this pair's Base."""
    batches: dict[Name, Batch] = {}
    """Further samples of the same weights, by a name such as their seed: of the fitted benchmarks, and no pairs."""


MATHEMATICAL = ("math", "simplerl", "simplerl-units")
"""Graders of mathematical answers."""


class Benchmark(Strict):
    """A set of questions and how answers to them are graded."""

    family: str = "jsonl"
    """How the questions are read: ``jsonl``, one question per line, or a known benchmark in any of the layouts in which
    it circulates (docs/add-a-benchmark.md; ``searchlens benchmarks`` lists them)."""
    path: str | list[str] | None = None
    """File, relative to the working directory, or folder as on the hub; of a benchmark in parts, one for each. Null:
    the family's dataset on the Hugging Face hub, as pinned in the lock file."""
    revision: str = "main"
    """Branch, tag or commit of the family's dataset that is looked up when it is pinned."""
    sha256: Sha256 | None = None
    """Hash of the file's bytes, of several files one after another; a file that no longer matches is refused instead of
    silently regenerating everything."""
    check: bool = True
    """Refuse a known benchmark with another number of rows, or with other golds, than are known."""
    grader: Literal["math", "simplerl", "simplerl-units", "choice", "instructions", "ifeval"]
    """math: boxed answer through math-verify; simplerl: by the rules of the SimpleRL-Zoo and Qwen evaluations, to
    compare with their numbers; simplerl-units: the same with units kept (Minerva); choice: a letter; instructions: the
    micro zoo's checkers; ifeval: the official ones."""
    title: str = ""
    """Name in figures."""
    questions: Positive | None = None
    """Use the first so many questions only."""
    max_tokens: Positive
    """Most tokens to generate per sample; part of the generation id."""
    wording: str | None = None
    """What is asked of a question inside the template's turn: ``boxed``, ``boxed-letter``, ``answer-letter``,
    ``as-is`` or ``power-sampling`` (``benchmarks/prompts.py``); null: the template's own words for math. Part of the
    generation id."""
    recipe_stops: bool = False
    """End answers also at the bare words at which the published recipe ends them, such as ``user``: for comparison with
    published numbers, with a mathematical grader only, because it cuts every answer that mentions one. Part of the
    generation id."""
    pool: Name = "paper24"
    """Which of ``pools`` is sampled."""
    searches: Name | None = None
    """Which of ``pools`` is sampled beside it on Base checkpoints: the expanded policies."""
    samples: Positive | None = None
    """Samples per question for this benchmark, instead of the general ``samples``."""
    deeper: dict[Name, Positive] = {}
    """Policies of the pool with more samples per question than the others: what ``extension`` is read from."""
    regime: Literal["math", "nonmath", "floor"] | None = None
    """g(d) of BOPTR, assigned before anything is evaluated; null: BOPTR leaves this benchmark out."""
    role: Literal["fitted", "held_out", "descriptive", "rltrain"] = "fitted"
    """Part in BOPTR. fitted: the main tables; held_out: predicted with everything frozen; descriptive: Base alone is
    sampled and shown; rltrain: questions of the RL-training split, on which Base alone is sampled."""
    extension: list[Positive] = []
    """Budgets beyond B, doubling on from its last, read from pools that are long enough; BOPTR's large budgets."""


class Study(Strict):
    """What this run does."""

    pairs: list[Name]
    """Keys of ``pairs``."""
    benchmarks: list[Name]
    """Keys of ``benchmarks`` to analyse."""
    sample: list[Name] | Literal["all"] = "all"
    """Benchmarks that are sampled here; the others are read from ``readouts``. all: every cell that has none there."""
    readouts: str | None = None
    """Folder of compact readouts (``searchlens record``), ``<checkpoint>/<benchmark>.arrow.xz`` each. Cells whose
    readouts lie there are read from them and not sampled, unless ``sample`` names their benchmark; null: none are."""
    figures: list[Annotated[str, Field(pattern=r"^[^/]+/[^/]+$")]] | Literal["all"] = "all"
    """Which ``<pair>/<benchmark>`` have figures of their own; tables and overview figures show all."""


class PolicySpec(Strict):
    """A policy by its five components; a policy whose name says it all needs none."""

    local: dict[str, float | int] = {}
    controller: str | dict[str, Any] = "autoregressive"
    evaluator: str | dict[str, Any] | None = None
    """Null, here and below: the controller's own."""
    transition: str | dict[str, Any] | None = None
    scheduler: str | dict[str, Any] | None = None


class Landscape(Strict):
    """Readings of the landscape that the paper leaves open (each default is named in docs/reading-the-paper.md)."""

    ties: Literal["first", "fractional"] = "first"
    """Prefix majority vote on a tie: the earliest-seen answer, or shared credit."""
    first_finish: Literal["shortest", "first_index"] = "shortest"
    """First to finish: fewest tokens, or first in the stream."""
    q_instructions: Literal["first_sample", "verdict_majority"] = "first_sample"
    """Self-consistency where no answer can be extracted: every answer its own class, or a vote over pass and fail."""
    draws: Annotated[int, Field(ge=100)] = 2000
    """Bootstrap draws of every interval that is not Wilson's."""
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95


class Recovery(Strict):
    """Readings of the recovery analysis (paper, section "Base+Search Envelopes")."""

    support_q: Proportion = 0.10
    """Quantile of the Base policy cloud that bounds the support region from below."""
    epsilon: Proportion = 0.03
    """Near-match tolerance, as a proportion."""
    path_lambda: Annotated[float, Field(ge=0)] = 0.01
    """Weight of the distance between neighbours on the budget-monotone path."""
    envelope_interval: Literal["corrected", "fixed", "reselected"] = "corrected"
    """Interval of the recovery gap: allowing for the optimism of choosing the best of many readouts, with the chosen
    operating point fixed, or with it chosen again in each draw."""
    l_comp: Annotated[float, Field(ge=0)] = 1.0
    l_z: Annotated[float, Field(ge=0)] = 1.0
    l_b: Annotated[float, Field(ge=0)] = 1.0
    """Weights of d(u, u'): components, behaviour, budget."""


class Anchor(Strict):
    """The cell on which the rule was found."""

    pair: Name | None = None
    """Key of ``pairs``; null: the first pair of the study."""
    benchmark: Name | None = None
    """Key of ``benchmarks``; null: the first benchmark of the study."""


class Beta(Strict):
    """Frozen exponent of each regime."""

    math: Nonnegative = 0.6
    nonmath: Nonnegative = 1.0
    floor: Nonnegative = 0.0


class Boptr(Strict):
    """Readings of BOPTR that the paper leaves open (docs/reading-the-paper.md gives the evidence for each default)."""

    anchor: Anchor = Anchor()
    beta: Beta = Beta()
    alpha_low: int = -10
    alpha_high: int = 20
    """alpha runs over 2^(k/5), k from ``alpha_low`` to ``alpha_high``."""
    beta_top: Nonnegative = 1.2
    """beta runs over 0, 0.1, ..., ``beta_top``."""
    rounding: Literal["log2", "linear"] = "log2"
    """In which space the nearest allowed budget is nearest."""
    ties: Literal["interpolated", "first", "last", "median"] = "interpolated"
    """Among fits of equal error: the smallest error with P interpolated at the unrounded budget, or by grid order."""
    mu_without: list[Name] = []
    """Pairs that the variant ``without`` leaves out of the cohort mean mu."""
    mu_floor: Literal["ln2", "cohort_mean"] = "ln2"
    """mu of the floor regime: the paper's constant, or the mean of the cell fits."""
    h1: Literal["low_temp_nb", "literal_greedy", "argmax_same_b"] = "low_temp_nb"
    """Row H1: the lowest pure temperature at N = b; greedy, constant over b; or the most accurate policy at each b."""
    selector_norm: Literal["l2", "l1"] = "l2"
    """Norm of the selector's loss."""
    selector_proto: Literal["mean_over_b", "per_b"] = "mean_over_b"
    """Prototype of the anchor: one vector, or one per budget."""
    selector_rank: Literal["percentile", "integer", "zscore"] = "percentile"
    """Scale of the selector's rank features."""
    selector_rank_pool: Literal["ar", "all"] = "ar"
    """Which policies are ranked; candidates are autoregressive always."""
    selector_weights: Annotated[list[Nonnegative], Field(min_length=5, max_length=5)] = [1.0, 1.0, 1.0, 0.5, 0.2]
    """W: rank of P, of P - Q, of Q, controller, log cost."""
    cost_weight: Nonnegative = 0.01
    """lambda_cost."""
    exclude_default_on_anchor: bool = False
    """Leave the RL default policy out of the candidates on the anchor benchmark."""
    b0: Literal["anchor_alpha", "cohort_mu"] = "anchor_alpha"
    """Scale of row B0."""
    gate_z: Nonnegative = 2.0
    """V5b: a model is typical when every standardised feature is at most this far from 0."""
    ridge: Nonnegative = 1.0
    """Ridge penalty on standardised features."""
    headroom: Literal["pmax_minus_p0", "one_minus_p0"] = "pmax_minus_p0"
    """Headroom inside u."""
    tau: Proportion = 0.02
    """Saturation tolerance of N* in the main rows."""
    taus: list[Proportion] = [0.01, 0.02, 0.05]
    lambdas: list[Proportion] = [0.0, 0.25, 0.5, 0.75, 1.0]
    """Sweeps of the frontier: tolerance, and how far the anchor's scale is moved."""
    q_beta: dict[Name, Nonnegative] = {}
    """Benchmark to beta^Q, the exponent of the Q channel; 0 where not named (the paper: 0.6 on GPQA)."""
    q_penalty: Nonnegative = 0.5
    """Weight of P - Q in the Q channel's selector."""
    q_tolerance: Proportion = 0.05
    q_sides: Literal["one", "two"] = "one"
    """Recoverable: Base reaches RL's best Q within ``q_tolerance`` from below, or is within it on either side."""
    criterion: Nonnegative = 8.0
    """Pre-registered limit of a held-out benchmark's mean error, percentage points."""
    protocol_margin: Proportion = 0.05
    """Base and RL protocols differ when the interval of the difference of a stop or extraction rate leaves this
    distance from 0."""
    length_ratio: Annotated[float, Field(ge=1)] = 1.5
    """Generation lengths differ when the longer mean is at least so many times the shorter one."""
    consistency_criterion: Nonnegative = 2.0
    """Pre-set limit of the mean absolute difference of two batches, percentage points."""
    v4_shuffles: Positive = 100
    """y-shuffles of the V4 null."""
    permutations: Positive = 1000
    """Re-pairings of Base and RL in the mismatched null, the true one included."""
    draws: Annotated[int, Field(ge=100)] = 10_000
    """Bootstrap draws over questions."""
    seed: Annotated[int, Field(ge=0)] = 42
    """Of everything random in BOPTR."""
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    reselect: Annotated[int, Field(ge=0)] = 10_000
    """In how many of the draws every path is also chosen again: for intervals of its own, and to correct errors."""


class Equivalence(Strict):
    """Comparison of our policies with references that are not ours (docs/equivalence.md), on the Base checkpoint of the
    first pair and the first benchmark. The thresholds were set before the first comparison was run.
    """

    policies: Annotated[list[Name], Field(min_length=1)]
    """What is compared: autoregressive policies, token beams, and searches under evaluators that read likelihoods."""
    questions: Annotated[int, Field(ge=0)] = 50
    """The first so many questions; 0 leaves the comparison out."""
    draws: Annotated[int, Field(ge=100)] = 4000
    """Texts of a language model small enough to enumerate, in the tests of distributions."""
    chains: Annotated[int, Field(ge=100)] = 1200
    """The same for power sampling, whose texts cost more: total variation from its target by chance alone is 0.011."""
    identical: Proportion = 1.0
    """Least share of equal tokens or texts where both sides see the same numbers."""
    output_match: Proportion = 0.75
    """Least share of equal texts of a local policy and of a beam where two programs compute the logits."""
    answer_agreement: Proportion = 0.90
    """Least share of equal answers of a local policy."""
    accuracy_difference: Proportion = 0.10
    """Largest absolute difference of accuracies of a search."""
    score_difference: Nonnegative = 0.001
    """Largest absolute difference of scores of equal beams."""
    total_variation: Proportion = 0.02
    """Largest total variation of power sampling from its target."""
    p_value: Proportion = 0.001
    """Least p of a chi-square test."""
    engine_policies: list[Name] = ["temp_0.7", "topp0.95_t1.0"]
    """Policies of one random candidate per run whose pass@k is compared between engines, where the checkpoint runs on
    vLLM. All intervals of the differences together cover 0 with ``landscape.confidence`` where the engines agree."""
    engine_samples: Positive = 16
    """Samples per question of these; as many as the largest of ``budgets`` where that is more."""
    logprob_difference: Nonnegative = 0.001
    """Largest absolute difference of log-probabilities of two engines after the same tokens, in float32; other types
    need more."""
    logprob_mean: Nonnegative = 0.0001
    """Mean of the same differences."""


class Throughput(Strict):
    """How fast one model was sampled on one GPU."""

    parameters: Annotated[float, Field(gt=0)]
    """Its number of parameters; a model of another size is taken to be slower in proportion."""
    tokens_per_second: Annotated[float, Field(gt=0)]
    """Generated tokens of all requests together, with the batch full."""
    source: str
    """Engine, device and conditions of the measurement: printed with every estimate."""


class Cost(Strict):
    """What ``searchlens plan`` and ``target_minutes`` assume where nothing has been sampled yet."""

    tokens_per_sample: dict[Literal["math", "nonmath", "floor"], Annotated[float, Field(gt=0)]] = {}
    """Mean tokens of one sample by regime; half of ``max_tokens`` where none is given."""
    source: str = ""
    """Where ``tokens_per_sample`` comes from: printed with every estimate."""
    throughput: list[Throughput] = []
    """Measured speeds; a model is estimated from the one nearest in size (in the logarithm). Empty: no GPU-hours."""


class Config(Strict):
    """The whole configuration: the files under ``config/`` merged, later ones over earlier ones."""

    results: str = "results"
    """Folder for everything a run writes."""
    seed: int = 42
    """Seed of the sample streams; part of the generation id."""
    samples: Positive = 16
    """Samples per question: the largest budget. Raising it extends the streams, it does not redraw them."""
    budgets: list[Positive] = [1, 2, 4, 8, 16]
    """B, in increasing order."""
    default_policy: str = "topp0.95_t1.0"
    """pi_0: the policy of the RL target curve."""
    target_minutes: Annotated[float, Field(gt=0)] = 120
    """Wall time that a generation job should take by ``cost``, its engine's start not counted: policies of a cell are
    packed into jobs up to it, and one that takes longer is cut. Without a measured speed a cell is one job."""
    pool_size: Positive = 64
    """Most policies per generation job, each of which starts the engine once."""
    chunk_samples: Positive = 4096
    """Samples per chunk, the unit a killed job resumes at."""
    grace_seconds: Nonnegative = 20
    """How long a job that is told to end (SIGTERM, SIGUSR1) goes on, to finish the chunks under way; less than what
    stands between the signal and the kill, such as Slurm's KillWait of 30 seconds."""
    failed_share: Proportion = 0.01
    """Most searches of a chunk that may fail, each recorded with its reason; more of them end the job."""
    extensions: list[str] = []
    """Python files, relative to the working directory, or installed modules that declare metrics, tables, figures,
    controllers, graders or benchmark families of your own (CONTRIBUTING.md)."""
    lock: str = "config/lock.json"
    """Where ``searchlens pin`` writes which commit and files each ``hub`` name stands for."""
    study: Study
    checkpoints: dict[Name, Checkpoint]
    pairs: dict[Name, Pair]
    benchmarks: dict[Name, Benchmark]
    policies: dict[Name, PolicySpec | None]
    pools: dict[Name, list[Name]]
    references: list[Name] = []
    """Policies sampled in every cell and shown in figures, but not counted among the pool's."""
    landscape: Landscape = Landscape()
    recovery: Recovery = Recovery()
    boptr: Boptr = Boptr()
    equivalence: Equivalence | None = None
    """Null: no comparison."""
    cost: Cost = Cost()


def _hint(given: str, known: list[str]) -> str:
    close = difflib.get_close_matches(given, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else "."


def _unknown(where: str, given: str, known: Mapping[str, Any] | list[str]) -> str:
    names = sorted(known)
    return f"{where}: {given!r} is unknown{_hint(given, names)} Known: {', '.join(names) or '(none)'}"


def _typed_errors(error: ValidationError) -> list[str]:
    lines = []
    for item in error.errors():
        where = ".".join(str(part) for part in item["loc"] if part != "[key]")
        if item["type"] == "extra_forbidden":
            known = _fields_at(item["loc"][:-1])
            where = ".".join(str(part) for part in item["loc"][:-1]) or "configuration"
            lines.append(_unknown(where, str(item["loc"][-1]), known))
        else:
            found = "" if item["type"] == "missing" else f" (found {item['input']!r})"
            lines.append(f"{where}: {item['msg']}{found}")
    return lines


def _section(annotation: Any) -> type[Strict] | None:
    """The model inside an annotation such as ``dict[Name, Pair] | None``."""
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        return annotation
    return next((found for part in get_args(annotation) if (found := _section(part))), None)


def _fields_at(location: tuple[int | str, ...]) -> list[str]:
    model: type[Strict] = Config
    for part in location:
        field = model.model_fields.get(str(part))
        model = (_section(field.annotation) if field else None) or model
    return list(model.model_fields)


def _reference_errors(config: Config) -> list[str]:
    roles = [(f"pairs.{name}.{role}", getattr(p, role)) for name, p in config.pairs.items() for role in ("base", "rl")]
    errors = [_unknown(where, name, config.checkpoints) for where, name in roles if name not in config.checkpoints]
    errors += [_unknown("study.pairs", name, config.pairs) for name in config.study.pairs if name not in config.pairs]
    sampled = [] if config.study.sample == "all" else config.study.sample
    for key, names in (("benchmarks", config.study.benchmarks), ("sample", sampled)):
        errors += [_unknown(f"study.{key}", name, config.benchmarks) for name in names if name not in config.benchmarks]
    cells = [f"{pair}/{benchmark}" for pair in config.study.pairs for benchmark in config.study.benchmarks]
    drawn = [] if config.study.figures == "all" else config.study.figures
    errors += [_unknown("study.figures", name, cells) for name in drawn if name not in cells]
    for name, benchmark in config.benchmarks.items():
        for key, pool in (("pool", benchmark.pool), ("searches", benchmark.searches)):
            if pool is not None and pool not in config.pools:
                errors.append(_unknown(f"benchmarks.{name}.{key}", pool, config.pools))
    if config.study.sample != "all" and config.study.readouts is None:
        left_out = [name for name in config.study.benchmarks if name not in sampled]
        errors += [f"study.sample: leaves out {name!r}, and study.readouts names nothing to read" for name in left_out]
    return errors


def _question_errors(config: Config) -> list[str]:
    errors = []
    for name, benchmark in config.benchmarks.items():
        where, family = f"benchmarks.{name}", families.FAMILIES.get(benchmark.family)
        if benchmark.family not in benchmarks.KNOWN:
            errors.append(_unknown(f"{where}.family", benchmark.family, list(benchmarks.KNOWN)))
        elif benchmark.path is None and family is None:
            errors.append(f"{where}.path: needed; only a known benchmark has a dataset on the hub to do without")
        elif benchmark.path is None and family and family.hub and family.hub.gated:
            errors.append(
                f"{where}.path: needed: {family.hub.id} is gated, and its terms forbid to show rows in plain text;"
                " accept them, download it yourself and name your file"
            )
        elif isinstance(benchmark.path, list) and not benchmark.path:
            errors.append(f"{where}.path: an empty list of files")
    return errors


def _pair_errors(config: Config) -> list[str]:
    errors = []
    for name, pair in config.pairs.items():
        if pair.rltrain and pair.rltrain not in config.benchmarks:
            errors.append(_unknown(f"pairs.{name}.rltrain", pair.rltrain, config.benchmarks))
        elif pair.rltrain and config.benchmarks[pair.rltrain].role != "rltrain":
            found = config.benchmarks[pair.rltrain].role
            errors.append(f"pairs.{name}.rltrain: {pair.rltrain!r} has role {found}; needed is role rltrain")
        for key, batch in pair.batches.items():
            for role in ("base", "rl"):
                where, again = f"pairs.{name}.batches.{key}.{role}", getattr(batch, role)
                errors += _batch_errors(config, where, again, getattr(pair, role)) if again else []
    return errors


def _template_errors(config: Config) -> list[str]:
    errors = []
    for name, pair in config.pairs.items():
        sides = [config.checkpoints[side].template for side in (pair.base, pair.rl) if side in config.checkpoints]
        if pair.templates == "shared" and len(set(sides)) > 1:
            errors.append(
                f"pairs.{name}: Base has template {sides[0]}, RL {sides[1]}; give both the same, or say templates: own"
            )
    for name, checkpoint in config.checkpoints.items():
        if checkpoint.template not in prompts.TEMPLATES:
            errors.append(_unknown(f"checkpoints.{name}.template", checkpoint.template, prompts.TEMPLATES))
    for name, benchmark in config.benchmarks.items():
        if benchmark.wording is not None and benchmark.wording not in prompts.WORDINGS:
            errors.append(_unknown(f"benchmarks.{name}.wording", benchmark.wording, prompts.WORDINGS))
        if benchmark.recipe_stops and benchmark.grader not in MATHEMATICAL:
            errors.append(
                f"benchmarks.{name}.recipe_stops: only with grader {', '.join(MATHEMATICAL)} (found"
                f" {benchmark.grader}); the words occur in answers of other kinds"
            )
    return errors


def _weight_errors(config: Config) -> list[str]:
    errors = []
    for name, checkpoint in config.checkpoints.items():
        where = f"checkpoints.{name}"
        if (checkpoint.path is None) == (checkpoint.hub is None):
            found = "both" if checkpoint.path else "neither"
            errors.append(f"{where}: needs one of path and hub, found {found}")
        if checkpoint.hub and checkpoint.sha256:
            errors.append(f"{where}.sha256: only with path; what {checkpoint.hub} stands for is in {config.lock}")
        for key in config.study.benchmarks if checkpoint.context and _studied(config, name) else ():
            most = config.benchmarks[key].max_tokens if key in config.benchmarks else 0
            if checkpoint.context and most >= checkpoint.context:
                errors.append(
                    f"{where}.context: {checkpoint.context} leaves no room for a prompt: benchmarks.{key}.max_tokens is"
                    f" {most}"
                )
    return errors


def _studied(config: Config, checkpoint: str) -> bool:
    pairs = [config.pairs[name] for name in config.study.pairs if name in config.pairs]
    return any(checkpoint in (pair.base, pair.rl) for pair in pairs)


def _batch_errors(config: Config, where: str, again: str, first: str) -> list[str]:
    if again not in config.checkpoints:
        return [_unknown(where, again, config.checkpoints)]
    repeat, original = config.checkpoints[again], config.checkpoints.get(first)
    errors = []
    if repeat.seed is None:
        errors.append(f"{where}: {again!r} has no seed of its own; set checkpoints.{again}.seed")
    return errors + [
        f"{where}: {again!r} has {key} {found}, {first!r} {wanted}; a batch repeats one"
        for key in ("path", "hub", "revision", "template")
        if original and (found := getattr(repeat, key)) != (wanted := getattr(original, key))
    ]


def _engine_errors(config: Config) -> list[str]:
    errors = []
    for name, checkpoint in config.checkpoints.items():
        where, settings = f"checkpoints.{name}", checkpoint.vllm
        if checkpoint.engine == "transformers":
            errors += [f"{where}.{key}: {value} needs engine: vllm" for key, value in _vllm_only(checkpoint)]
        elif settings.tensor_parallel > 1 and checkpoint.device != "cuda":
            errors.append(
                f"{where}.vllm.tensor_parallel: {settings.tensor_parallel} needs device: cuda (found"
                f" {checkpoint.device})"
            )
        for key in config.study.benchmarks:
            most = config.benchmarks[key].max_tokens if key in config.benchmarks else 0
            if (settings.max_model_len or math.inf) <= most:
                errors.append(
                    f"{where}.vllm.max_model_len: {settings.max_model_len} leaves no room for a prompt:"
                    f" benchmarks.{key}.max_tokens is {most}"
                )
    return errors


def _vllm_only(checkpoint: Checkpoint) -> list[tuple[str, Any]]:
    """What a checkpoint asks for that the embedded engine does not have."""
    asked: list[tuple[str, Any]] = [("dtype", "float16")] if checkpoint.dtype == "float16" else []
    asked += [("quantization", checkpoint.quantization)] if checkpoint.quantization else []
    given, default = checkpoint.vllm.model_dump(), Vllm().model_dump()
    return asked + [(f"vllm.{key}", value) for key, value in given.items() if value != default[key]]


def _boptr_errors(config: Config) -> list[str]:
    section = config.boptr
    pairs = [("mu_without", name) for name in section.mu_without]
    pairs += [("anchor.pair", section.anchor.pair)] if section.anchor.pair else []
    errors = [_unknown(f"boptr.{where}", name, config.pairs) for where, name in pairs if name not in config.pairs]
    errors += _anchor_benchmark_errors(config)
    unknown = [name for name in section.q_beta if name not in config.benchmarks]
    errors += [_unknown("boptr.q_beta", name, config.benchmarks) for name in unknown]
    if section.alpha_low > section.alpha_high:
        errors.append(f"boptr.alpha_low: {section.alpha_low} exceeds alpha_high ({section.alpha_high})")
    for name, benchmark in config.benchmarks.items():
        if benchmark.role != "fitted" and benchmark.regime is None:
            errors.append(f"benchmarks.{name}.role: {benchmark.role} needs a regime: math, nonmath or floor")
    return errors


def _anchor_benchmark_errors(config: Config) -> list[str]:
    name = config.boptr.anchor.benchmark
    if name is None:
        return []
    if name not in config.benchmarks:
        return [_unknown("boptr.anchor.benchmark", name, config.benchmarks)]
    benchmark = config.benchmarks[name]
    if benchmark.regime is None or benchmark.role != "fitted":
        found = f"regime {benchmark.regime or 'null'} and role {benchmark.role}"
        return [f"boptr.anchor.benchmark: {name!r} has {found}; the anchor needs a regime and role fitted"]
    return []


def _policy_errors(config: Config) -> list[str]:
    errors = []
    for name, spec in config.policies.items():
        try:
            policies.from_spec(name, spec.model_dump() if spec else None)
        except InputError as error:
            errors.append(f"policies.{name}: {error.message}")
    for pool, names in config.pools.items():
        errors += [_unknown(f"pools.{pool}", name, config.policies) for name in names if name not in config.policies]
    errors += [
        _unknown("references", name, config.policies) for name in config.references if name not in config.policies
    ]
    if config.default_policy not in config.policies:
        errors.append(_unknown("default_policy", config.default_policy, config.policies))
    return errors


def _equivalence_errors(config: Config) -> list[str]:
    if config.equivalence is None:
        return []
    errors: list[str] = []
    for name, policy in _named_policies(config, "policies", errors):
        if policy.controller.name not in COMPARED or policy.evaluator.name not in ("mean_logprob", "sequence_logprob"):
            errors.append(
                f"equivalence.policies: {name!r} has no reference; controllers with one: {', '.join(COMPARED)}, under"
                " evaluators that read likelihoods"
            )
    for name, policy in _named_policies(config, "engine_policies", errors):
        if policy.width > 1 or policy.deterministic:
            errors.append(
                f"equivalence.engine_policies: {name!r} gives no independent candidates, whose pass@k could be compared"
            )
    return errors


def _named_policies(config: Config, key: str, errors: list[str]) -> Iterator[tuple[str, policies.Policy]]:
    """The policies of a list of the section ``equivalence``; a name that says none is an error."""
    for name in getattr(config.equivalence, key):
        spec = config.policies.get(name)
        try:
            yield name, policies.from_spec(name, spec.model_dump() if spec else None)
        except InputError as error:
            if name not in config.policies:  # otherwise it is reported as a policy
                errors.append(f"equivalence.{key}: {error.message}")


def _budget_errors(config: Config) -> list[str]:
    if sorted(set(config.budgets)) != config.budgets or not config.budgets:
        return [f"budgets: {config.budgets} must increase"]
    errors = []
    largest = config.budgets[-1]
    if largest > config.samples:
        errors.append(f"budgets: the largest, {largest}, exceeds samples ({config.samples})")
    for name, benchmark in config.benchmarks.items():
        wanted = [largest * 2**i for i in range(1, len(benchmark.extension) + 1)]
        if benchmark.extension != wanted:
            errors.append(
                f"benchmarks.{name}.extension: {benchmark.extension} must double on from the last of budgets: {wanted}"
            )
    return errors


def _depth_errors(config: Config) -> list[str]:
    errors = []
    for name, benchmark in config.benchmarks.items():
        pool, most = config.pools.get(benchmark.pool, []), benchmark.samples or config.samples
        for policy, samples in benchmark.deeper.items():
            if policy not in pool:
                errors.append(_unknown(f"benchmarks.{name}.deeper", policy, pool))
            elif samples <= most:
                errors.append(f"benchmarks.{name}.deeper.{policy}: {samples} is not more than the others' {most}")
    return errors


def validate(raw: Mapping[str, Any]) -> Config:
    """The typed configuration.

    Parameters
    ----------
    raw : mapping
        The merged YAML files.

    Raises
    ------
    InputError
        Every error at once: unknown keys, wrong types, dangling names, malformed policies.
    """
    try:
        config = Config.model_validate(dict(raw))
    except ValidationError as error:
        raise _refusal(_typed_errors(error)) from None
    checks = (
        _reference_errors,
        _question_errors,
        _pair_errors,
        _engine_errors,
        _weight_errors,
        _template_errors,
        _depth_errors,
        _boptr_errors,
        _policy_errors,
        _equivalence_errors,
        _budget_errors,
    )
    errors = [line for check in checks for line in check(config)]
    if errors:
        raise _refusal(errors)
    return config


def _refusal(errors: list[str]) -> InputError:
    count = f"{len(errors)} error{'s' if len(errors) > 1 else ''}"
    return InputError(
        f"the configuration has {count}:\n" + "\n".join(f"  {line}" for line in errors),
        "config/README.md lists every key",
    )


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` merged into ``base``: mappings key by key, everything else replaced, as snakemake does."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(merged.get(key), Mapping) and isinstance(value, Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def load(paths: Sequence[str | Path]) -> Config:
    """Read, merge and validate YAML files, later ones over earlier ones.

    Raises
    ------
    InputError
        A file is missing, is not a YAML mapping or says a key twice, or the merged configuration has errors.
    """
    raw: dict[str, Any] = {}
    for path in paths:
        try:
            content = yaml.safe_load(Path(path).read_text())
            refuse_repeated(path)
        except OSError as error:
            raise InputError(
                f"cannot read {path}: {error.strerror}", "run from the folder that holds config/"
            ) from None
        except yaml.YAMLError as error:
            raise InputError(f"{path} is not YAML: {error}") from None
        if not isinstance(content, Mapping):
            raise InputError(f"{path} must be a mapping of keys, found {type(content).__name__}")
        raw = merge(raw, content)
    return validate(raw)


def refuse_repeated(path: str | Path) -> None:
    """Refuse a YAML file in which a mapping has a key twice: the first would be dropped without a word.

    Raises
    ------
    InputError
        Names file, lines and key.
    """
    root = yaml.compose(Path(path).read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    errors = [f"{path}, line {again}: {key} is already in line {first}" for key, first, again in _repeated(root)]
    if errors:
        raise _refusal(errors)


def _repeated(node: yaml.Node | None, where: str = "") -> Iterator[tuple[str, int, int]]:
    """Keys that a mapping has twice, with the lines of both; of everything below a node."""
    if isinstance(node, yaml.SequenceNode):
        for one in node.value:
            yield from _repeated(one, where)
    elif isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            name, line = f"{where}{key.value}", key.start_mark.line + 1
            if name in lines:
                yield name, lines[name], line
            lines[name] = line
            yield from _repeated(value, f"{name}.")


def plain(config: Config) -> dict[str, Any]:
    """The configuration as plain JSON types, defaults filled in: what ``grid.Grid`` takes."""
    return config.model_dump(mode="json")


def schema() -> dict[str, Any]:
    """JSON schema of the whole configuration."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema()}


def schema_text() -> str:
    """The generated file ``workflow/schemas/config.schema.json``."""
    return json.dumps(schema(), indent=2) + "\n"
