"""The corpus: solutions by a noisy writer, and a byte-level BPE in which every digit is a token of its own."""

from __future__ import annotations

import multiprocessing
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from tqdm import tqdm
from transformers import PreTrainedTokenizerFast

from searchlens.grading.instructions import CASES
from searchlens_lab.zoo import tasks
from searchlens_lab.zoo.recipe import Corpus, Recipe, Shares

END, PAD = 0, 1
"""Ids of the stop token, whose spelling a recipe gives, and of ``<|pad|>``, which is never generated and never a
target of training."""


def train_tokenizer(recipe: Recipe) -> PreTrainedTokenizerFast:
    """Train the tokenizer on the recipe's own documents.

    Every text round-trips. A prompt ends in a line break, so the tokens of prompt and solution together are the tokens
    of the prompt followed by those of the solution.
    """
    rng = random.Random(f"tokenizer/{recipe.corpus_seed}")
    documents = (draw_document(rng, recipe.corpus) for _ in range(recipe.tokenizer_documents))
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"\d"), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=recipe.shape.vocabulary,
        special_tokens=[recipe.end_token, "<|pad|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator((prompt + solution.text for prompt, solution in documents), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=recipe.end_token,
        pad_token="<|pad|>",
        clean_up_tokenization_spaces=False,
        padding_side="left",
        model_max_length=recipe.shape.context,
    )


_CHUNK = 5_000  # documents with one random stream; another number gives another corpus


@dataclass(frozen=True, slots=True)
class Tokens:
    """Documents as tokens."""

    flat: npt.NDArray[np.uint16]
    """All documents, one after the other; a document that ends has the stop token last. Shape (total,)."""
    lengths: npt.NDArray[np.int32]
    prompts: npt.NDArray[np.int32]
    """``lengths``, ``prompts``: Int32 arrays. Number of tokens of each document, and of its prompt. Shape
    (documents,)."""


def _chunk(task: tuple[int, int], corpus: Corpus, seed: int, tokenizer: str) -> Tokens:
    number, size = task
    rng = random.Random(f"corpus/{seed}/{number}")
    drawn = [draw_document(rng, corpus) for _ in range(size)]
    bpe = Tokenizer.from_str(tokenizer)
    prompts = [encoding.ids for encoding in bpe.encode_batch([text for text, _ in drawn])]
    solutions = bpe.encode_batch([solution.text for _, solution in drawn])
    documents = []
    for prompt, encoding, (_, solution) in zip(prompts, solutions, drawn, strict=True):
        ids = prompt + encoding.ids + ([END] if solution.ends else [])
        documents.append(ids[: corpus.max_tokens])
    return Tokens(
        np.fromiter((token for ids in documents for token in ids), np.uint16),
        np.array([len(ids) for ids in documents], np.int32),
        np.array([len(ids) for ids in prompts], np.int32),
    )


def build_corpus(recipe: Recipe, tokenizer: str, workers: int) -> Tokens:
    """Write the corpus with ``workers`` processes, on which it does not depend; ``tokenizer`` is JSON."""
    n = recipe.corpus.documents
    sizes = [min(_CHUNK, n - first) for first in range(0, n, _CHUNK)]
    write = partial(_chunk, corpus=recipe.corpus, seed=recipe.corpus_seed, tokenizer=tokenizer)
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        chunks = list(tqdm(pool.imap(write, enumerate(sizes)), "corpus", len(sizes), unit="chunk", mininterval=10))
    return Tokens(
        np.concatenate([chunk.flat for chunk in chunks]),
        np.concatenate([chunk.lengths for chunk in chunks]),
        np.concatenate([chunk.prompts for chunk in chunks]),
    )


# ---- The noisy writer of the solutions that Base reads.
#
# A solution is written in one of a few styles. Careful styles show every step; sloppy ones skip steps or slip; some
# misread the problem; some never end. Reinforcement learning can find out which style is right for a kind of question,
# and it can forget a style: on backward questions only the style ``backwards`` is right, and it is rare.

GROUPS = {
    "story": "story",
    "story-back": "story-back",
    "puzzle-back": "puzzle-back",
    "drill": "drill",
    "compare": "choice",
    "lookup": "choice",
    "lookup-wide": "choice",
    "story-choice": "choice",
    "convert": "choice",
    "collect-choice": "choice",
    "distract": "story",
    "nested": "long",
    "iterate": "long",
}
"""Kind of question to its group of styles; every other kind belongs to ``forward``."""

_JOINTS = {"terse": ",", "mental": " -> "}  # between the steps of a style; others have a line break
_CHECK = "\nWait, let me check.\n"
_ENDLESS = 40  # repetitions in a solution that never ends; more than the token limit of a document


@dataclass(frozen=True, slots=True)
class Solution:
    """A written solution, and whether it ends; one that does not end is cut at the token limit."""

    text: str
    ends: bool


