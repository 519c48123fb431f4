"""Which texts finished rows still have: a search may continue them, until the place is given to another request."""

from __future__ import annotations

from bisect import bisect_left, insort

from searchlens.engines._prompts import Tokens


class KeptTexts:
    """Texts by their prompts, and the rows that have them.

    ``is_sorted``: false until ``sort`` is called, because most runs continue no text.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._of_row: list[tuple[Tokens, Tokens] | None] = [None] * rows
        self._of_prompt: dict[Tokens, list[tuple[Tokens, int]]] = {}  # texts and their rows, sorted
        self.is_sorted = False

    def keep(self, row: int, prompt: Tokens, text: Tokens) -> None:
        """Note what a row has that has no text so far."""
        self._of_row[row] = prompt, text
        if self.is_sorted:
            self._sort_in(row, prompt, text)

    def sort(self) -> None:
        """Sort all texts, and new ones from now on."""
        if not self.is_sorted:
            self.is_sorted = True
            for row, kept in enumerate(self._of_row):
                if kept is not None:
                    self._sort_in(row, *kept)

    def _sort_in(self, row: int, prompt: Tokens, text: Tokens) -> None:
        insort(self._of_prompt.setdefault(prompt, []), (text, row))

    def drop(self, row: int) -> None:
        """Forget the text of a row, if it has one."""
        kept = self._of_row[row]
        if kept is None:
            return
        prompt, text = kept
        self._of_row[row] = None
        if not self.is_sorted:
            return
        texts = self._of_prompt[prompt]
        del texts[bisect_left(texts, (text, row))]
        if not texts:
            del self._of_prompt[prompt]

    def find(self, prompt: Tokens, beginning: Tokens) -> int | None:
        """Return a row whose text goes on after a beginning, None if there is none.

        A text that ends there does not do: its last token was drawn, but never fed to the model.
        """
        self.sort()
        texts = self._of_prompt.get(prompt)
        if texts is None:
            return None
        place = bisect_left(texts, (beginning, self._rows))  # behind those that end there
        if place == len(texts):
            return None
        text, row = texts[place]
        return row if text[: len(beginning)] == beginning else None
