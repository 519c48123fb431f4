"""The index of texts that finished rows still have."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("torch")

from searchlens_lab.resident._kept_texts import KeptTexts

PROMPT, OTHER = (1, 5), (1, 6)


def test_a_text_that_goes_on_is_found_by_its_beginning() -> None:
    kept = KeptTexts(8)
    kept.keep(3, PROMPT, (7, 8, 9))
    assert kept.find(PROMPT, (7, 8)) == 3
    assert kept.find(PROMPT, (7, 8, 9)) is None, "its last token was never fed to the model"
    assert kept.find(PROMPT, (7, 9)) is None
    assert kept.find(PROMPT, (7, 8, 9, 2)) is None
    assert kept.find(OTHER, (7,)) is None


def test_texts_from_before_the_first_search_are_found() -> None:
    """Rows may have been given away in between."""
    kept = KeptTexts(8)
    kept.keep(3, PROMPT, (7, 8, 9))
    kept.keep(5, OTHER, (7, 8, 9))
    kept.drop(5)
    assert not kept.is_sorted
    assert kept.find(PROMPT, (7, 8)) == 3
    assert kept.find(OTHER, (7, 8)) is None


def test_a_row_that_gets_another_request_is_not_found() -> None:
    kept = KeptTexts(8)
    kept.keep(3, PROMPT, (7, 8, 9))
    kept.keep(5, PROMPT, (7, 8, 9))
    kept.drop(3)
    kept.drop(3)
    kept.drop(0)
    assert kept.find(PROMPT, (7, 8)) == 5
    kept.drop(5)
    assert kept.find(PROMPT, (7, 8)) is None


def test_any_order_of_keeping_and_dropping() -> None:
    """What is found is what a look at all rows finds."""
    draw = random.Random(0)
    kept, rows = KeptTexts(12), dict[int, tuple[int, ...]]()
    for _ in range(3000):
        row = draw.randrange(12)
        if rows.pop(row, None):
            kept.drop(row)
        else:
            rows[row] = tuple(draw.randrange(2) for _ in range(draw.randint(1, 5)))
            kept.keep(row, PROMPT, rows[row])
        beginning = tuple(draw.randrange(2) for _ in range(draw.randint(1, 4)))
        matches = {r for r, text in rows.items() if len(text) > len(beginning) and text[: len(beginning)] == beginning}
        found = kept.find(PROMPT, beginning)
        assert found in matches if matches else found is None
