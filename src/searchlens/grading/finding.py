r"""Where a text states its answer: in a box, or in the words of a finished text (docs/grading.md lists them).

Two rules differ. The wide one finds answers where models and evaluation harnesses write them. The narrow one takes
"answer is" and "Answer:" on one line alone, lets an open box take back every closed one, and lets boxes beat all words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache, partial

from searchlens.benchmarks.mathematics import final_box, last_boxed
from searchlens.grading import MAX_ANSWER, NO_ANSWER, WITHDRAWN, Extraction, How

# ---- parts of a text

Words = Callable[[str, bool], str]
"""Finds what the words of a finished text state, empty for nothing; the flag: only what replaces a box before them."""

_THOUGHT, _FINAL = "</think>", "<|channel|>final<|message|>"
_TOKEN = re.compile(r"<(?:\|[\w ]{1,40}\|>|/?s>|eos>|(?:start|end)_of_turn>|｜[^｜<>\n]{1,40}｜>)")
_QUESTION = re.compile(
    r"\n[ \t#*>]*+(?:Question|Q|Problem|User|Human|Instruction|问题|题目)(?:[ \t]#?\d+)?[ \t*_]*+[:：]"
)
"""The question that a base model asks itself next."""


def found(text: str, stopped: bool, words: Words, is_blank: Callable[[str], bool]) -> Extraction:
    """The answer of the first part of a text that states one."""
    extraction = NO_ANSWER
    for part in _parts(text):
        extraction = _in_part(part, stopped, words, is_blank)
        if extraction.answer is not None:
            break
    return extraction


def _parts(text: str) -> Iterator[str]:
    """What stands behind the thinking, then the whole text; each up to a control token or another question."""
    if "<" not in text:
        yield from _QUESTION.split(text)
        return
    mark = _FINAL if text.startswith("<|channel|>") else _THOUGHT
    behind = text.rfind(mark)
    for part in (text[behind + len(mark) :], text) if behind >= 0 else (text,):
        for ended in _TOKEN.split(part):
            yield from _QUESTION.split(ended)


def _in_part(text: str, stopped: bool, words: Words, is_blank: Callable[[str], bool]) -> Extraction:
    """The last box that is not blank, unless words behind it state another answer; without one, the words."""
    if text.rfind("\\boxed") < 0:  # from the end, where most texts have it
        text = text.replace("\\fbox", "\\boxed")
    content, state, end = final_box(text, stopped=stopped, is_blank=is_blank)
    if state == "absent":
        return stated(words(text, False)) if stopped else NO_ANSWER
    if state == "withdrawn":
        return WITHDRAWN
    if state == "closed" and stopped and len(text) - end > _LEAST:
        sentence = _SENTENCE_END.search(text, end)
        if sentence and (later := words(text[sentence.end() :], True)):
            return stated(later)
        if is_hedged(text, end):
            return NO_ANSWER
    return stated(content, "kept" if state == "kept" else "boxed")


_LEAST = 6
"""Most characters behind an answer that cannot state another, nor take it back."""
_SENTENCE_END = re.compile(r"[.!?。](?=\s)|\n")
_HEDGES = (
    *("or maybe", "or perhaps", "or possibly", "not sure which", "cannot decide", "can't decide", "cannot say which"),
    *("can't say which", "cannot tell which", "can't tell which", "could be either", "either could be"),
    *("might as well be", "may as well be", "both are plausible", "just as good", "leave it open"),
)


def is_hedged(text: str, start: int) -> bool:
    """Whether a text takes back, behind a position, that it states one answer."""
    if len(text) - start <= _LEAST:
        return False
    behind = text[start:].lower().replace("’", "'")
    return any(hedge in behind for hedge in _HEDGES)


_BLANK = re.compile(
    r"(?:[\s.…_?~{}]|\\(?:[lc]?dots|q?quad|square|text|underline|[hv]?phantom\s*\{[^{}]*\}|[,;:! _]))*"
    r"|[<\[]?(?:\\text\s*\{)?(?:(?:the|your|my|final)\s+)*answer(?:\s+here)?\}?[>\]]?",
    re.IGNORECASE,
)


@lru_cache(4096)
def is_blank(content: str) -> bool:
    """Whether a box holds nothing but a place for an answer."""
    return not content[:1].isdigit() and len(content) <= _SHORT and bool(_BLANK.fullmatch(content))


# ---- boxes


def in_closed_box(text: str) -> Extraction | None:
    r"""By the narrow rule, the last ``\boxed{...}`` alone, which states no answer if it is open; None without one."""
    if "\\boxed" not in text:
        return None
    content = last_boxed(text)
    if content is None and final_box(text, stopped=False).state not in ("none", "absent"):
        return WITHDRAWN
    return stated(content, "boxed")


def stated(answer: str | None, how: How = "fallback") -> Extraction:
    """An answer that a text states, by default in words; none if it is empty or overlong."""
    return Extraction(answer, how) if answer and len(answer) <= MAX_ANSWER else NO_ANSWER


# ---- formulas, narrow

_LAST_SENTENCE = re.compile(r".*\b[Aa]nswer(?: is\b|:)[ :*]*", re.DOTALL)
_DOLLARS = re.compile(r"\$+([^$]+)\$+|\\[(\[](.+?)\\[)\]]")
_END = re.compile(r"\.(?=\s|$)|\*\*")


def closing_sentence(text: str) -> str:
    """The text after the last "answer is" on its line: the formula that it begins with, or all up to a full stop."""
    opening = _LAST_SENTENCE.match(text)
    rest = text[opening.end() :].split("\n", maxsplit=1)[0].strip() if opening else ""
    if formula := _DOLLARS.match(rest):
        return (formula[1] or formula[2]).strip()
    return _END.split(rest, maxsplit=1)[0].strip()


# ---- words, wide: where an answer is announced

Place = tuple[str, re.Pattern[str]]
"""A word in lower case, and the pattern of an announcement that begins with it."""

_LOOSE = (
    r"(?:\s*,\s[^,.:\n]{1,40},|\s(?:to|for|of|in|we|I)\s[^,.:;=\n]{1,50}?)?"
    r"\s+(?:is|=|equals|(?:(?:must|should|would)\s|has\sto\s|turns\sout\sto\s)be|comes\sout\s(?:as|to\sbe))(?!\w)"
)
"""Between "answer" and what it is, with more words than "is": "in simplest form, is", "has to be"."""
IS = rf"[*_`]*(?:\s+(?:is|=)(?!\w)|[ \t]*[:：=]|(?P<loose>{_LOOSE}))"
_ANSWER = re.compile(
    rf"(?<![^\W_])(?<!if the )(?<!whether the )answer(?:{IS}|(?<=<answer)>)"
    r"|(?:(?<=final )|(?<![^\n*_#])|(?<=# ))answer[ \t*_`#]*(?=\n)",  # a heading
    re.IGNORECASE,
)
_HASHES = re.compile(
    r"(?<![^\n])####[ \t:*_]*(?=(?:(?:\\?\$)?[-+−]?\.?\d[\d.,/]*%?(?:[ \t]+[a-z]{1,20}){0,3}|\$(?:[^$\\\n]|\\.)+\$"
    r"|\(?[A-J]\)?)[ \t*_.]*(?:\n|\Z))"
)
PLACES: list[Place] = [("answer", _ANSWER), ("####", _HASHES)]
_FOREIGN = re.compile(
    r"(?:答案(?:应该)?(?:就?是|为|為|选|選)|(?:答え|正解)は|(?:정답)은"
    r"|\w{1,9}(?:\s\w{1,15}){0,3}?(?:\s+(?:es|é|è|est|lautet|ist|is|равен|это|будет)(?!\w)|[*_]{0,2}\s?[:：=—]))",
    re.IGNORECASE,
)
_WORDS = "答案 答え 正解 정답 respuesta resposta risposta antwo réponse ответ"
FOREIGN: list[Place] = [(word, _FOREIGN) for word in _WORDS.split()]
"""Chinese, Japanese, Korean, Spanish, Portuguese, Italian, German, Dutch, French, Russian."""


def last_stated(text: str, places: list[Place], read: Callable[[re.Match[str]], str]) -> tuple[int, str]:
    """Where the last announcement of an answer ends, and the answer that it is found to state; empty if none is."""
    lowered = text.lower()
    if len(lowered) != len(text):  # of a few letters the small one is longer
        lowered = text
    last, end, answer = -1, 0, ""
    for word, pattern in places:
        start = lowered.rfind(word, last + 1)
        while start >= 0:
            if (match := pattern.match(text, start)) and (found := read(match)):
                last, end, answer = start, match.end(), found
                break
            start = lowered.rfind(word, last + 1, start)
    return end, answer


# ---- words, wide: what is announced

_LEAD = re.compile(
    r"(?:[\s:：*_`#=,\"“]++|(?P<rough>(?i:approximately|about|roughly|around)(?!\w)|≈|\\approx(?![a-z]))"
    r"|[a-z]+ly(?=\s)|(?:therefore|thus|then|hence|so|indeed|just|again|equal\sto|given\sby|of\scourse|in\sfact)"
    r"(?![\w'’-])|not\s[^\n.;]{1,40}?\sbut\s)*+"
)
"""What stands before an answer: markup, filler words, and in "not 41 but 42" the other answer."""
_INSIDE = r"(?:[^$\\]|\\.)+"
r"""What stands between dollar signs; in ``$\$18$`` the second one is part of the formula."""
_FORMULA = re.compile(rf"\$+(?![\d.,]+\s+[A-Za-z]{{2}})({_INSIDE})\$+|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_NEXT_FORMULA = re.compile(r"\s*(?:,\s*(?:(?:and|or)\s+)?|(?:and|or)\s+)(?=\$|\\[(\[])")
_END_OF_ANSWER = re.compile(
    r"\.(?=\s|<|$)|\*\*|</|\n|[。；，]|;\s|(?<=\d)!(?!\w)|,?\s(?:because|since)\b|,\s(?:so|as|which|where|but|not)\b"
    r"|\s?(?:です|입니다|이다)|,?\s(?:rather than|instead of|and not)\s|\[/?INST"
)
_NUMBER = r"[-+]?(?:\d[\d.,/]*\d|\d)%?"
_ONE_FORMULA = rf"\$+{_INSIDE}\$+|\\\((?:(?!\\\)).)+\\\)|\\\[(?:(?!\\\]).)+\\\]"
_ALONE = re.compile(rf"[*\s]*+(?:({_NUMBER})|({_ONE_FORMULA}))\.?[*\s]*+", re.DOTALL)
_VALUE = re.compile(
    r"[^A-Za-z\n]*\d[^A-Za-z\n]*(?:[A-Za-z°]+\.?[ \t]?){0,2}|[A-Za-z]\s?=[^\n]+|[^A-Za-z\n]*\\[^\n]+"
    r"|[(\[{][^\n]*\d[^\n]*"
)
"""Words that are an answer wherever they stand: a number with a unit, an equation, a command, a tuple."""
_EITHER = re.compile(rf"either\s|{_NUMBER}\s+or\s+{_NUMBER}(?!\w)")
_SHORT = 80
"""Longest line without a formula that is an answer behind a keyword on the line before."""
_REACH = MAX_ANSWER + _SHORT
"""Characters searched for an answer, so that a text of many announcements is searched in linear time."""


def statement(text: str, beats_box: bool) -> str:
    """What a finished text calls its answer last, or its whole text if that is an answer; empty if it takes it back."""
    value = partial(_value, beats_box=beats_box)
    end, answer = last_stated(text, PLACES, value)
    if not answer:
        end, answer = last_stated(text, FOREIGN, value)
    if answer:
        return "" if (" or " in answer and _EITHER.match(answer)) or is_hedged(text, end) else answer
    alone = None if beats_box else _ALONE.fullmatch(text)
    return (alone[1] or _formulas(alone[2], 0)) if alone else ""


def _value(announced: re.Match[str], *, beats_box: bool) -> str:
    answer = answer_behind(announced, must_be_value=beats_box or announced.lastgroup == "loose")
    return "" if "\\boxed" in answer else answer


def answer_behind(announced: re.Match[str], *, must_be_value: bool = False) -> str:
    """The formulas behind an announcement or on the next line with text, or the words up to the end of the sentence."""
    text = announced.string[announced.end() : announced.end() + _REACH]
    lead = _LEAD.match(text)
    if lead is None or (must_be_value and lead["rough"]) or text.startswith("not ", lead.end()):
        return ""
    begin = lead.end()
    if answer := _formulas(text, begin):
        return answer
    end = _END_OF_ANSWER.search(text, begin)
    answer = text[begin : end.start() if end else len(text)].strip(' \t`_*"“”')
    if is_blank(answer) or (must_be_value and not _VALUE.fullmatch(answer)):
        return ""
    return answer if len(answer) <= _SHORT or "\n" not in lead[0] else ""


def _formulas(text: str, start: int) -> str:
    """Formulas joined by commas, "and" or "or"; empty if none begins here."""
    found = []
    while formula := _FORMULA.match(text, start):
        found.append((formula[1] or formula[2] or formula[3]).strip())
        joint = _NEXT_FORMULA.match(text, formula.end())
        if joint is None:
            break
        start = joint.end()
    return ", ".join(found)
