"""IFEval's official checkers, as lm-eval carries them.

lm-eval itself needs a hundred packages that its checkers do not. They are imported past its package: while that
happens, empty modules stand for the packages above them, and nothing of it stays behind in ``sys.modules``.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from searchlens.errors import InputError
from searchlens.grading import punkt

NUMBER = 25
"""Checkers that the official registry has."""

_PACKAGES = ("lm_eval", "lm_eval.tasks", "lm_eval.tasks.ifeval")


@lru_cache(maxsize=1)
def registry() -> Mapping[str, Any]:
    """Class of each checker, by the id of its instruction.

    Raises
    ------
    InputError
        lm-eval, or the data that the checkers need, are not installed.
    RuntimeError
        lm-eval has other checkers than the official ones.
    """
    missing = [name for name in ("lm_eval", "nltk", "langdetect", "immutabledict") if find_spec(name) is None]
    if missing:
        raise InputError(
            f"IFEval needs {', '.join(missing)}",
            "run `pip install searchlens[ifeval]`, then `pip install --no-deps lm-eval==0.4.13`",
        )
    punkt.check()  # first: the checkers would try to download it when they are imported
    with _packages_replaced():
        found: Mapping[str, Any] = import_module("lm_eval.tasks.ifeval.instructions_registry").INSTRUCTION_DICT
    if len(found) != NUMBER:
        raise RuntimeError(f"lm-eval has {len(found)} checkers for IFEval, the official registry has {NUMBER}")
    _seed_langdetect()
    return found


@contextmanager
def _packages_replaced() -> Iterator[None]:
    spec = find_spec("lm_eval")
    assert spec is not None and spec.submodule_search_locations
    site = Path(spec.submodule_search_locations[0]).parent
    before = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "lm_eval"}
    for name in before:
        del sys.modules[name]
    for name in _PACKAGES:
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__path__ = [str(site.joinpath(*name.split(".")))]
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "lm_eval"]:
            del sys.modules[name]
        sys.modules.update(before)


def _seed_langdetect() -> None:
    """Language detection draws at random, and reads its profiles in the order of the file system: fix both."""
    from langdetect import detector_factory

    detector_factory.DetectorFactory.seed = 0
    factory = detector_factory.DetectorFactory()
    profiles = sorted(path for path in Path(detector_factory.PROFILES_DIRECTORY).iterdir() if path.suffix == "")
    factory.load_json_profile([path.read_text(encoding="utf-8") for path in profiles])
    detector_factory._factory = factory


@lru_cache(maxsize=2048)
def checkers(gold: str) -> tuple[Any, ...]:
    """The checkers of one prompt, ready to check.

    Raises
    ------
    ValueError
        An instruction is unknown, or lacks a parameter. The official code draws what is missing at random, and drops
        parameters that are zero or empty, so these count as missing.
    """
    spec = json.loads(gold)
    return tuple(map(_checker, spec["instruction_id_list"], spec["kwargs"]))


def _checker(name: str, parameters: Mapping[str, Any]) -> Any:
    if name not in registry():
        raise ValueError(f"unknown instruction {name!r}")
    given = {key: value for key, value in parameters.items() if value}
    random.seed(0)  # descriptions, which nobody reads here, are worded at random
    checker = registry()[name](name)
    wanted = set(checker.get_instruction_args_keys())
    if set(given) != wanted:
        raise ValueError(
            f"instruction {name} has parameters {parameters}, it needs {sorted(wanted)}, none zero or empty"
        )
    checker.build_description(**given)
    return checker


def judge(gold: str, answer: str) -> str:
    """Which instructions a response follows.

    Parameters
    ----------
    gold : str
        JSON with ``instruction_id_list`` and ``kwargs``.
    answer : str
        The response.

    Returns
    -------
    str
        A digit per instruction, strict, then after ``/`` the same, loose: ``"101/111"``. Loose: the response without
        its first line, its last, both, or without asterisks may follow it instead. A strict pass is a loose one.
    """
    found = checkers(gold)
    strict = [_follows(checker, [answer]) for checker in found]
    variants = [] if all(strict) else _variants(answer)
    loose = [passed or _follows(checker, variants) for checker, passed in zip(found, strict, strict=True)]
    return "/".join("".join(str(int(passed)) for passed in each) for each in (strict, loose))


def _follows(checker: Any, texts: Sequence[str]) -> bool:
    return any(text.strip() and checker.check_following(text) for text in texts)


def _variants(response: str) -> list[str]:
    """What loose checking tries beyond the response itself, each once."""
    lines = response.split("\n")
    shortened = [response, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    tried = dict.fromkeys([*shortened, *(text.replace("*", "") for text in shortened)])
    del tried[response]
    return list(tried)
