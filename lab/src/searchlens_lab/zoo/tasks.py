"""Questions with exact gold answers, drawn from a seeded generator.

A :class:`Problem` holds its question, its gold and the *facts* from which both were made; the writer of solutions
(:mod:`searchlens_lab.zoo.corpus`) works from the facts. The hash of a question's text puts it into train, dev or test,
so the three are disjoint.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any, Literal, TypeVar

from searchlens.grading.instructions import CASES

Split = Literal["train", "dev", "test"]
Op = tuple[str, int]
"""An operation on a running value: one of ``+ - * /``, and its operand."""

LETTERS = "ABCD"
MANY_LETTERS = "ABCDEFGH"
NAMES = ("Tom", "Ann", "Ben", "Eva", "Max", "Lily", "Sam", "Mia", "Leo", "Zoe")
OBJECTS = ("apples", "coins", "books", "cards", "shells", "stamps", "pens", "eggs", "beads", "nuts")
EVENTS = {
    "+": ("{name} buys {b} more.", "{name} finds {b} more.", "A friend gives {name} {b} more."),
    "-": ("{name} gives away {b}.", "{name} loses {b}.", "{name} sells {b}."),
    "*": ("Then the number grows {b} times.", "{name} now gets {b} times as many."),
    "/": ("{name} makes {b} equal piles and keeps one.",),
}
ORDERS = {"+": "add {b}", "-": "subtract {b}", "*": "multiply by {b}", "/": "divide by {b}"}
INVERSE = {"+": "-", "-": "+", "*": "/", "/": "*"}
CATEGORIES = {
    "animals": ("cat", "dog", "cow", "pig", "hen", "fox", "bear", "wolf", "lion", "goat"),
    "colors": ("red", "blue", "green", "black", "white", "pink", "gray", "brown", "gold", "tan"),
    "fruits": ("apple", "pear", "plum", "fig", "lime", "mango", "peach", "grape", "kiwi", "melon"),
    "tools": ("saw", "hammer", "drill", "file", "axe", "rake", "spade", "knife", "rope", "nail"),
    "drinks": ("tea", "milk", "water", "juice", "soda", "cocoa", "cider", "beer", "wine", "coffee"),
    "clothes": ("hat", "coat", "sock", "shoe", "belt", "scarf", "glove", "shirt", "dress", "vest"),
}
SEPARATORS = {"commas": ", ", "dashes": " - ", "semicolons": "; ", "slashes": " / "}
UNITS = (
    ("weeks", "days", 7),
    ("days", "hours", 24),
    ("hours", "minutes", 60),
    ("minutes", "seconds", 60),
    ("years", "months", 12),
    ("feet", "inches", 12),
    ("pounds", "ounces", 16),
    ("meters", "centimeters", 100),
)
MEMBERS: dict[str, Callable[[int], bool]] = {
    "even": lambda x: x % 2 == 0,
    "odd": lambda x: x % 2 == 1,
    "large": lambda x: x > 50,
}
"""Which members of a list are to be added."""
ASIDES = (
    "The room is {n} feet long.",
    "It is {n} minutes past noon.",
    "{other} is {n} years old.",
    "{other} lives at number {n}.",
)
"""Sentences whose number does not matter."""
CLOSINGS = ("", "DONE", "STOP", "BYE")
HINT = " Work backwards."
"""The sentence that a drill adds to a backward question."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Operations applied in turn to ``start``. The answer is the end or, if ``backward``, the start, given the end."""

    start: int
    ops: tuple[Op, ...]
    end: int
    backward: bool = False


