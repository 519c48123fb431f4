"""Arguments that the command lines of searchlens and of its micro zoo share."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from searchlens.errors import InputError


class _RenamedOption(argparse.Action):
    """An old name of an option; ``const`` is the new one."""

    def __call__(self, parser: object, namespace: object, values: Any, option_string: str | None = None) -> None:  # noqa: ARG002
        raise InputError(f"{option_string} is now {self.const}")


def renamed_options(parser: argparse.ArgumentParser, names: Mapping[str, str]) -> None:
    """Raise an InputError with the new name if a renamed option is used.

    Parameters
    ----------
    parser : ArgumentParser
        The old names do not appear in its help.
    names : mapping of str to str
        Old name to new name, both with their dashes.
    """
    for old, new in names.items():
        parser.add_argument(
            old, action=_RenamedOption, nargs="?", const=new, default=argparse.SUPPRESS, help=argparse.SUPPRESS
        )
