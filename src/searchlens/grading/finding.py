r"""Where a text states its answer: in a box, or in the words of a finished text (docs/grading.md lists them).

Two rules differ. The wide one finds answers where models and evaluation harnesses write them. The narrow one takes
"answer is" and "Answer:" on one line alone, lets an open box take back every closed one, and lets boxes beat all words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Protocol

from searchlens.benchmarks.boxed import final_box, last_boxed
from searchlens.grading.base import MAX_ANSWER, NO_ANSWER, WITHDRAWN, Extraction, How

# ---- parts of a text


class Words(Protocol):
    """Finds what the words of a text state."""

    def __call__(self, text: str, *, beats_box: bool = False) -> str:
        """The answer, empty if there is none; ``beats_box``: only what replaces a box before the text."""


_TOKEN = re.compile(
    r"<(?:\|[\w ]{1,40}\|>|/?s>|eos>|(?:start|end)_of_turn>|｜[^｜<>\n]{1,40}｜>)|\[/?INST\]",
)
_QUESTION = re.compile(
    r"\n[ \t#*>]{0,12}+(?:(?:[Nn]ew|NEW|[Nn]ext|NEXT)[ \t])?(?:[Qq]uestion|QUESTION|[Pp]roblem|PROBLEM|Q|[Ee]xercise"
    r"|[Uu]ser|USER|[Hh]uman|HUMAN|[Ii]nstruction|问题|题目|[Pp]regunta|[Pp]roblema|[Ff]rage|[Aa]ufgabe|[Вв]опрос|[Зз]адача)"
    r"(?:[ \t]#?\d+)?[ \t*_]*+[:：]"
)
"""The question that a base model asks itself next."""
_THOUGHT = ("</think>", "</thinking>", "<|channel|>final<|message|>")


def found(text: str, stopped: bool, words: Words, is_blank: Callable[[str], bool]) -> Extraction:
    """The answer of the first part of a text that states one: what stands in the last ``<answer>`` behind the thinking,
    all that stands behind it, the same of the whole text; each up to a control token or another question.
    """
    if ">" not in text and "INST]" not in text and _QUESTION.search(text) is None:
        return _in_turn(text, stopped, words, is_blank)
    extraction = NO_ANSWER
    for turn in (turn for part in _parts(text) for ended in _TOKEN.split(part) for turn in _QUESTION.split(ended)):
        extraction = _in_turn(turn, stopped, words, is_blank)
        if extraction.answer is not None:
            break
    return extraction


def _parts(text: str) -> Iterator[str]:
    behind = max((text.rfind(mark) + len(mark) for mark in _THOUGHT if mark in text), default=0)
    for part in (text[behind:], text) if behind else (text,):
        start = part.rfind("<answer>")
        if start >= 0:
            end = part.find("</answer>", start)
            yield part[start : end if end >= 0 else len(part)]
        yield part


def _in_turn(text: str, stopped: bool, words: Words, is_blank: Callable[[str], bool]) -> Extraction:
    """The last box that is not blank, unless words behind it state another answer; without one, the words."""
    if "\\boxed" not in text:
        if "\\fbox" not in text:
            return in_words(words(text)) if stopped else NO_ANSWER
        text = text.replace("\\fbox", "\\boxed")
    content, state, end = final_box(text, stopped=stopped, is_blank=is_blank)
    if state == "absent":
        return in_words(words(text)) if stopped else NO_ANSWER
    if state == "withdrawn":
        return WITHDRAWN
    if state == "closed" and stopped and len(text) - end > _LEAST and _LATER.search(text, end):
        sentence = _SENTENCE_END.search(text, end)
        if sentence and (later := words(text[sentence.end() :], beats_box=True)):
            return in_words(later)
        if is_hedged(text, end):
            return NO_ANSWER
    return _checked(content, "kept" if state == "kept" else "boxed")


_LATER = re.compile(
    r"####|[Aa]nswer|ANSWER|[Oo]ption|[Cc]hoice|[Ll]etter|[Ww]ait|[Aa]ctually|[Cc]orrection|[Oo]ops|[Ss]orry|[Hh]old on"
    r"|mistake|error|[Nn]o\b|[Rr]espuesta|[Rr]esposta|[Rr]isposta|[Aa]ntwo|[Rr]eponse|[^\x00-\x7f]|\bor\b|which|not|ould"
    r"|ight|ay |both|Both|either|leave|just"
)
"""Beginnings of all that can follow a box and count; looked for first, because most texts have nothing of it."""
_LEAST = 6
"""Most characters behind an answer that cannot state another, nor take it back."""
_SENTENCE_END = re.compile(r"[.!?。](?=\s)|\n")
_HEDGE = re.compile(
    r"\b(?:or (?:maybe|perhaps|possibly)\b|(?:not sure|unsure) which(?: (?:one|is|of)\b|[.!\n])"
    r"|can(?:not|'t|’t) (?:decide|(?:tell|say) which)|could (?:also )?be either|either (?:could|may|might) be"
    r"|(?:could|might|may) (?:also|as well|equally)(?: well)? be|but (?:it|this|that) (?:could|might|may) be"
    r"|both (?:are|seem|look) (?:equally )?(?:plausible|possible|reasonable)|leave it open|just as good\b)",
    re.IGNORECASE,
)


def is_hedged(text: str, start: int) -> bool:
    """Whether a text takes back, behind a position, that it states one answer."""
    return len(text) - start > _LEAST and bool(_HEDGE.search(text, start))


_BLANK = re.compile(
    r"(?:[\s.…_?~{}]|\\(?:[lc]?dots[a-z]?|q?quad|square|text|mathrm|underline|[hv]?phantom\s*\{[^{}]*\}"
    r"|[hv]space\*?\s*\{[^{}]*\}|[,;:! _]))*"
    r"|[<\[]?(?:\\text\s*\{)?[<\[]?\s*(?:(?:the|your|my|final)\s+)*answer(?:\s+here)?\s*[>\]]?\}?[>\]]?",
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
    return _checked(content, "boxed")


def in_words(answer: str) -> Extraction:
    """An answer that the words of a text state; none if it is empty or overlong."""
    return _checked(answer, "fallback")


def _checked(answer: str | None, how: How) -> Extraction:
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


# ---- formulas, wide

_EMPHASIS = r"[*_`]*"
LOOSE = (
    r"(?:\s*,\s[^,.:\n]{1,40},|\s(?:to|for|of|in|after|when|rounded|expressed)\s[^,.:;=\n]{1,50}?|\shere"
    r"|\s(?:that\s|which\s)?(?:we|I|you)\s(?:get|got|find|found|obtain|have|need|want|seek|(?:are\s)?look(?:ing)?\sfor))?"
    r"\s+(?:is|=|equals|becomes|(?:comes|amounts)\s+to|(?:must|should|would|will)\s+be|(?:has|needs|ought)\s+to\s+be"
    r"|(?:comes|works|turns)\s+out\s+(?:as|to\s+be|to))(?!\w)"
)
"""Between "answer" and what it is, with more words than "is": "in simplest form, is", "has to be"."""
FILLER = (
    r"(?i:therefore|thus|then|hence|so|indeed|just|simply|exactly|precisely|clearly|obviously|definitely|certainly"
    r"|actually|probably|likely|only|now|again|still|also|equal\s+to|given\s+by|as\s+follows|of\s+course|in\s+fact"
    r"|nothing\s+but|none\s+other\s+than|found\s+to\s+be|in\s+the\s+end|finally|necessarily"
    r"|donc|por\s+lo\s+tanto|por\s+tanto|entonces|portanto|então|quindi|dunque|daher|somit|folglich)(?![\w'’-])"
)
_ROUGHLY = r"(?i:approximately|about|roughly|around)(?!\w)|≈|\\approx(?![a-z])"
FOREIGN = (
    r"(?i:答案(?:应该|应当)?(?:[是为為選选:：]|就是)+|(?:答え|正解|解答)(?:は|[:：])|(?:정답|답)(?:은|[:：])"
    r"|(?:respuesta|resposta|risposta|antwort|antwoord|r[ée]ponse)(?:\s+(?:(?!\w+\s+\w+\s+\w+\s+\w+\s)[^.,:;\n]){1,40}?)?"
    r"(?:\s+(?:es|é|è|est|lautet|ist|is)(?!\w)|[*_]{0,2}\s?[:：=])"
    r"|ответ[*_]{0,2}(?:\s+(?:равен|это|будет)(?!\w)|\s?[:：=—–-]|\s(?=[\d$\\])))"
)
"""The word for "answer" with "is" or a colon: Chinese, Japanese, Korean, Spanish, Portuguese, Italian, German, Dutch,
French, Russian.
"""
_FOREIGN = re.compile(FOREIGN)
_KEYWORD = re.compile(
    rf"answer{_EMPHASIS}(?:\s+(?:is|=)(?!\w)|[ \t]*[:：=]|(?=[ \t*_`#]*\n)|(?P<loose>{LOOSE}))", re.IGNORECASE
)
_HEADING = re.compile(r"[ \t#>*_`]*(?:(?:the|my)[ \t]+)?(?:(?:final|correct)[ \t]+)?\Z", re.IGNORECASE)
_SUPPOSED = re.compile(r"\b(?:if|whether)\s(?:the\s|my\s|this\s)?(?:\w+\s)?\Z", re.IGNORECASE)
_LEAD = re.compile(rf"(?:[\s:：*_`#=,\"“]++|(?:{FILLER})|(?P<rough>{_ROUGHLY}))*+")
_NOT = re.compile(
    r"not\s[^\n]{1,40}?(?:\sbut\s(?:rather\s|actually\s)?|[;,.—–-]+\s*(?:(?:it|that)(?:\s+is|['’]s)|rather|instead),?\s)"
)
_INSIDE = r"(?:[^$\\]|\\.)+"
r"""What stands between dollar signs; in ``$\$18$`` the second one is part of the formula."""
_UNIT = r"(?:[ \t]+[a-z]{1,20}){0,3}"
_HASHES = re.compile(
    r"####[ \t:*_]*(?=(?:(?:\\?\$)?[-+−]?\.?\d[\d.,/]*%?|\$(?:[^$\\\n]|\\.)+\$)" + _UNIT + r"[ \t*_.]*(?:\n|\Z))"
)
_FORMULA = re.compile(rf"\$+(?![\d.,]+\s+[A-Za-z]{{2}})({_INSIDE})\$+|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_NEXT_FORMULA = re.compile(r"\s*(?:,\s*(?:(?:and|or)\s+)?|(?:and|or)\s+)(?=\$|\\[(\[])")
_END_OF_ANSWER = re.compile(
    r"\.(?=\s|<|$)|\*\*|</|\n|[。；，]|;\s|(?<=\d)!(?!\w)|,?\s(?:because|since)\b|,\s(?:so|as|which|where|but|not)\b"
    r"|\s?(?:です|입니다|이다)|,?\s(?:rather than|instead of|and not)\s"
)
_NUMBER = r"[-+]?(?:\d[\d.,/]*\d|\d)%?"
_ONE_FORMULA = rf"\$+{_INSIDE}\$+|\\\((?:(?!\\\)).)+\\\)|\\\[(?:(?!\\\]).)+\\\]"
_ALONE = re.compile(rf"[*\s]*+(?:({_NUMBER})|({_ONE_FORMULA}))\.?[*\s]*+", re.DOTALL)
_VALUE = re.compile(
    r"(?:\\?\$|[€£])?[-+−±]?\.?\d[^A-Za-z\n]*(?:[ \t]?[A-Za-z°]+\.?){0,2}|[A-Za-z]\s?=[^\n]+|[^A-Za-z\n]*\\[^\n]+"
    r"|[(\[{][^\n]*\d[^\n]*"
)
"""Words that are an answer wherever they stand: a number with a unit, an equation, a command, a tuple."""
_SECOND_THOUGHT = re.compile(
    r"\b(?:wait|actually|correction|oops|sorry|hold on|my mistake|i made an? (?:error|mistake)|no)\b", re.IGNORECASE
)
_DENIAL = re.compile(r"\banswer\s(?:isn['’]t|is\snot)\b", re.IGNORECASE)
IT_IS = (
    r"(?i:\b(?:(?:so|thus|hence|therefore|then|no|wait|actually|sorry|oops)[,.!]?\s(?:it|this|that)(?:\s+is|['’]s)"
    r"|(?:it|this)\s+(?:(?:must|should)\s+be|has\s+to\s+be))\s+(?:actually\s+|really\s+)?)"
)
"""Begins what replaces an answer behind a second thought."""
_IT_IS = re.compile(rf"{IT_IS}[*_]*+({_NUMBER}|{_ONE_FORMULA})(?=[*_!]*\.?\s*(?:\Z|\n|(?<=\.)\s))", re.DOTALL)
_CORRECTION = 24
"""Fewest characters of "answer is 5. No, it is 7"."""
_EITHER = re.compile(rf"either\s|{_NUMBER}\s+or\s+{_NUMBER}(?!\w)")
_SHORT = 80
"""Longest line without a formula that is an answer behind a keyword on the line before."""


def statement(text: str, *, beats_box: bool = False) -> str:
    """What a finished text calls its answer last, empty if nothing: behind a keyword or ``####``, in ``<answer>`` tags,
    or as the whole text. A later "Wait, ... it is 9" replaces it, and a hedge takes it back.
    """
    start, answer = _last_statement(text, beats_box=beats_box)
    if later := corrected(text, start, _IT_IS, is_stated=bool(answer) or beats_box):
        return later[1].strip("$") if later[1][0] == "$" else later[1].removeprefix("\\(").removesuffix("\\)")
    if answer:
        return "" if _EITHER.match(answer) or is_hedged(text, start) else answer
    alone = None if beats_box else _ALONE.fullmatch(text)
    return (alone[1] or _answer_at(alone[2], 0)) if alone else ""


def corrected(text: str, start: int, it_is: re.Pattern[str], *, is_stated: bool) -> re.Match[str] | None:
    """The last "it is ..." behind a "wait", "actually" or the like, or behind "the answer is not" if none is stated."""
    if len(text) - start < _CORRECTION or not (is_stated or "nswer is" in text):
        return None
    doubt = (_SECOND_THOUGHT if is_stated else _DENIAL).search(text, start)
    return max(it_is.finditer(text, doubt.end()), key=re.Match.start, default=None) if doubt else None


def _last_statement(text: str, *, beats_box: bool) -> tuple[int, str]:
    """Place and answer; no answer if nothing is stated."""
    hashes = next((m for m in _places(text, "####", _HASHES) if _starts_line(text, m.start())), None)
    for keyword in _keywords(text):
        if hashes and hashes.start() > keyword.start():
            break
        if answer := _answer_at(
            text, keyword.end(), must_be_value=beats_box or bool(keyword.groupdict().get("loose")), is_exact=beats_box
        ):
            return keyword.start(), answer
    if hashes:
        return hashes.start(), _answer_at(text, hashes.end())
    for keyword in reversed(foreign_keywords(text)):
        if answer := _answer_at(text, keyword.end()):
            return keyword.start(), answer
    return 0, ""


def foreign_keywords(text: str) -> list[re.Match[str]]:
    """Where words of other languages announce an answer."""
    is_english = text.isascii() and not ("spuesta" in text or "sposta" in text or "ntwo" in text or "eponse" in text)
    return [] if is_english else list(_FOREIGN.finditer(text))


def _keywords(text: str) -> Iterator[re.Match[str]]:
    """Where the word "answer" announces an answer, last first."""
    lowered = text.lower()
    if len(lowered) != len(text):  # of a few letters the small one is longer
        lowered = text
    start = lowered.rfind("answer")
    while start >= 0:
        if text[start - 1 : start] == "<" and text.startswith(">", start + 6):
            yield _TAG.match(text, start)  # type: ignore[misc]
        elif (match := _KEYWORD.match(text, start)) and _announces(text, match):
            yield match
        start = lowered.rfind("answer", 0, start)


_TAG = re.compile("answer>", re.IGNORECASE)


def _announces(text: str, keyword: re.Match[str]) -> bool:
    """Whether a keyword is a word of its own, not supposed, and a heading unless a verb or colon follows it."""
    start = keyword.start()
    if text[start - 1 : start].isalnum() or _is_supposed(text[max(0, start - 24) : start]):
        return False
    return keyword[0].rstrip("*_`").lower() != "answer" or bool(
        _HEADING.match(text, text.rfind("\n", 0, start) + 1, start)
    )


def _is_supposed(before: str) -> bool:
    return ("f " in before or "hether " in before) and bool(_SUPPOSED.search(before))


def _places(text: str, word: str, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
    start = text.rfind(word)
    while start >= 0:
        if match := pattern.match(text, start):
            yield match
        start = text.rfind(word, 0, start)


def _starts_line(text: str, start: int) -> bool:
    return not text[text.rfind("\n", 0, start) + 1 : start].strip()


def _answer_at(text: str, start: int, *, must_be_value: bool = False, is_exact: bool = False) -> str:
    """The formulas that begin here or on the next line with text, or else the words up to the end of the sentence."""
    lead = _LEAD.match(text, start)
    if lead is None or (is_exact and lead["rough"]):
        return ""
    begin = lead.end()
    if text.startswith("not ", begin):
        negation = _NOT.match(text, begin)
        if negation is None:
            return ""
        begin = negation.end()
    formulas = list(_formulas(text, begin))
    if formulas:
        return ", ".join(formulas)
    end = _END_OF_ANSWER.search(text, begin)
    answer = text[begin : end.start() if end else len(text)].strip(' \t`_*"“”')
    if "\\boxed" in answer or is_blank(answer) or (must_be_value and not _VALUE.fullmatch(answer)):
        return ""
    return answer if len(answer) <= _SHORT or "\n" not in text[start:begin] else ""


def _formulas(text: str, start: int) -> Iterator[str]:
    """Formulas joined by commas, "and" or "or"."""
    while formula := _FORMULA.match(text, start):
        yield (formula[1] or formula[2] or formula[3]).strip()
        joint = _NEXT_FORMULA.match(text, formula.end())
        if joint is None:
            return
        start = joint.end()
