"""Where the code of a target can be changed, by the operators of cosmic-ray, and which tests may notice it."""

import ast
import hashlib
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"

METRICS = r"metrics?_of_an_extension_(?!is_in_tables)|recorded_counts|refused_by_name"
FROZEN = "house::values_are_frozen"
OPTIONS = ("config::generated_page_agrees", FROZEN)
JOBS = r"jobs::a_manifest|a_shard|only_one"
BOPTR = ("boptr_[cdeimopqsv]*", "boptr_fit", "boptr_frontier", "boptr_regimes", "boptr_rows", "boptr_rule")
"""All but those that draw, print and simulate whole studies, which take a minute each."""
KEPT = r"recorded_counts::without_its_samples|what_is_kept|damaged_file"
TARGETS: dict[str, tuple[str, tuple[str, ...]]] = {
    "seeds": ("seeds.py", ("seeds", "stops")),
    "uncertainty": ("analysis/uncertainty.py", ("uncertainty", "boptr_regimes", "recovery", "landscape")),
    "analysis": (
        "analysis",
        (
            *("landscape", "recorded_counts", "recovery", "import_command", "measures_[ef]*", "health", "claims"),
            *(f"extensions::{METRICS}", *OPTIONS),
        ),
    ),
    "boptr": ("boptr", (*BOPTR, *OPTIONS)),
    "store": (
        "store",
        (
            *("shards", "verdicts", "traces", "score", "template_ids", "model_folders", "specials"),
            *("races", "damage", JOBS, "grid", "bad_input", KEPT, FROZEN, "security::_csv|hostile"),
            *("layout", "records", "environments::handed_on|snapshot"),
        ),
    ),
}
"""Name of a target: its file or package in searchlens, and the names of its test files (without ``test_``).

After ``::``: a pattern in the names of those tests of a file that matter."""

NO_PROGRAM = "no program"
"""Outcome of a change that does not compile, such as of ``**`` before a mapping; it does not count."""


@dataclass(frozen=True)
class Mutant:
    """One change of one file: the ``occurrence``-th place of a cosmic-ray operator."""

    target: str
    file: str
    operator: str
    occurrence: int
    line: int

    @property
    def path(self) -> Path:
        """The file that is changed."""
        return SOURCE / "searchlens" / self.file

    def source(self) -> str:
        """The file with the change in it."""
        from cosmic_ray.mutating import mutate_code

        try:
            mutated: str = mutate_code(self.path.read_text("utf-8"), _operators()[self.operator](), self.occurrence)
        except AttributeError:  # it replaces exceptions without a dot in their names alone
            return f"{NO_PROGRAM}\n"
        return mutated

    def lines(self) -> tuple[str, str]:
        """The first line that differs, before and after."""
        before, after = self.path.read_text("utf-8").splitlines(), self.source().splitlines()
        for i in range(max(len(before), len(after))):
            pair = (before[i : i + 1] or [""])[0].strip(), (after[i : i + 1] or [""])[0].strip()
            if pair[0] != pair[1]:
                return pair
        return "", ""

    def key(self) -> str:
        """The change and the code around it: a result is kept as long as the file stays as it is."""
        content = hashlib.sha256(self.path.read_bytes()).hexdigest()
        return f"{self.file} {content[:16]} {self.operator} {self.occurrence}"


@cache
def _operators() -> dict[str, Any]:
    """The operators of cosmic-ray that need no arguments, by name."""
    from cosmic_ray.operators.provider import OperatorProvider

    provider = OperatorProvider()
    return {name: provider[name] for name in provider if not provider[name].arguments()}


@cache
def mutants(target: str) -> dict[tuple[str, int, int], list[Mutant]]:
    """All mutants of a target by their place: file, line and column."""
    place = SOURCE / "searchlens" / TARGETS[target][0]
    found: dict[tuple[str, int, int], list[Mutant]] = defaultdict(list)
    for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
        file = str(path.relative_to(SOURCE / "searchlens"))
        for operator, occurrence, (line, column) in _places(path.read_text("utf-8")):
            found[file, line, column].append(Mutant(target, file, operator, occurrence, line))
    return found


def _places(source: str) -> Iterator[tuple[str, int, tuple[int, int]]]:
    """Operator, number of the occurrence, and the place of every change, without those that change nothing."""
    from cosmic_ray.ast import ast_nodes, get_ast

    left_out, lines = list(_without_effect(ast.parse(source))), source.splitlines()
    nodes = list(ast_nodes(get_ast(source)))
    for name, operator in _operators().items():
        known = operator()
        positions = (start for node in nodes for start, _ in known.mutation_positions(node))
        for occurrence, start in enumerate(positions):
            annotated = any(first <= start < last for first, last in left_out)
            if not annotated and "TYPE_CHECKING" not in lines[start[0] - 1]:
                yield name, occurrence, start


def _without_effect(tree: ast.AST) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Where annotations begin and end."""
    for node in ast.walk(tree):
        notes = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        for note in notes:
            if isinstance(note, ast.expr):
                yield (note.lineno, note.col_offset), (note.end_lineno or 0, note.end_col_offset or 0)


def sample(targets: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """``count`` mutants: as many of each target, and of those with fewer places all."""
    chosen, left = [], count
    groups = sorted(((name, mutants(name)) for name in targets), key=lambda item: len(item[1]))
    for i, (name, places) in enumerate(groups):
        draws, order = random.Random(f"{seed} {name}"), sorted(places)
        draws.shuffle(order)
        some = [draws.choice(places[place]) for place in order][: left // (len(groups) - i)]
        left -= len(some)
        chosen += some
    return chosen


def near_lines(source: str, line: int) -> range:
    """The lines whose tests may notice a change: of the statement in a function, of the function, or of the file."""
    lines = range(1, len(source.splitlines()) + 1)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            function = range(first, (node.end_lineno or first) + 1)
            if line in function and len(function) < len(lines):
                lines = next((own for own in _statements(node) if line in own), function)
    return lines


def _statements(function: ast.FunctionDef) -> Iterator[range]:
    """The lines of each statement in a function; of one that heads others, those of its head."""
    for node in ast.walk(function):
        if isinstance(node, ast.stmt) and node is not function and not isinstance(node, ast.FunctionDef):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            yield range(node.lineno, max(last, node.lineno) + 1)