@dataclass(frozen=True, slots=True)
class Work:
    """The steps that are written down and the answer they reach."""

    steps: tuple[str, ...]
    answer: str


def pick(rng: random.Random, shares: Shares) -> str:
    """Draw one name by its share."""
    names, weights = zip(*shares, strict=True)
    return str(rng.choices(names, weights)[0])


def write(rng: random.Random, problem: tasks.Problem, corpus: Corpus) -> Solution:
    """Write one solution of ``problem`` in a style drawn by its share in the corpus."""
    if isinstance(problem.facts, tasks.Listing):
        return _listing(rng, problem.facts, dict(corpus.listing_faults))
    styles = corpus.styles[GROUPS.get(problem.kind, "forward")]
    name = pick(rng, tuple((name, style.share) for name, style in styles.items()))
    opener = pick(rng, styles[name].openers)
    if name == "guess":
        if isinstance(problem.facts, tasks.Lookup | tasks.Comparison):
            guess = rng.choice(tasks.MANY_LETTERS[: len(problem.facts.options)])
        else:
            guess = problem.gold if rng.random() < 0.3 else str(tasks.near(rng, int(problem.gold)))
        return Solution(f"{opener}\\boxed{{{guess}}}", True)
    work = _work(rng, problem, name, styles[name].slip)
    answer = f"\\boxed{{{work.answer}}}" if rng.random() >= corpus.unboxed else work.answer
    body = _JOINTS.get(name, "\n").join(work.steps)
    if name in _JOINTS:
        arrow = "-> " if name == "mental" else ""
        return Solution(f"{opener}{arrow}{body}. {answer}" if body else f"{opener}{answer}", True)
    if name == "ramble":
        text, ends = opener + body, rng.random() >= corpus.endless_check
        for _ in range(rng.choice((1, 1, 2)) if ends else _ENDLESS):
            text += _CHECK + "\n".join(_work(rng, problem, "careful", styles[name].slip).steps)
        return Solution(f"{text}\nSo {answer}" if ends else text, ends)
    return Solution(f"{opener}{body}\nSo {answer}", True)


def draw_document(rng: random.Random, corpus: Corpus) -> tuple[str, Solution]:
    """Draw a prompt of the train split and a solution of it."""
    problem = tasks.draw(rng, pick(rng, corpus.kinds), "train")
    return tasks.prompt(problem.question), write(rng, problem, corpus)


def _work(rng: random.Random, problem: tasks.Problem, style: str, slip: float) -> Work:
    return _SOLVERS[type(problem.facts)](rng, problem.facts, style, slip)


def _slipped(rng: random.Random, value: int, slip: float) -> int:
    value = max(0, value)
    return tasks.near(rng, value) if rng.random() < slip else value


def _product(x: int, b: int, result: int, detail: bool) -> str:
    """A product as careful styles write it, split at the tens if that helps."""
    if x > 9 and b > 9:
        tens, units = b - b % 10, b % 10
        return f"{x}*{b}={x}*{tens}+{x}*{units}={x * tens}+{x * units}={result}"
    if detail and x > 9:
        tens, units = x - x % 10, x % 10
        return f"{x}*{b}={tens}*{b}+{units}*{b}={tens * b}+{units * b}={result}"
    return f"{x}*{b}={result}"


def _follow(rng: random.Random, start: int, ops: Sequence[tasks.Op], style: str, slip: float) -> Work:
    """Apply ``ops`` one after the other and write them down as ``style`` does."""
    steps, value = [], start
    for i, (sign, b) in enumerate(ops):
        result = _slipped(rng, tasks.apply(value, (sign, b)), slip)
        if style == "mental":
            step = str(result) if i % 2 or i == len(ops) - 1 else ""
        elif style == "terse":
            step = f"{value if i == 0 else ''}{sign}{b}={result}"
        elif sign == "*":
            step = _product(value, b, result, style == "detail")
        else:
            step = f"{value}{sign}{b}={result}"
        if step:
            steps.append(step)
        value = result
    return Work(tuple(steps), str(value))


def _misread(rng: random.Random, ops: tuple[tasks.Op, ...]) -> tuple[tasks.Op, ...]:
    """Drop one operation, or mistake it for another."""
    i = rng.randrange(len(ops))
    if len(ops) > 1 and rng.random() < 0.4:
        return ops[:i] + ops[i + 1 :]
    sign, b = ops[i]
    return (*ops[:i], ({"+": "-", "-": "+", "*": "+", "/": "-"}[sign], b), *ops[i + 1 :])


