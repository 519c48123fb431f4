"""Mistakes in files of samples: one line for each kind, with a count and two examples, however many there are."""

from __future__ import annotations

from searchlens.errors import InputError

SHOWN = 10
"""Largest number of kinds in one message."""

HINT = "docs/import.md describes what is read; nothing was imported"


class Problems:
    """Counts mistakes by kind."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._examples: dict[str, list[tuple[str, str]]] = {}

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._counts)

    def add(self, what: str, place: str = "", found: str = "") -> None:
        """Count one mistake: its kind, without anything that belongs to one place, file and line, and what stands
        there.
        """
        self._counts[what] = self._counts.get(what, 0) + 1
        examples = self._examples.setdefault(what, [])
        if len(examples) < 2:
            examples.append((place, found))

    def take(self, others: Problems, remark: str = "") -> None:
        """Add all mistakes of another collection, with a remark behind each kind."""
        for what, count in others._counts.items():
            kind = f"{what}; {remark}" if remark else what
            self._counts[kind] = self._counts.get(kind, 0) + count
            self._examples.setdefault(kind, []).extend(others._examples[what])

    @property
    def lines(self) -> list[str]:
        """One line for each kind, in the order in which they were found."""
        return [self._line(what, count) for what, count in self._counts.items()]

    def _line(self, what: str, count: int) -> str:
        examples = self._examples[what][:2]
        if count == 1:
            place, found = examples[0]
            return f"{place}{': ' if place else ''}{what}{', ' if found else ''}{found}"
        shown = [place + (f" ({found})" if found and place else found) for place, found in examples]
        more = f" and {count - len(shown):,} more" if count > len(shown) else ""
        return f"{what} ({count:,} times): {', '.join(filter(None, shown))}{more}"

    def refuse(self) -> None:
        """Raise one ``InputError`` if anything was counted."""
        if not self:
            return
        lines = self.lines
        more = [f"… and {len(lines) - SHOWN} more kinds of mistakes"] if len(lines) > SHOWN else []
        raise InputError("\n".join([*lines[:SHOWN], *more]), HINT)


def shown(value: object) -> str:
    """A value as it is quoted in a message: at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
