"""The check of plain words at its edges: ``make words``."""

from types import ModuleType

import pytest

from scripts import loaded


@pytest.fixture(scope="module")
def words() -> ModuleType:
    """lab/words.py, which is in no package."""
    return loaded("lab/words.py")


def _sentence(count: int) -> str:
    return " ".join(["Word", *["word"] * (count - 1)]) + "."


def _faults(words: ModuleType, text: str) -> list[str]:
    return list(words.faults(words.pieces("page.md", text)))


@pytest.mark.parametrize(("longer", "said"), [((25, 25), 0), ((26,), 0), ((26, 26), 2), ((40,), 0), ((41,), 1)])
def test_one_sentence_in_ten_may_have_26_to_40_words(words: ModuleType, longer: tuple[int, ...], said: int) -> None:
    page = " ".join(map(_sentence, [*longer, *[5] * (10 - len(longer))]))
    assert len(_faults(words, page)) == said


def test_code_links_and_tables_do_not_count(words: ModuleType) -> None:
    page = (
        "# Title\n\nThe measure `luck of a rival` is [here](house.md#luck), ``held`` too.\n\n"
        f"```text\nluck\n{_sentence(50)}\n```\n\n    a rival of code\n\n| {_sentence(60)} |\n|---|\n"
    )
    assert _faults(words, page) == []
    assert [count for piece in words.pieces("", page) for _, count in words.sentences(piece)][1:2] == [7]


def test_a_number_or_bold_text_at_the_end_of_a_sentence_begins_no_list(words: ModuleType) -> None:
    (piece,) = words.pieces("", "1. **It is bold.** The number is 9.1. That is all.")
    assert [count for _, count in words.sentences(piece)] == [3, 4, 3]


def test_code_over_a_line_break_keeps_the_line_of_what_follows(words: ModuleType) -> None:
    said = _faults(words, "\nIt is `so\nlong`\nand has luck.\n\n- a\n- luck [of\n  a](b) rival\n\n| cell | a luck |\n")
    assert [fault.split(": ")[0] for fault in said] == ["page.md:4", "page.md:7", "page.md:8", "page.md:10"]


@pytest.mark.parametrize(
    "text",
    [
        "Reading the paper takes an hour; who is reading it needs the symbols.",
        "A held-out split, held out again, was held up.",
        "BOPTR stands for a law, GPQA is a stand-in, and one answer stands out.",
        "A household has an unmended fence.",
    ],
)
def test_words_with_a_plain_sense_are_allowed(words: ModuleType, text: str) -> None:
    assert _faults(words, text) == []


@pytest.mark.parametrize(
    "text",
    ["Every reading is one.", "Luck!", "It was held.", "Over models\nnothing is shown.", "order-free", "it stands"],
)
def test_private_words_are_refused(words: ModuleType, text: str) -> None:
    assert len(_faults(words, text)) == 1


def test_sentences_of_the_explorer_are_found(words: ModuleType) -> None:
    source = 'const a = "luck";\n// "The luck of all of them"\nsay(`Which ${name} has luck of its own?`);\n'
    (piece,) = words.strings("a.js", source)
    assert (piece.line, piece.text) == (3, "Which CODE has luck of its own?")
    assert len(list(words.faults([piece]))) == 1


def test_whole_pages_are_checked(words: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """A page that is named is checked; a pre-registration is not."""
    assert words.main(["docs/add-a-model.md", "docs/zoo-cohort.md"]) == 0
    assert capsys.readouterr().out == "0 faults\n"
