"""How large the project is: ``make size``. Exit status 1 if tracked files have more megabytes than are allowed."""

from __future__ import annotations

import ast
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = {"src": ("src",), "lab": ("lab/src", "lab/tests", "perf", "validation"), "tests": ("tests",)}
MOST = 50.0
"""Megabytes of tracked files."""
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def tracked(*folders: str) -> list[Path]:
    """Files that git tracks, under some folders."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *folders], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def strings_alone(tree: ast.AST) -> Iterator[int]:
    """Lines of strings that are statements: docstrings, and those below a field."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def code_lines(path: Path, tree: ast.AST) -> int:
    """Lines with code, without blank ones, comments and docstrings."""
    with tokenize.open(path) as stream:
        tokens = [token for token in tokenize.generate_tokens(stream.readline) if token.type not in NO_CODE]
    lines = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
    return len(lines - set(strings_alone(tree)))


def report(name: str, folders: tuple[str, ...]) -> str:
    """One line about the Python files of a part."""
    files = {path: path.read_text(encoding="utf-8") for path in tracked(*folders) if path.suffix == ".py"}
    trees = {path: ast.parse(text) for path, text in files.items()}
    lines = {path: text.count("\n") for path, text in files.items()}
    functions = [
        ((node.end_lineno or node.lineno) - node.lineno + 1, f"{path.relative_to(ROOT)}:{node.name}")
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    longest = max(lines, key=lines.__getitem__)
    size, function = max(functions)
    code = sum(code_lines(path, tree) for path, tree in trees.items())
    return (
        f"{name:<6} {sum(lines.values()):>7,} lines, {code:>6,} of code; {len(files)} files in"
        f" {len({path.parent for path in files})} folders, {len(functions):,} functions;"
        f" longest file {longest.relative_to(ROOT)} ({lines[longest]}), function {function} ({size})"
    )


def main() -> int:
    """Print all; returns the exit status."""
    for name, folders in PARTS.items():
        print(report(name, folders))
    words = sum(len(path.read_text(encoding="utf-8").split()) for path in tracked("docs") if path.suffix == ".md")
    megabytes = sum(path.lstat().st_size for path in tracked()) / 1e6
    print(f"docs   {words:,} words")
    print(f"all    {megabytes:.2f} MB of tracked files (at most {MOST})")
    return int(megabytes > MOST)


if __name__ == "__main__":
    sys.exit(main())
