"""Prompt templates by family of models: the text around a question, and what ends an answer.

Templates are keys of the configuration; ``templates.yaml`` has the shipped ones. They end answers at tokens, and at the
delimiters of their own turns, which a model writes when it continues with another question. They never end them at
words: a stop word of the published recipes, such as "user", cuts every answer that mentions it. Those words are an
option (``recipe_stops``) for comparison with published numbers.

A benchmark that needs other instructions than "put your final answer within a box" names a wording, which is then put
into the turn of the family.

A prompt may show worked examples before the question, by which a model that was only pretrained learns in what form an
answer is wanted. Each is the same turn with its answer after it, so that a model that goes on after its own answer
writes the beginning of another turn, and is stopped there. No engine decides which examples a prompt shows, so that
Base and RL of a pair are shown the same ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from searchlens.benchmarks.files import objects, refuse
from searchlens.benchmarks.questions import plain
from searchlens.config.limits import record
from searchlens.config.sampled import PromptFamily
from searchlens.errors import InputError, require_known
from searchlens.store.files import digest
from searchlens.store.inputs import require_no_stream

# ---- worked examples

_KEYS = ("question", "answer")
_FORMAT = "a worked example has question and answer, two texts (docs/add-a-benchmark.md)"


@dataclass(frozen=True, slots=True)
class Example:
    """A question, and its answer as a model is to write it."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class WorkedExamples:
    """The examples of a benchmark, and how many of them a prompt shows."""

    known: tuple[Example, ...]
    """At least ``count`` of them."""
    count: int
    """Examples in a prompt, >= 1."""
    seed: int | None = None
    """None: every prompt shows the first ``count``, in their order. A number: each question has ``count`` of its own,
    drawn by this seed and the id of the question."""

    @property
    def description(self) -> dict[str, Any]:
        """Everything that decides which examples a prompt shows, as plain JSON types."""
        shown = self.known if self.seed is not None else self.known[: self.count]
        described: dict[str, Any] = {"texts": digest([[each.question, each.answer] for each in shown], 16)}
        return described | {"count": self.count} | ({} if self.seed is None else {"seed": self.seed})


