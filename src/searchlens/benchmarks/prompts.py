"""Prompt templates by model family: the text around a question, and what ends an answer.

A template ends answers at tokens, and at the delimiters of its own turns, which a model writes when it continues with
another question. It never ends them at words: a stop word of the published recipes, such as "user", cuts every answer
that mentions it. Those words are an option (``recipe_stops``) for comparison with published numbers.

A benchmark that needs other instructions than "put your final answer within a box" names a wording, which is then put
into the turn of the family.

A prompt may show worked examples before the question. Each is the same turn with its answer after it, so that a model
that goes on after its own answer writes the beginning of another turn, and is stopped there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from searchlens.benchmarks.examples import Example, WorkedExamples
from searchlens.errors import InputError, require_known


@dataclass(frozen=True, slots=True)
class Template:
    """A prompt around a question.

    Attributes
    ----------
    text : str
        Contains ``{question}`` once. Nothing else in it is special, and braces in a question stay as they are.
    stop_tokens : tuple of str
        Tokens, as spelled in the vocabulary, that end an answer in addition to the checkpoint's own end of sequence.
        Tokens that a vocabulary does not have are ignored.
    stop_texts : tuple of str
        Texts that end an answer which contains one of them, whatever its tokens; the text is not part of the answer.
    check_every : int
        An answer is searched for stop texts after every ``check_every`` tokens; 0: only when it has ended. It matters
        for models that seldom end by a token, whose tokens after a stop text are most of the tokens drawn.
    examples : WorkedExamples, optional
        What a prompt shows before the question.
    opening : str
        Beginning of ``text`` that worked examples do not repeat, such as a system turn.
    lead, trail : str
        What stands before and after the answer of a worked example.
    """

    text: str
    stop_tokens: tuple[str, ...] = ()
    stop_texts: tuple[str, ...] = ()
    check_every: int = 0
    examples: WorkedExamples | None = None
    opening: str = ""
    lead: str = ""
    trail: str = "\n\n"

    def render(self, question: str, examples: Sequence[Example] = ()) -> str:
        """The prompt for a question's text, after some worked examples."""
        turn = self.text.removeprefix(self.opening)
        shown = (turn.replace("{question}", each.question) + self.lead + each.answer + self.trail for each in examples)
        return self.opening + "".join(shown) + turn.replace("{question}", question)

    @property
    def description(self) -> dict[str, Any]:
        """Everything that decides the samples, as plain JSON types; the name of the template does not."""
        described: dict[str, Any] = {"text": self.text, "stop_tokens": list(self.stop_tokens)}
        if self.stop_texts:
            described |= {"stop_texts": list(self.stop_texts), "check_every": self.check_every}
        if self.examples is not None:
            between = {"opening": self.opening, "lead": self.lead, "trail": self.trail}
            described["examples"] = self.examples.description | between
        return described

    def with_examples(self, examples: WorkedExamples) -> Template:
        """The same prompt after worked examples. An answer also ends where another example would begin.

        Raises
        ------
        InputError
            The answer of an example contains a text that ends answers.
        """
        head = self.text.removeprefix(self.opening).split("{question}")[0]
        # A turn that begins with the question itself has nothing that marks another one but the gap before it.
        begin = (self.trail[-1:] + head).rstrip() if head.strip() else self.trail
        ended = any(stop in begin for stop in self.stop_texts)
        stops = self.stop_texts if ended else (*self.stop_texts, begin)
        for place, each in enumerate(examples.known, start=1):
            if inside := [stop for stop in stops if stop in self.lead + each.answer]:
                raise InputError(
                    f"worked example {place}: its answer contains {inside[0]!r}, at which answers of this prompt end",
                    "reword the answer, or give the checkpoint another template",
                )
        return replace(self, stop_texts=stops, check_every=self.check_every or _OFTEN, examples=examples)


@dataclass(frozen=True, slots=True)
class PromptFamily:
    """The prompts of one family of models.

    Attributes
    ----------
    math : str
        The prompt of a question with a boxed answer, word for word as in the recipe.
    turn : str
        The same without instructions, for a wording that has its own.
    stop_tokens, stop_texts, check_every
        As in ``Template``.
    recipe_stops : tuple of str
        Words at which the published recipe also ends an answer.
    turn_begins : str
        Begin of the turn that worked examples repeat; what stands before it, a system turn, is there once. Empty: the
        whole prompt is the turn.
    lead, trail : str
        What stands before and after the answer of a worked example.
    """

    math: str
    turn: str
    stop_tokens: tuple[str, ...] = ()
    stop_texts: tuple[str, ...] = ()
    check_every: int = 0
    recipe_stops: tuple[str, ...] = ()
    turn_begins: str = ""
    lead: str = ""
    trail: str = "\n\n"


_BOXED = "Please reason step by step, and put your final answer within \\boxed{}."
_ENDS = ("</s>", "<|im_end|>", "<|endoftext|>")
"""The ends of answers in every recipe: tokens, or the same texts written out by a base model."""


_OFTEN = 256
"""Tokens between searches for a stop text. Fewer waste fewer tokens after the text, more cost fewer restarts."""
_SOON = 64
"""The same for short answers, of a sentence or two."""


def _chat(system: str, user: str) -> str:
    """A conversation in the format of Qwen (ChatML), up to where the answer begins."""
    return f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"