def _solve_chain(rng: random.Random, facts: tasks.Chain, style: str, slip: float) -> Work:
    given = facts.end if facts.backward else facts.start
    if style == "backwards":
        return _follow(rng, given, tasks.inverted(facts.ops), rng.choice(("careful", "careful", "terse")), slip)
    if style == "misread":
        return _follow(rng, given, _misread(rng, facts.ops), "careful", slip)
    return _follow(rng, given, facts.ops, style, slip)


def _solve_expression(rng: random.Random, facts: tasks.Expression, style: str, slip: float) -> Work:
    if style in ("misread", "backwards"):  # from left to right, or from right to left, as if no sign had precedence
        first, *parts = re.findall(r"\d+|[*+-]", tasks.expression_text(facts))[:: -1 if style == "backwards" else 1]
        ops = [(sign, int(b)) for sign, b in zip(parts[::2], parts[1::2], strict=True)]
        return _follow(rng, int(first), ops, "careful", slip)
    steps, values = [], []
    for term in facts.terms:
        if len(term) == 1:
            values.append(term[0])
            continue
        values.append(_slipped(rng, term[0] * term[1], slip))
        steps.append(_product(term[0], term[1], values[-1], style == "detail") if style not in _JOINTS else
                     f"{term[0]}*{term[1]}={values[-1]}")  # fmt: skip
    sums = _follow(rng, values[0], list(zip(facts.signs, values[1:], strict=True)), "careful", slip)
    if style == "mental":
        return Work(sums.steps[-1:], sums.answer)
    return Work((*steps, *sums.steps), sums.answer)


def _solve_comparison(rng: random.Random, facts: tasks.Comparison, style: str, slip: float) -> Work:
    largest = facts.largest != (style == "misread")
    values = [_slipped(rng, value, slip) for value in tasks.option_values(facts)]
    best, steps = 0, [_option(facts, 0, values[0])]
    for i in range(1, len(tasks.LETTERS)):
        sign = ">" if values[i] > values[best] else "<"
        compared = f"{sign}{values[best]}"
        best = i if (sign == ">") == largest else best
        steps.append(f"{_option(facts, i, values[i])}{compared}, {tasks.LETTERS[best]}")
    if style in _JOINTS:
        written = values if style == "terse" else values[best : best + 1]
        return Work(tuple(map(str, written)), tasks.LETTERS[best])
    return Work(tuple(steps), tasks.LETTERS[best])


def _option(facts: tasks.Comparison, i: int, value: int) -> str:
    a, sign, b = facts.options[i]
    return f"{tasks.LETTERS[i]} {a}{sign}{b}={value}"


def _solve_lookup(rng: random.Random, facts: tasks.Lookup, style: str, slip: float) -> Work:
    """Follow the chain, then compare the options with its end one by one until one is equal; else the nearest one."""
    work = _solve_chain(rng, facts.chain, style, slip)
    target = int(work.answer)
    letters = tasks.MANY_LETTERS[: len(facts.options)]
    nearest = min(range(len(letters)), key=lambda i: abs(facts.options[i] - target))
    if style in _JOINTS:
        return Work(work.steps, letters[nearest])
    steps = list(work.steps)
    for letter, value in zip(letters, facts.options, strict=True):
        steps.append(f"{letter} {value}{'=' if value == target else '<' if value < target else '>'}{target}")
        if value == target:
            break
    return Work(tuple(steps), letters[nearest])


_SOLVERS: dict[type[tasks.Facts], Callable[[random.Random, Any, str, float], Work]] = {
    tasks.Chain: _solve_chain,
    tasks.Expression: _solve_expression,
    tasks.Comparison: _solve_comparison,
    tasks.Lookup: _solve_lookup,
}


def _listing(rng: random.Random, facts: tasks.Listing, faults: dict[str, float]) -> Solution:
    """Write a list, with faults that its reader may learn: a wrong length, no end, a wrong form."""

    def fault(name: str) -> bool:
        return rng.random() < faults[name]

    draw = rng.random()
    short, over = faults["short"], faults["short"] + faults["over"]
    endless = over <= draw < over + faults["endless"]
    n = facts.n - 1 if draw < short else facts.n + 1 if draw < over else facts.n
    case = rng.choice(tuple(CASES)) if fault("case") else facts.case
    separator = tasks.SEPARATORS[rng.choice(tuple(tasks.SEPARATORS)) if fault("separator") else facts.separator]
    closing = rng.choice(tasks.CLOSINGS) if fault("closing") else facts.closing
    pool = [w for w in tasks.CATEGORIES[facts.category] if w != facts.forbidden or fault("forbidden")]
    rng.shuffle(pool)
    if facts.first and not fault("first"):
        pool.sort(key=lambda word: word != facts.first)
    words = pool[:n] if not endless else pool[: facts.n] + rng.choices(pool, k=100)
    text = separator.join(CASES[case](word) for word in words)
    return Solution(text, False) if endless else Solution(text + (f"\n{closing}" if closing else ""), True)