@dataclass(frozen=True, slots=True)
class Expression:
    """Terms joined by ``+`` or ``-``; a term is one number, or two to be multiplied."""

    terms: tuple[tuple[int, ...], ...]
    signs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Four expressions ``a op b`` of distinct values; the answer is the largest one (or the smallest)."""

    options: tuple[tuple[int, str, int], ...]
    largest: bool


@dataclass(frozen=True, slots=True)
class Lookup:
    """A chain whose end is one of the listed values, four or eight."""

    chain: Chain
    options: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """A list to be written under formal constraints; an empty string means that there is no such constraint."""

    category: str
    n: int
    case: str
    separator: str
    forbidden: str
    first: str
    closing: str


Facts = Chain | Expression | Comparison | Lookup | Listing


@dataclass(frozen=True, slots=True)
class Problem:
    """One question."""

    question: str
    """As in the benchmark file, without the prompt template."""
    gold: str
    """The exact answer: an integer or a letter; empty if ``checks`` decide."""
    kind: str
    """A key of :data:`KINDS`."""
    level: int
    """Difficulty, 1 to 8; for chains, roughly the number of operations."""
    facts: Facts
    """What question and gold were made from."""
    checks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Parameters of :func:`searchlens.grading.instructions.passes`; empty unless the kind is ``listing``."""


def prompt(question: str) -> str:
    """The prompt of every zoo model. It ends in a line break, a token boundary of the zoo's tokenizer."""
    return f"Problem: {question}\nSolution:\n"


def split_of(question: str) -> Split:
    """The split of a question, by its CRC-32: a tenth is test, a tenth dev. A drill is in the split of its question."""
    bucket = zlib.crc32(question.removesuffix(HINT).encode()) % 10
    return "test" if bucket == 0 else "dev" if bucket == 1 else "train"


def apply(value: int, op: Op) -> int:
    """Apply one operation; division is floored (the generators only make exact divisions)."""
    sign, b = op
    if sign == "+":
        return value + b
    if sign == "-":
        return value - b
    return value * b if sign == "*" else value // b


def run(start: int, ops: tuple[Op, ...]) -> list[int]:
    """The values after each operation."""
    return list(accumulate(ops, apply, initial=start))[1:]


