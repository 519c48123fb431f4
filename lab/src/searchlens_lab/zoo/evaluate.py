"""The benchmarks of the zoo, its models on dev and test by the training's sampler, and the claims of the first pair.

All estimates are prefixes of the sample stream: pass@k is the share of questions with a right answer among the first k
samples.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer

from searchlens.engines.base import Sampling
from searchlens.grading.instructions import passes
from searchlens_lab.zoo.model import Decoder
from searchlens_lab.zoo.recipe import Recipe, Role, Shares
from searchlens_lab.zoo.sample import Sampler, Samples
from searchlens_lab.zoo.tasks import Problem, Split, distinct, prompt

POLICIES = {
    "topp0.95_t1.0": Sampling(1.0, top_p=0.95),
    "temp_1.0": Sampling(1.0),
    "temp_0.5": Sampling(0.5),
    "greedy": Sampling(0.0),
}
"""The measured policies. The first one is the default policy, to which the pair's claims refer."""

DEFAULT = "topp0.95_t1.0"
BUDGETS = (1, 2, 4, 8, 16)
LONG_BUDGETS = (1, 4, 16, 64, 256)
_BOX = re.compile(r"\\boxed\{([^{}]*)\}")


def decode(tokenizer: Tokenizer, samples: Samples) -> list[str]:
    """The texts of samples, without the stop token."""
    rows = zip(samples.tokens.tolist(), samples.lengths.tolist(), strict=True)
    texts: list[str] = tokenizer.decode_batch([ids[:n] for ids, n in rows], skip_special_tokens=True)
    return texts


def boxed(text: str) -> str:
    """The content of the last box, or the empty string."""
    boxes = _BOX.findall(text)
    return str(boxes[-1]).strip() if boxes else ""


def is_right(problem: Problem, text: str, finished: bool) -> bool:
    """The verifiable reward: whether the sample ended and its last box holds the gold, or its checks pass."""
    if not finished:
        return False
    return passes(problem.checks, text) if problem.checks else boxed(text) == problem.gold


@dataclass(frozen=True, slots=True)
class Outcome:
    """Graded samples of one role under one policy."""

    hits: npt.NDArray[np.bool_]
    lengths: npt.NDArray[np.int64]
    finished: npt.NDArray[np.bool_]
    """``hits``, ``lengths``, ``finished``: arrays. Whether the sample is right, its number of tokens (stop token
    included), whether it ended. Shape (questions, samples)."""

    def solved(self, k: int) -> npt.NDArray[np.bool_]:
        """Which questions have a right answer among their first ``k`` samples."""
        return np.asarray(self.hits[:, :k].any(axis=1))


def sample_role(
    sampler: Sampler, tokenizer: Tokenizer, problems: Sequence[Problem], policy: Sampling, n: int, max_tokens: int
) -> Outcome:
    """Draw and grade ``n`` samples of every problem."""
    encoded = [e.ids for e in tokenizer.encode_batch([prompt(p.question) for p in problems])]
    order = [i for i in range(len(problems)) for _ in range(n)]
    hits, lengths, finished = [], [], []
    for first in range(0, len(order), sampler.rows):
        rows = order[first : first + sampler.rows]
        samples = sampler.draw([encoded[i] for i in rows], policy, max_tokens)
        ended = samples.finished.tolist()
        texts = decode(tokenizer, samples)
        hits += [is_right(problems[i], t, e) for i, t, e in zip(rows, texts, ended, strict=True)]
        lengths += samples.lengths.tolist()
        finished += ended
    shape = (len(problems), n)
    return Outcome(np.reshape(hits, shape), np.reshape(lengths, shape), np.reshape(finished, shape))


def _percent(values: npt.NDArray[Any]) -> float:
    return round(100 * float(np.mean(values)), 2)


Results = dict[tuple[str, str], tuple[list[Problem], Outcome]]
"""Role and policy to the questions and their outcome."""


