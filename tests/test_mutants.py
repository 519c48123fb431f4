"""How ``mutants.py`` changes code; the changes themselves are cosmic-ray's, which ``make mutants`` installs."""

from __future__ import annotations

from types import CodeType

import pytest

import mutants

SOURCE = """
ONE = 1

class Kind:
    size: int = 2

    def larger(self, by=3):
        return self.size + by

def outer(values):
    def inner(x):
        return x * 4
    if values:
        total = sum(
            inner(each)
            for each in values)
        return total
    return 0
"""


def compiled(source: str) -> CodeType:
    return compile(source, "a file", "exec", dont_inherit=True)


@pytest.mark.parametrize(
    ("before", "after", "functions"),
    [
        ("self.size + by", "self.size - by", ["Kind.larger"]),
        ("x * 4", "x * 5", ["outer"]),  # its own code makes the inner one
        ("return 0", "return 1", ["outer"]),
        ("return 0", "return False", ["outer"]),  # equal, and not the same
        ("return 0", "return  0", []),
        ("ONE = 1", "ONE = 2", None),
        ("size: int = 2", "size: int = 3", None),
        ("by=3", "by=4", None),
    ],
)
def test_functions_alone_are_replaced_where_nothing_else_differs(
    before: str, after: str, functions: list[str] | None
) -> None:
    """None: the module has to be imported anew."""
    found = mutants._swaps(compiled(SOURCE), compiled(SOURCE.replace(before, after)))
    assert (found if found is None else [old.co_qualname for old, _ in found]) == functions


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("ONE", "ONE", "return 0"),  # whatever runs any line of the file may use it
        ("size: int", "ONE", "return 0"),
        ("def larger", "def larger", "return self.size"),
        ("inner(each)", "total = sum", "for each"),
        ("if values", "if values", "if values"),
        ("x * 4", "x * 4", "x * 4"),
    ],
)
def test_tests_are_chosen_by_the_statement(text: str, first: str, last: str) -> None:
    lines = SOURCE.splitlines()
    numbers = [next(i for i, line in enumerate(lines, start=1) if some in line) for some in (text, first, last)]
    near = mutants._near(SOURCE, numbers[0])
    assert max(near.start, 2) == numbers[1]
    assert near.stop - 1 == numbers[2]
