"""The benchmarks of the zoo as JSONL files, which the recipe regenerates byte for byte. A row:

    {"id": "math-0001", "question": "...", "gold": "57", "tags": {"level": 2, "kind": "chain"}}

If a checker decides whether an answer is right, ``gold`` is empty and the row has ``checks``. ``manifest.json`` records
prompt template and seed, and for each benchmark the number of questions and the token limit.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from searchlens_lab.zoo.recipe import Recipe, Role, Shares
from searchlens_lab.zoo.tasks import Problem, Split, distinct, prompt

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