def sample_roles(
    model: Decoder, tokenizer: Tokenizer, recipe: Recipe, split: Split, policies: Sequence[str], scale: float = 1.0
) -> Results:
    """Sample and grade every role of a split, as :func:`budgets_of` asks; ``scale`` multiplies numbers of questions."""
    torch.manual_seed(recipe.rl_seed + 1)
    longest = max(role.max_tokens for role in recipe.roles.values())
    sampler = Sampler(model, rows_for(model), recipe.prompt_tokens, longest)
    results: Results = {}
    for name, role in recipe.roles.items():
        problems = build(name, role, split, recipe.benchmark_seed, round(role.questions * scale))
        for policy in policies:
            n = max(budgets_of(name, policy))
            outcome = sample_role(sampler, tokenizer, problems, POLICIES[policy], n, role.max_tokens)
            results[name, policy] = problems, outcome
    return results


def rows_for(model: Decoder) -> int:
    """Samples to draw at a time on the model's device."""
    return 4096 if next(model.parameters()).is_cuda else 64


def budgets_of(role: str, policy: str) -> tuple[int, ...]:
    """Numbers of samples at which a role is read: 1 for greedy, up to 256 for aime by default policy, else up to 16."""
    return (1,) if policy == "greedy" else LONG_BUDGETS if (role, policy) == ("aime", DEFAULT) else BUDGETS


def summarise(results: Results) -> dict[str, Any]:
    """By role and policy: ``pass_at`` (percent, by k), ``solved`` (questions, by k), ``mean`` (percent of samples),
    ``tokens`` (mean per sample), ``finished`` (percent), ``kinds`` (by kind of question ``mean``, and ``any``: percent
    of questions that all samples together solve).
    """
    numbers: dict[str, Any] = {}
    for (name, policy), (problems, outcome) in results.items():
        budgets = budgets_of(name, policy)
        of_kind = np.array([problem.kind for problem in problems])
        hits = {str(kind): outcome.hits[of_kind == kind] for kind in np.unique(of_kind)}
        numbers.setdefault(name, {})[policy] = {
            "questions": len(problems),
            "pass_at": {str(k): _percent(outcome.solved(k)) for k in budgets},
            "solved": {str(k): int(outcome.solved(k).sum()) for k in budgets},
            "mean": _percent(outcome.hits),
            "tokens": round(float(outcome.lengths.mean()), 1),
            "finished": _percent(outcome.finished),
            "kinds": {kind: {"mean": _percent(own), "any": _percent(own.any(1))} for kind, own in hits.items()},
        }
    return numbers


def paired_interval(difference: npt.NDArray[np.int64], seed: int = 0, draws: int = 10_000) -> tuple[float, float]:
    """95% percentile bootstrap interval of the mean of a per-question difference, in percentage points."""
    rng = np.random.default_rng(seed)
    means = rng.choice(difference, (draws, len(difference))).mean(1)
    low, high = np.percentile(100 * means, (2.5, 97.5))
    return round(float(low), 2), round(float(high), 2)


def claims(
    base: Mapping[str, Any], rl: Mapping[str, Any], base_math: Outcome, rl_math: Outcome
) -> dict[str, dict[str, Any]]:
    """What the first pair has to show (docs/zoo.md): claim to its measured value and whether it holds."""
    math_base, math_rl = base["math"][DEFAULT]["pass_at"], rl["math"][DEFAULT]["pass_at"]
    crossing = base_math.solved(16).astype(np.int64) - rl_math.solved(16)
    low, high = paired_interval(crossing)
    scale = rl["aime"][DEFAULT]["questions"] / 60
    floor = {k: n / scale for k, n in rl["aime"][DEFAULT]["solved"].items()}
    rising = {k: n / scale for k, n in base["aime"][DEFAULT]["solved"].items()}
    greedy = [model["math"]["greedy"]["pass_at"]["1"] for model in (base, rl)]
    gain = round(math_rl["1"] - math_base["1"], 2)
    chance, finished = base["gpqa"][DEFAULT]["mean"], base["ifeval"][DEFAULT]["finished"]
    return {
        "math: RL - Base at k=1 >= 15 points": {"value": gain, "holds": gain >= 15},
        "math: lower bound of Base - RL at k=16 >= -3 points": {"value": [low, high], "holds": low >= -3},
        "math: greedy Base < greedy RL": {"value": greedy, "holds": greedy[0] < greedy[1]},
        "aime: RL solves 3 to 8 of 60 at b=1": {"value": floor["1"], "holds": 3 <= floor["1"] <= 8},
        "aime: RL gains at most 3 of 60 by b=16": {"value": floor["16"], "holds": floor["16"] - floor["1"] <= 3},
        "aime: Base rises from 16 to 256": {"value": rising, "holds": rising["16"] < rising["64"] < rising["256"]},
        "gpqa: Base is above chance (33 to 50% of samples)": {"value": chance, "holds": 33 <= chance <= 50},
        "ifeval: Base finishes 80 to 93% of samples": {"value": finished, "holds": 80 <= finished <= 93},
    }