def inverted(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    """The operations that lead from the end back to the start."""
    return tuple((INVERSE[sign], b) for sign, b in reversed(ops))


def near(rng: random.Random, value: int) -> int:
    """A wrong but plausible non-negative value: off by one, two, ten, or another small number."""
    delta = rng.choice((-1, 1, -1, 1, -2, 2, -10, 10, -10, 10, -20, 20, 100, rng.randint(3, 9)))
    return value + (delta if value + delta >= 0 else -delta)


_CEILING = {1: 99, 2: 299, 3: 999, 4: 999, 5: 9999}
_LENGTH = {1: 2, 2: 2, 3: 3, 4: 3, 5: 4}
_T = TypeVar("_T")


def _first(attempts: int, what: str, candidate: Callable[[], _T | None]) -> _T:
    """The first candidate that is not None; a limit on attempts keeps a generator from looping forever."""
    for _ in range(attempts):
        made = candidate()
        if made is not None:
            return made
    raise RuntimeError(f"no {what} found in {attempts} attempts")


def _next_op(rng: random.Random, value: int, ceiling: int, signs: str, wide: float) -> Op:
    """An operation that keeps ``value`` between 1 and ``ceiling``; divisions are exact."""

    def candidate() -> Op | None:
        sign = rng.choice(signs)
        if sign == "*":
            op = (sign, rng.randint(11, 25) if rng.random() < wide else rng.randint(2, 9))
        elif sign == "/":
            op = (sign, rng.randint(2, 9))
            if value % op[1]:
                return None
        else:
            op = (sign, rng.randint(2, min(99, ceiling)))
        return op if 1 <= apply(value, op) <= ceiling else None

    return _first(1000, "operation", candidate)


def _chain(rng: random.Random, n: int, ceiling: int, signs: str, wide: float = 0.0, start: int = 0) -> Chain:
    value = first = start or rng.randint(3, 60)
    ops: list[Op] = []
    while len(ops) < n:
        ops.append(_next_op(rng, value, ceiling, signs, wide))
        value = apply(value, ops[-1])
    return Chain(first, tuple(ops), value)


def _forward(rng: random.Random, level: int, length: int) -> Chain:
    return _chain(rng, length, _CEILING[level], "+++---**/", wide=0.5 if level >= 4 else 0.0)


def _backward(rng: random.Random, n: int, ceiling: int, wide: float, largest: int) -> Chain:
    """A chain asked backwards. Run forwards from its end, the wrong way, it stays positive: both can be written."""

    def candidate() -> Chain | None:
        chain = _chain(rng, n, ceiling, "++--**", wide, rng.randint(3, largest))
        signs = {sign for sign, _ in chain.ops}
        wrong = run(chain.end, chain.ops)
        fits = (
            min(wrong) > 0 and max(wrong) < 1_000_000 and len(signs) > 1 and chain.start not in (wrong[-1], chain.end)
        )
        return Chain(chain.start, chain.ops, chain.end, backward=True) if fits else None

    return _first(1000, "backward chain", candidate)


def _story_events(rng: random.Random, name: str, ops: tuple[Op, ...]) -> str:
    return " ".join(rng.choice(EVENTS[sign]).format(name=name, b=b) for sign, b in ops)


def _orders(ops: tuple[Op, ...]) -> str:
    return ", ".join(ORDERS[sign].format(b=b) for sign, b in ops)


def story(rng: random.Random, level: int) -> Problem:
    """A count of objects that changes; the answer is the final count."""
    name, things = rng.choice(NAMES), rng.choice(OBJECTS)
    if level >= 4 and rng.random() < 0.35:
        boxes, each = rng.randint(11, 39), rng.randint(11, 25)
        rest = _chain(rng, _LENGTH[level] - 1, _CEILING[level], "+++---**/", start=boxes * each)
        chain = Chain(boxes, (("*", each), *rest.ops), rest.end)
        opening, events = f"{name} has {boxes} boxes with {each} {things} each.", rest.ops
    else:
        chain = _forward(rng, level, _LENGTH[level])
        opening, events = f"{name} has {chain.start} {things}.", chain.ops
    question = f"{opening} {_story_events(rng, name, events)} How many {things} does {name} have now?"
    return Problem(question, str(chain.end), "story", level, chain)


def _chain_question(rng: random.Random, chain: Chain) -> str:
    if rng.random() < 0.5:
        return f"Start with {chain.start}. Then {_orders(chain.ops)}. What is the result?"
    return f"I think of {chain.start}. I {_orders(chain.ops)}. What do I get?"


def chain(rng: random.Random, level: int) -> Problem:
    """A bare chain of operations."""
    facts = _forward(rng, level, _LENGTH[level])
    return Problem(_chain_question(rng, facts), str(facts.end), "chain", level, facts)


def long_chain(rng: random.Random, level: int) -> Problem:
    """A chain of ``level`` easy operations; it is long, but careful work nearly always solves it."""
    facts = _chain(rng, level, 299, "+++---*")
    return Problem(_chain_question(rng, facts), str(facts.end), "long-chain", level, facts)


def story_back(rng: random.Random, level: int) -> Problem:
    """A story told forwards and asked backwards: to follow it from the final count is wrong."""
    name, things = rng.choice(NAMES), rng.choice(OBJECTS)
    facts = _backward(rng, level, 299, wide=0.0, largest=60)
    events = _story_events(rng, name, facts.ops)
    question = (
        f"{name} has some {things}. {events} Now {name} has {facts.end}. How many {things} did {name} have at first?"
    )
    return Problem(question, str(facts.start), "story-back", level, facts)


def puzzle_back(rng: random.Random, level: int) -> Problem:
    """The same trap over ``level`` operations with two-digit factors: right work is long and error-prone."""
    facts = _backward(rng, level, 9_999, wide=0.4, largest=500)
    question = f"I think of a number. I {_orders(facts.ops)}. I get {facts.end}. What was the number?"
    return Problem(question, str(facts.start), "puzzle-back", level, facts)


def drill(rng: random.Random, level: int) -> Problem:
    """A backward question that names the method; only in Base's corpus, to teach the method but not when to use it."""
    made = (story_back if rng.random() < 0.5 else puzzle_back)(rng, level)
    return Problem(made.question + HINT, made.gold, "drill", level, made.facts)


def value_of(expression: Expression) -> int:
    """The value of an expression, products first."""
    values = [term[0] if len(term) == 1 else term[0] * term[1] for term in expression.terms]
    return values[0] + sum(v if s == "+" else -v for s, v in zip(expression.signs, values[1:], strict=True))


def expression_text(expression: Expression) -> str:
    """The expression as it is printed, for example ``3*14+25``."""
    parts = ["*".join(map(str, term)) for term in expression.terms]
    return parts[0] + "".join(s + p for s, p in zip(expression.signs, parts[1:], strict=True))


def expression(rng: random.Random, level: int) -> Problem:
    """Sums and differences of products."""
    n = 2 if level <= 3 else 3

    def term() -> tuple[int, ...]:
        if rng.random() < 0.45:
            return (rng.randint(2, 99),)
        wide = level >= 4 and rng.random() < 0.4
        return (rng.randint(11, 49) if wide else rng.randint(2, 9), rng.randint(2, 9 if level == 1 else 29))

    def candidate() -> Expression | None:
        made = Expression(tuple(term() for _ in range(n)), tuple(rng.choice("+-") for _ in range(n - 1)))
        partial = [value_of(Expression(made.terms[: i + 1], made.signs[:i])) for i in range(n)]
        product_later = any(len(t) == 2 for t in made.terms[1:]) or level == 1
        return made if product_later and min(partial) >= 0 and max(partial) <= _CEILING[max(level, 3)] else None

    facts = _first(1000, "expression", candidate)
    return Problem(f"Compute {expression_text(facts)}.", str(value_of(facts)), "expression", level, facts)


def compare(rng: random.Random, level: int) -> Problem:
    """Multiple choice: the largest, or the smallest, of four expressions."""
    largest = rng.random() < 0.5

    def option() -> tuple[int, str, int]:
        sign = rng.choice("+-*")
        if sign == "*":
            return rng.randint(11, 39), sign, rng.randint(3, 9) if level < 3 else rng.randint(11, 19)
        return rng.randint(60, 199 if level < 3 else 599), sign, rng.randint(11, 59)

    def candidate() -> Comparison | None:
        made = Comparison(tuple(option() for _ in LETTERS), largest)
        return made if len(set(option_values(made))) == len(LETTERS) else None

    facts = _first(1000, "comparison", candidate)
    values = option_values(facts)
    gold = LETTERS[values.index(max(values) if largest else min(values))]
    listed = " ".join(f"({x}) {a}{s}{b}" for x, (a, s, b) in zip(LETTERS, facts.options, strict=True))
    return Problem(f"Which is the {'largest' if largest else 'smallest'}? {listed}", gold, "compare", level, facts)


def option_values(facts: Comparison) -> list[int]:
    """The four values of a comparison, in the order of the letters."""
    return [apply(a, (sign, b)) for a, sign, b in facts.options]


def lookup(rng: random.Random, level: int, letters: str, kind: str) -> Problem:
    """Multiple choice: the end of a chain among as many close values as there are letters."""
    facts = _chain(rng, level, 999, "+++---**/", wide=0.3)
    question = f"Start with {facts.start}. Then {_orders(facts.ops)}. Which is the result?"
    return _among(rng, question, facts, letters, kind, level)


def _among(rng: random.Random, question: str, facts: Chain, letters: str, kind: str, level: int) -> Problem:
    """A question whose answer, the end of a chain, is one of several close values."""
    values = {facts.end}
    while len(values) < len(letters):
        values.add(near(rng, facts.end))
    options = sorted(values)
    rng.shuffle(options)
    listed = " ".join(f"({x}) {v}" for x, v in zip(letters, options, strict=True))
    gold = letters[options.index(facts.end)]
    return Problem(f"{question} {listed}", gold, kind, level, Lookup(facts, tuple(options)))


def story_choice(rng: random.Random, level: int) -> Problem:
    """A story's count among four close values."""
    problem = story(rng, level)
    assert isinstance(problem.facts, Chain)
    return _among(rng, problem.question, problem.facts, LETTERS, "story-choice", level)


def convert(rng: random.Random, level: int) -> Problem:
    """A quantity in two units, to be converted to the smaller one, among four close values."""
    large, small, factor = rng.choice(UNITS)
    count, rest = rng.randint(2, 39), rng.randint(2, factor - 1)
    facts = Chain(count, (("*", factor), ("+", rest)), count * factor + rest)
    return _among(rng, f"How many {small} are {count} {large} and {rest} {small}?", facts, LETTERS, "convert", level)


def distract(rng: random.Random, level: int) -> Problem:
    """A story with a sentence whose number does not matter."""
    (name, other), things = rng.sample(NAMES, 2), rng.choice(OBJECTS)
    facts = _forward(rng, level, _LENGTH[level])
    sentences = [rng.choice(EVENTS[sign]).format(name=name, b=b) for sign, b in facts.ops]
    sentences.insert(rng.randint(0, len(sentences)), rng.choice(ASIDES).format(other=other, n=rng.randint(11, 99)))
    question = f"{name} has {facts.start} {things}. {' '.join(sentences)} How many {things} does {name} have now?"
    return Problem(question, str(facts.end), "distract", level, facts)


def _members(rng: random.Random, level: int) -> tuple[str, Chain]:
    """``level`` + 2 numbers, some of which are to be added: the question, and the chain that leads to the sum."""
    name = rng.choice(tuple(MEMBERS))

    def candidate() -> tuple[str, list[int]] | None:
        numbers = rng.sample(range(2, 100), level + 2)
        members = [x for x in numbers if MEMBERS[name](x)]
        return (", ".join(map(str, numbers)), members) if 2 <= len(members) < len(numbers) else None

    listed, (first, *rest) = _first(1000, "list", candidate)
    return f"Add the {name} numbers of {listed}.", Chain(first, tuple(("+", x) for x in rest), first + sum(rest))


def collect(rng: random.Random, level: int) -> Problem:
    """The sum over some members of a list."""
    question, facts = _members(rng, level)
    return Problem(question, str(facts.end), "collect", level, facts)


def collect_choice(rng: random.Random, level: int) -> Problem:
    """The sum over some members of a list, among four close values."""
    question, facts = _members(rng, level)
    return _among(rng, question, facts, LETTERS, "collect-choice", level)


def nested(rng: random.Random, level: int) -> Problem:
    """An expression with brackets that is a chain of ``level`` operations."""

    def candidate() -> tuple[str, Chain] | None:
        facts = _chain(rng, level, _CEILING[min(level, 5)], "++--**", wide=0.2)
        text = str(facts.start)
        for i, (sign, b) in enumerate(facts.ops):
            loose = sign == "*" and i > 0 and facts.ops[i - 1][0] in "+-"
            text = f"({text}){sign}{b}" if loose else f"{text}{sign}{b}"
        return (text, facts) if "(" in text else None

    text, facts = _first(1000, "nested expression", candidate)
    return Problem(f"Compute {text}.", str(facts.end), "nested", level, facts)


def iterate(rng: random.Random, level: int) -> Problem:
    """Two operations, repeated ``level`` times."""

    def candidate() -> Chain | None:
        once = (("*", rng.randint(2, 5)), (rng.choice("+-"), rng.randint(2, 49)))
        start = rng.randint(3, 40)
        values = run(start, once * level)
        return Chain(start, once * level, values[-1]) if min(values) > 0 and max(values) < 10_000 else None

    facts = _first(1000, "repeated chain", candidate)
    again = _orders(facts.ops[:2]).replace(", ", ", then ")
    question = f"Start with {facts.start}. Do this {level} times: {again}. What is the result?"
    return Problem(question, str(facts.end), "iterate", level, facts)


def listing(rng: random.Random, level: int) -> Problem:
    """A list of ``level`` + 1 words under formal constraints, which a program checks exactly."""
    category = rng.choice(tuple(CATEGORIES))
    words = CATEGORIES[category]
    forbidden, first = rng.sample(words, 2)
    if rng.random() < 0.5:
        forbidden = ""
    if rng.random() < 0.6:
        first = ""
    closing = rng.choice(CLOSINGS)
    facts = Listing(
        category, level + 1, rng.choice(tuple(CASES)), rng.choice(tuple(SEPARATORS)), forbidden, first, closing
    )
    question = f"Write {facts.n} {category} in {facts.case} case separated by {facts.separator}."
    question += f" Start with {first}." if first else ""
    question += f" Do not use {forbidden}." if forbidden else ""
    question += f" Then write {closing} on a new line." if closing else ""
    return Problem(question, "", "listing", level, facts, listing_checks(facts))


def listing_checks(facts: Listing) -> dict[str, dict[str, Any]]:
    """The checks that a response has to pass, as in a row of the benchmark."""
    separator = SEPARATORS[facts.separator]
    checks: dict[str, dict[str, Any]] = {
        "count": {"n": facts.n, "separator": separator},
        "members": {"words": list(CATEGORIES[facts.category]), "separator": separator},
        "case": {"style": facts.case},
        "closing": {"line": facts.closing},
    }
    if facts.forbidden:
        checks["forbid"] = {"word": facts.forbidden}
    if facts.first:
        checks["first"] = {"word": facts.first, "separator": separator}
    return checks


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of question and the levels at which it is defined."""

    make: Callable[[random.Random, int], Problem]
    levels: tuple[int, ...]


KINDS: dict[str, Kind] = {
    "story": Kind(story, (1, 2, 3, 4, 5)),
    "chain": Kind(chain, (1, 2, 3, 4, 5)),
    "expression": Kind(expression, (1, 2, 3, 4, 5)),
    "long-chain": Kind(long_chain, (7, 8)),
    "story-back": Kind(story_back, (2, 3)),
    "puzzle-back": Kind(puzzle_back, (3, 4, 5, 6, 7)),
    "drill": Kind(drill, (2, 3, 4, 5, 6)),
    "compare": Kind(compare, (2, 3)),
    "lookup": Kind(partial(lookup, letters=LETTERS, kind="lookup"), (3, 4)),
    "listing": Kind(listing, (1, 2, 3, 4, 5)),
    "lookup-wide": Kind(partial(lookup, letters=MANY_LETTERS, kind="lookup-wide"), (3, 4)),
    "story-choice": Kind(story_choice, (2, 3, 4)),
    "convert": Kind(convert, (2,)),
    "distract": Kind(distract, (2, 3, 4, 5)),
    "collect": Kind(collect, (3, 4, 5)),
    "collect-choice": Kind(collect_choice, (3, 4)),
    "nested": Kind(nested, (3, 4, 5)),
    "iterate": Kind(iterate, (2, 3)),
}
"""Every kind of question by its name in recipes and benchmark rows."""


def draw(rng: random.Random, kind: str, split: Split, levels: tuple[int, ...] = ()) -> Problem:
    """Draw one problem of a kind in ``split``, at one of ``levels`` (default: all levels of the kind)."""
    allowed = levels or KINDS[kind].levels

    def candidate() -> Problem | None:
        problem = KINDS[kind].make(rng, rng.choice(allowed))
        return problem if split_of(problem.question) == split else None

    return _first(10_000, f"{split} question of kind {kind}", candidate)


def distinct(rng: random.Random, kind: str, split: Split, n: int, levels: tuple[int, ...] = ()) -> Iterator[Problem]:
    """Yield ``n`` problems with distinct questions.

    Raises RuntimeError if the kind has fewer distinct questions; found out after 50 attempts per question.
    """
    seen: set[str] = set()
    for _ in range(50 * n):
        if len(seen) == n:
            return
        problem = draw(rng, kind, split, levels)
        if problem.question not in seen:
            seen.add(problem.question)
            yield problem
    if len(seen) < n:
        raise RuntimeError(f"only {len(seen)} distinct {split} questions of kind {kind}, {n} needed")