def _thinking(user: str) -> str:
    """The conversation of Open-Reasoner-Zero, up to where the thoughts begin."""
    return (
        "A conversation between User and Assistant. The User asks a question, and the Assistant solves it. The "
        "Assistant first thinks about the reasoning process in the mind and then provides the User with the answer. "
        "The reasoning process is enclosed within <think> </think> and answer is enclosed within <answer> </answer> "
        "tags, respectively, i.e., <think> reasoning process here </think> <answer> answer here </answer>. "
        f"User: {user}\nAssistant: <think>"
    )


def _qwen(math: str, turn: str) -> PromptFamily:
    """A family with conversations in ChatML."""
    ends = (*_ENDS, "<|im_start|>")
    words = ("assistant", "user", "_end", "_start")
    return PromptFamily(
        math, turn, ends, ends, recipe_stops=words, turn_begins="<|im_start|>user", trail="<|im_end|>\n"
    )


TEMPLATES: dict[str, PromptFamily] = {
    "zoo": PromptFamily("Problem: {question}\nSolution:\n", "Problem: {question}\nSolution:\n"),
    "plain": PromptFamily("{question}\n", "{question}\n"),
    # For models that were only pretrained, after worked examples (Brown et al. 2020).
    "question-answer": PromptFamily(
        "Question: {question}\nAnswer:",
        "Question: {question}\nAnswer:",
        stop_texts=("\nQuestion:",),
        check_every=_SOON,
        lead=" ",
    ),
    # SimpleRL-Zoo's evaluation (hkust-nlp/simpleRL-reason, `qwen-boxed`) and limit-of-RLVR, for Base and RL alike.
    "qwen-boxed": _qwen(
        _chat("You are a helpful assistant.", "{question}\n" + _BOXED),
        _chat("You are a helpful assistant.", "{question}"),
    ),
    # Qwen2.5-Math and Oat-Zero (`qwen25-math-cot`, `qwen_math`).
    "qwen25-math-cot": _qwen(_chat(_BOXED, "{question}"), _chat("You are a helpful assistant.", "{question}")),
    # SimpleRL-Zoo for models that were not trained on conversations; no instruction to box an answer.
    "abel": PromptFamily(
        "Question:\n{question}\nAnswer:\nLet's think step by step.\n",
        "Question:\n{question}\nAnswer:\n",
        stop_tokens=_ENDS,
        stop_texts=(*_ENDS, "\nQuestion:"),
        check_every=_OFTEN,
        recipe_stops=("Question:", "Answer:"),
    ),
    # DeepSeek-Math.
    "deepseek-math": PromptFamily(
        "User: {question}\n" + _BOXED + "\n\nAssistant:",
        "User: {question}\n\nAssistant:",
        stop_tokens=_ENDS,
        stop_texts=(*_ENDS, "\nUser:", "\n\nAssistant:"),
        check_every=_OFTEN,
        lead=" ",
        recipe_stops=("\nProblem", "User:", "Assistant:", "</answer>"),
    ),
    # Open-Reasoner-Zero, following DeepSeek-R1-Zero.
    "r1": PromptFamily(
        _thinking(
            "You must put your answer inside <answer> </answer> tags, i.e., <answer> answer here </answer>. And your "
            "final answer will be extracted automatically by the \\boxed{} tag.\nThis is the problem:\n{question}"
        ),
        _thinking("{question}"),
        stop_tokens=_ENDS,
        stop_texts=(*_ENDS, "</answer>", "\nUser:", "\nAssistant:"),
        check_every=_OFTEN,
        turn_begins="User: ",
        lead=" ",
        trail="</answer>\n",
        recipe_stops=("User:", "Human:", "Assistant:"),
    ),
}

_CHOICE = (
    "Answer the following multiple choice question. The last line of your response should be of the following format: "
    "'{format}' (without quotes) where LETTER is one of ABCD{example}. Think step by step before answering."
    "\n\n{question}"
)

WORDINGS: dict[str, str] = {
    "boxed": "{question}\n" + _BOXED,
    # Karan and Du 2025 (reasoning-with-sampling), for GPQA.
    "boxed-letter": _CHOICE.replace("{format}", "\\boxed{$LETTER}").replace("{example}", " (ex. '\\boxed{A}')"),
    # openai/simple-evals, for GPQA and MMLU.
    "answer-letter": _CHOICE.replace("{format}", "Answer: $LETTER").replace("{example}", ""),
    # IFEval, and other prompts that contain all instructions.
    "as-is": "{question}",
    # Karan and Du 2025, for MATH; the doubled braces are theirs.
    "power-sampling": "Can you solve the following math problem? {question} " + _BOXED.replace("{}", "{{}}"),
}
"""Instructions around the question inside the family's turn, instead of the family's own instructions for math."""


def template(name: str, wording: str | None = None, *, recipe_stops: bool = False) -> Template:
    """The prompt of a family, with a wording inside its turn.

    Parameters
    ----------
    name : str
        Key of ``TEMPLATES``.
    wording : str, optional
        Key of ``WORDINGS``; by default the family's own instructions for math.
    recipe_stops : bool
        Whether answers also end at the stop words of the published recipe.

    Raises
    ------
    InputError
        Unknown name; the message lists the known ones.
    """
    family = TEMPLATES[require_known(name, TEMPLATES, "prompt template")]
    if wording is None:
        text = family.math
    else:
        text = family.turn.replace("{question}", WORDINGS[require_known(wording, WORDINGS, "wording")])
    stops, check_every = family.stop_texts, family.check_every
    if recipe_stops:
        stops, check_every = (*stops, *family.recipe_stops), _OFTEN
    opening = text[: text.rindex(family.turn_begins)] if family.turn_begins else ""
    return Template(text, family.stop_tokens, stops, check_every, None, opening, family.lead, family.trail)
