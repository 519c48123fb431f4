"""Options that were renamed."""

import argparse

import pytest

from searchlens.arguments import renamed_options
from searchlens.errors import InputError


@pytest.mark.parametrize("arguments", [["--out", "folder"], ["--out=folder"], ["--out"]])
def test_an_old_option_is_answered_with_the_new_one(arguments: list[str]) -> None:
    """Protects whoever types the old name, and whoever types only the beginning of the new one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output")
    renamed_options(parser, {"--out": "--output"})
    with pytest.raises(InputError, match=r"^--out is now --output$"):
        parser.parse_args(arguments)
    assert vars(parser.parse_args(["--outp", "folder"])) == {"output": "folder"}
    assert "--out " not in parser.format_help()
