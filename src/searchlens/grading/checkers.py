"""The official checkers of IFEval, as lm-eval contains them.

lm-eval needs a hundred packages that its checkers do not need. The checkers are therefore imported without their
package: during the import, empty modules replace the packages that contain them, and afterwards ``sys.modules`` is as
before.
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

from searchlens.config import addons
from searchlens.errors import InputError
from searchlens.grading import punkt

NUMBER = 25
"""Number of checkers in the official registry."""

_PACKAGES = ("lm_eval", "lm_eval.tasks", "lm_eval.tasks.ifeval")


@lru_cache(maxsize=1)
def registry() -> Mapping[str, Any]:
    """Class of each checker, by the id of its instruction.

    Raises InputError if lm-eval or the data of the checkers are not installed, and RuntimeError if lm-eval does not
    have the official number of checkers.
    """
    missing = [name for name in ("lm_eval", "nltk", "langdetect", "immutabledict") if find_spec(name) is None]
    if missing:
        raise InputError(
            f"IFEval needs {', '.join(missing)}",
            f"{addons.installing('ifeval')}, then pip install --no-deps lm-eval==0.4.13",
        )
    punkt.check()  # before the import, in which the checkers would try to download it
    with packages_replaced():
        classes: Mapping[str, Any] = import_module("lm_eval.tasks.ifeval.instructions_registry").INSTRUCTION_DICT
    if len(classes) != NUMBER:
        raise RuntimeError(f"lm-eval has {len(classes)} checkers for IFEval, the official registry has {NUMBER}")
    from langdetect import detector_factory

    # Language detection draws at random, and reads its profiles in the order of the file system: fix both.
    detector_factory.DetectorFactory.seed = 0
    factory = detector_factory.DetectorFactory()
    profiles = sorted(path for path in Path(detector_factory.PROFILES_DIRECTORY).iterdir() if path.suffix == "")
    factory.load_json_profile([path.read_text(encoding="utf-8") for path in profiles])
    detector_factory._factory = factory
    return classes


@contextmanager
def packages_replaced() -> Iterator[None]:
    """While open, empty modules replace the packages of lm-eval above its checkers."""
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


@lru_cache(maxsize=2048)
def of_prompt(gold: str) -> tuple[Any, ...]:
    """The checkers of the instructions of one prompt, with their parameters set.

    Raises ValueError if an instruction is unknown, or a parameter is missing, zero or empty. The official code drops a
    parameter that is zero or empty, and draws a missing one at random.
    """
    spec = json.loads(gold)
    found = []
    for name, parameters in zip(spec["instruction_id_list"], spec["kwargs"], strict=False):
        if name not in registry():
            raise ValueError(f"unknown instruction {name!r}")
        given = {key: value for key, value in parameters.items() if value}
        random.seed(0)  # the checker draws the wording of its description, which is not used here
        checker = registry()[name](name)
        required = set(checker.get_instruction_args_keys())
        if set(given) != required:
            raise ValueError(
                f"instruction {name} has parameters {parameters}, it needs {sorted(required)}, none zero or empty"
            )
        checker.build_description(**given)
        found.append(checker)
    return tuple(found)


def judge(gold: str, answer: str) -> str:
    """Which instructions of JSON with ``instruction_id_list`` and ``kwargs`` a response follows.

    One digit per instruction: strict verdicts, ``/``, loose verdicts, as in ``"101/111"``. The loose verdict also
    accepts the response without its first line, its last line, both, or its asterisks. A response that passes strictly
    passes loosely.
    """
    prompt = of_prompt(gold)
    strict = [_follows(checker, [answer]) for checker in prompt]
    variants = [] if all(strict) else _variants(answer)
    loose = [passed or _follows(checker, variants) for checker, passed in zip(prompt, strict, strict=True)]
    return "/".join("".join(str(int(passed)) for passed in each) for each in (strict, loose))


def _follows(checker: Any, texts: Sequence[str]) -> bool:
    return any(text.strip() and checker.check_following(text) for text in texts)


def _variants(response: str) -> list[str]:
    """Texts that loose checking tries besides the response itself, each once."""
    lines = response.split("\n")
    shortened = [response, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    variants = dict.fromkeys([*shortened, *(text.replace("*", "") for text in shortened)])
    del variants[response]
    return list(variants)