# ---- the benchmarks as JSONL files, which the recipe regenerates byte for byte. A row:
#
#    {"id": "math-0001", "question": "...", "gold": "57", "tags": {"level": 2, "kind": "chain"}}
#
# If a checker decides whether an answer is right, ``gold`` is empty and the row has ``checks``. ``manifest.json``
# records prompt template and seed, and for each benchmark the number of questions and the token limit.

_LARGE = 100_000  # bytes above which a file is compressed


def quotas(shares: Shares, n: int) -> dict[str, int]:
    """Split ``n`` by shares that sum to one; the remainder goes to the largest fractions."""
    exact = {name: share * n for name, share in shares}
    whole = {name: int(value + 1e-9) for name, value in exact.items()}
    by_fraction = sorted(exact, key=lambda name: whole[name] - exact[name])
    for name in by_fraction[: n - sum(whole.values())]:
        whole[name] += 1
    return whole


def build(name: str, role: Role, split: Split, seed: int, questions: int = 0) -> list[Problem]:
    """The distinct questions of one role, by default ``role.questions``; name, split and seed decide what is drawn."""
    rng = random.Random(f"{name}/{split}/{seed}")
    problems = [
        problem
        for kind, n in quotas(role.kinds, questions or role.questions).items()
        for problem in distinct(rng, kind, split, n)
    ]
    rng.shuffle(problems)
    return problems


def write_rows(folder: Path, name: str, problems: Sequence[Problem], *, packed: bool = False) -> Path:
    """Write a benchmark as ``<name>.jsonl``, or ``<name>.jsonl.gz`` if ``packed`` or large; returns the file."""
    lines = []
    for i, problem in enumerate(problems, start=1):
        row: dict[str, Any] = {"id": f"{name}-{i:04d}", "question": problem.question, "gold": problem.gold}
        row |= {"checks": problem.checks} if problem.checks else {}
        lines.append(json.dumps(row | {"tags": {"level": problem.level, "kind": problem.kind}}) + "\n")
    content = "".join(lines).encode()
    is_packed = packed or len(content) > _LARGE
    path = folder / (f"{name}.jsonl.gz" if is_packed else f"{name}.jsonl")
    path.write_bytes(gzip.compress(content, mtime=0) if is_packed else content)
    return path


def write_benchmarks(folder: Path, recipe: Recipe, *, packed: bool = False) -> list[Path]:
    """Write the test split of every role as by ``write_rows``, and ``manifest.json``; returns the files written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    manifest: dict[str, Any] = {"prompt": prompt("{question}"), "seed": recipe.benchmark_seed, "benchmarks": {}}
    for name, role in recipe.roles.items():
        problems = build(name, role, "test", recipe.benchmark_seed)
        written.append(write_rows(folder, name, problems, packed=packed))
        manifest["benchmarks"][name] = {"questions": len(problems), "max_tokens": role.max_tokens}
    path = folder / "manifest.json"
    path.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return [*written, path]
