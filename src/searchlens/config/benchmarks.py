"""Section ``benchmarks``: sets of questions, how they are asked, sampled and graded, and their part in BOPTR."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from searchlens.config.boptr import Regime, Role
from searchlens.config.limits import Name, Positive, Seed, Sha256, Strict


@dataclass(frozen=True, kw_only=True)
class ExamplesSpec(Strict):
    """Worked examples that every prompt of a benchmark shows before its question. Part of the generation id."""

    path: str
    """File relative to the study's folder, one JSON object per line with ``question`` and ``answer``, the answer
    written out as a model is to write it. No example that is shown may be a question of the benchmark."""
    count: Positive = 4
    """Examples in a prompt."""
    drawn: bool = False
    """false: the first ``count`` of the file, in every prompt. true: for each question ``count`` of its own, drawn by
    ``seed`` and the id of the question, never the question itself."""
    seed: Seed = 0
    """Seed of the draw; of use with ``drawn`` only."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkSpec(Strict):
    """A set of questions and how answers to them are graded."""

    family: str = "jsonl"
    """How the questions are read. jsonl: one question per line; or a known benchmark, in any layout in which it is
    distributed (``searchlens benchmarks`` lists them; docs/add-a-benchmark.md)."""
    path: str | tuple[str, ...] | None = None
    """File relative to the study's folder, which may be compressed (``.gz``), or folder as on the hub; a list for a
    benchmark in several parts. Null: the family's dataset on the Hugging Face hub, at the commit in the lock file."""
    revision: str = "main"
    """Branch, tag or commit of the family's dataset that ``searchlens pin`` looks up."""
    sha256: Sha256 | None = None
    """Hash of the file's bytes, before they were compressed; of several files in a row. A file with another hash is
    refused; otherwise everything would be sampled again without notice."""
    check: bool = True
    """Refuse a known benchmark if its number of rows or its golds differ from the published ones, or if a question is
    there twice."""
    grader: Name
    """Name of a grader: one of docs/grading.md, such as ``math`` for boxed answers or ``choice`` for letters, or one
    that a file of ``extensions`` declares."""
    title: str = ""
    """Name in figures and tables; empty: the key."""
    questions: Positive | None = None
    """Use only the first N questions; null: all."""
    max_tokens: Positive
    """Largest number of tokens to generate per sample. Part of the generation id."""
    wording: str | None = None
    """Text that is put around a question, inside the template's turn (docs/templates.md): ``boxed``,
    ``boxed-letter``, ``answer-letter``, ``as-is`` or ``power-sampling``; null: the template's own for mathematics.
    Part of the generation id."""
    examples: ExamplesSpec | None = None
    """Worked examples in front of the question, the same for Base and RL; null: none. A checkpoint with
    ``examples: false`` is asked without them."""
    recipe_stops: bool = False
    """Also end an answer at the plain words at which the published recipe ends it, such as ``user``. For comparison
    with published numbers only, because every answer that uses such a word is cut; needs a mathematical grader. Part
    of the generation id."""
    pool: Name = "paper24"
    """Key of ``pools``: the policies under which both checkpoints of a pair are sampled."""
    searches: Name | None = None
    """Key of ``pools``: the searches under which Base is sampled as well; null: none."""
    samples: Positive | None = None
    """Samples per question on this benchmark; null: the general ``samples``."""
    deeper: Mapping[Name, Positive] = field(default_factory=dict)
    """Policies of the pool that get more samples per question, with their number; ``extension`` is read from them."""
    regime: Regime | Literal["none"] | None = None
    """g(d) of BOPTR, assigned before anything is evaluated. none: BOPTR leaves this benchmark out. Null: that of the
    known benchmark (``searchlens benchmarks``); for questions of your own math if the grader is mathematical, otherwise
    nonmath."""
    role: Role = "fitted"
    """Part in BOPTR. fitted: in the main tables; held_out: predicted with everything frozen; descriptive: only Base is
    sampled and shown; rltrain: questions of the RL-training split, only Base is sampled."""
    extension: tuple[Positive, ...] | None = None
    """Budgets beyond the last of ``budgets``, each twice the one before; read from policies with enough samples. Null:
    as far as the largest number of samples in ``deeper`` reaches."""