def read_examples(path: Path, count: int, seed: int | None = None) -> WorkedExamples:
    """Read worked examples from a file of JSON lines with the keys ``question`` and ``answer``, for ``WorkedExamples``.

    Raises InputError if the file cannot be read, a row is not two texts, a question occurs twice, or there are too few
    examples: with a seed, one more than ``count`` is needed, because a question is not shown its own answer.
    """
    try:
        content = require_no_stream(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the worked examples {path}: {error.strerror}") from None
    rows, errors = objects(path, content)
    seen: dict[str, int] = {}
    for line, row in rows:
        bad = [key for key in _KEYS if not isinstance(row.get(key), str) or not row[key].strip()]
        errors += [(line, f"{key!r} must be a text that is not empty") for key in bad]
        errors += [(line, f"key {key!r} is unknown") for key in row if key not in _KEYS]
        if "question" not in bad and (first := seen.setdefault(plain(row["question"]), line)) != line:
            errors.append((line, f"the question occurs already on line {first}"))
    refuse(path, errors, _FORMAT)
    needed = count if seed is None else count + 1
    if len(rows) < needed:
        why = "" if seed is None else ", because a question is never shown its own answer"
        raise InputError(
            f"{path} has {len(rows)} worked examples, {needed} are needed for count {count}{why}",
            "lower `count`, or add examples",
        )
    return WorkedExamples(
        tuple(Example(row["question"].strip(), row["answer"].strip()) for _, row in rows), count, seed
    )


def require_others(path: Path, examples: WorkedExamples, questions: Iterable[str]) -> None:
    """Raise InputError, which names the line, if an example that every prompt shows is a question that is asked."""
    asked = {plain(text) for text in questions}
    shown: Sequence[Example] = examples.known[: examples.count] if examples.seed is None else ()
    for place, each in enumerate(shown, start=1):
        if plain(each.question) in asked:
            raise InputError(
                f"{path}: worked example {place} is a question of the benchmark, whose answer it would give away",
                "take examples from other questions, such as a training split; or set `drawn: true`, by which no "
                "question is shown its own answer",
            )


# ---- templates


@dataclass(frozen=True, slots=True)
class Chat:
    """The chat template that writes the turns: the digest of its text (``store.chat``), and its arguments."""

    digest: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Template:
    """A prompt around a question."""

    text: str
    """Contains ``{question}`` once. Nothing else in it is special, and braces in a question stay as they are."""
    stop_tokens: tuple[str, ...] = ()
    stop_texts: tuple[str, ...] = ()
    check_every: int = 0
    """``stop_tokens``, ``stop_texts``, ``check_every``: as in ``PromptFamily``."""
    examples: WorkedExamples | None = None
    """What a prompt shows before the question."""
    opening: str = ""
    """Beginning of ``text`` that worked examples do not repeat, such as a system turn; with ``chat`` its text alone."""
    lead: str = ""
    trail: str = "\n\n"
    """``lead``, ``trail``: what stands before and after the answer of a worked example."""
    chat: Chat | None = None
    """What makes a prompt of ``messages``; without it, ``render`` does."""

    def render(self, question: str, examples: Sequence[Example] = ()) -> str:
        """The prompt for a question's text, after some worked examples."""
        turn = self.text.removeprefix(self.opening)
        shown = (turn.replace("{question}", each.question) + self.lead + each.answer + self.trail for each in examples)
        return self.opening + "".join(shown) + turn.replace("{question}", question)

    def messages(self, question: str, examples: Sequence[Example] = ()) -> list[dict[str, str]]:
        """The conversation for a question's text: worked examples are earlier turns."""
        turns = [("system", self.opening)] if self.opening else []
        for each in examples:
            turns += [("user", self.text.replace("{question}", each.question)), ("assistant", each.answer)]
        turns.append(("user", self.text.replace("{question}", question)))
        return [{"role": role, "content": content} for role, content in turns]

    @property
    def description(self) -> dict[str, Any]:
        """Everything that decides the samples, as plain JSON types; the name of the template does not."""
        described: dict[str, Any] = {"text": self.text, "stop_tokens": list(self.stop_tokens)}
        if self.chat:
            described["chat"] = {"digest": self.chat.digest, "arguments": dict(self.chat.arguments)}
            described["system"] = self.opening
        if self.stop_texts:
            described |= {"stop_texts": list(self.stop_texts), "check_every": self.check_every}
        if self.examples is not None:
            between = {} if self.chat else {"opening": self.opening, "lead": self.lead, "trail": self.trail}
            described["examples"] = self.examples.description | between
        return described

    def with_examples(self, examples: WorkedExamples) -> Template:
        """The same prompt after worked examples. An answer also ends where another example would begin.

        Raises InputError if the answer of an example contains a text that ends answers.
        """
        head = self.text.removeprefix(self.opening).split("{question}")[0]
        # A turn that begins with the question itself has nothing that marks another one but the gap before it.
        begin = (self.trail[-1:] + head).rstrip() if head.strip() else self.trail
        ended = self.chat is not None or any(stop in begin for stop in self.stop_texts)
        stops = self.stop_texts if ended else (*self.stop_texts, begin)
        for place, each in enumerate(examples.known, start=1):
            if inside := [stop for stop in stops if stop in self.lead + each.answer]:
                raise InputError(
                    f"worked example {place}: its answer contains {inside[0]!r}, at which answers of this prompt end",
                    "reword the answer, or give the checkpoint another template",
                )
        return replace(
            self, stop_texts=stops, check_every=self.check_every or (_OFTEN if stops else 0), examples=examples
        )


_OFTEN = 256
"""Tokens between searches for a stop text. Fewer waste fewer tokens after the text, more cost fewer restarts."""


@cache
def _shipped() -> tuple[Mapping[str, PromptFamily], Mapping[str, str]]:
    """Templates and wordings."""
    from searchlens.store import yaml_text

    content = yaml_text.read(Path(__file__).parent / "templates.yaml")
    return {name: record(PromptFamily, each) for name, each in content["templates"].items()}, content["wordings"]


def families(own: Mapping[str, PromptFamily] | None = None) -> dict[str, PromptFamily]:
    """Templates by name: those that are shipped, and a study's own (section ``templates``), which come first."""
    return {**_shipped()[0], **(own or {})}


def wordings() -> Mapping[str, str]:
    """Instructions around the question inside the family's turn, instead of the family's own for mathematics."""
    return _shipped()[1]


def template(
    name: str, wording: str | None = None, *, recipe_stops: bool = False, own: Mapping[str, PromptFamily] | None = None
) -> Template:
    """The prompt of a family, with a wording inside its turn, by default the family's own instructions for mathematics.

    ``recipe_stops``: answers also end at the stop words of the published recipe. ``own`` is the section ``templates``
    of a study. With ``chat``, the digest of the template is still empty: it depends on the checkpoint. Raises
    InputError if a name is unknown; the message lists the known ones.
    """
    known = families(own)
    family = known[require_known(name, known, "prompt template")]
    text, system = family.text, family.system
    if wording is not None:
        text = text.replace("{question}", wordings()[require_known(wording, wordings(), "wording")])
    else:
        text = text if family.math is None else family.math
        system = system if family.math_system is None else family.math_system
    stops, check_every = family.stop_texts, family.check_every
    if recipe_stops:
        stops, check_every = (*stops, *family.recipe_stops), _OFTEN
    chat = None if family.chat is None else Chat("", family.chat)
    whole = text if chat else system + text
    between = family.before_answer, family.after_answer
    return Template(whole, family.stop_tokens, stops, check_every, None, system, *between, chat)
