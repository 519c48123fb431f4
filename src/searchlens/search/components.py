"""What a policy is composed of: controllers, evaluators, transitions and schedulers, each with its parameters.

A component is a frozen dataclass whose fields are its parameters (paper, section "SearchLens", "Components"). Type,
default and range of a parameter stand together::

    children: int = whole(3)

Evaluators, transitions and schedulers are listed here. A controller is declared in the file that searches, under
``search/`` or in an extension, as a subclass of ``Controller``.

Standard library only, because the planner imports it.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from searchlens import catalogue
from searchlens.errors import InputError, require_known

if TYPE_CHECKING:
    from searchlens.search.policy import Policy, Texts
    from searchlens.search.task import Evaluator, Search, Task

Value = float | int | str


# ---- parameters


def number(default: float, at_least: float, at_most: float) -> Any:
    """A field for a finite number; both ends are allowed."""
    return _field(
        default,
        f"a number, >= {at_least}, <= {at_most}",
        lambda value: type(value) in (int, float) and at_least <= value <= at_most,
    )


def whole(default: int, at_least: int = 1, at_most: int = 1_000_000) -> Any:
    """A field for a whole number; both ends are allowed."""
    allowed = f"an integer, >= {at_least:_}, <= {at_most:_}"
    return _field(default, allowed, lambda value: type(value) is int and at_least <= value <= at_most)


def choice(*words: str, silent: bool = False) -> Any:
    """A field for one of some words, the default first.

    A silent parameter at its default is left out of the resolved policy: one that is added to a component later is
    silent, so that the ids of policies without it stay as they are.
    """
    return _field(words[0], f"one of {', '.join(words)}", lambda value: value in words, silent)


def text(default: str, allowed: str = "a text", fits: Callable[[str], bool] = bool) -> Any:
    """A field for a text, by default any but the empty one."""
    return _field(default, allowed, lambda value: isinstance(value, str) and fits(value))


def _field(default: Value, allowed: str, fits: Callable[[Any], bool], silent: bool = False) -> Any:
    return field(default=default, metadata={"allowed": allowed, "fits": fits, "silent": silent})


def _fields(component: type[Component] | Component) -> tuple[Field[Any], ...]:
    """Its parameters: all fields but the name."""
    return tuple(item for item in fields(component) if item.name != "name")


# ---- kinds of components


@dataclass(frozen=True, slots=True)
class Component:
    """A component of a policy; one with parameters is a subclass with a field for each."""

    version: ClassVar[int] = 1
    """Raised by hand when a change of the component makes searches draw other tokens. From 2 on it is a part of the
    generation ids, so that the samples of its policies are drawn again, and no others."""

    name: str
    """As configured, for example ``mcts``."""

    @property
    def parameters(self) -> dict[str, Value]:
        """Every parameter by its name."""
        return {item.name: getattr(self, item.name) for item in _fields(self)}

    def resolved(self) -> dict[str, Value]:
        """Name and parameters, as plain JSON types; silent parameters only where they differ from their default."""
        silent = {item.name: item.default for item in _fields(self) if item.metadata.get("silent")}
        values = {key: v for key, v in sorted(self.parameters.items()) if key not in silent or v != silent[key]}
        return {"name": self.name, **values}

    def check(self, policy: Policy) -> None:
        """Refuse a policy that each component allows, but not their combination.

        The InputError's message begins with the component; ``search.policy.from_spec`` adds the name of the policy.
        """

    def vocabulary_limits(self, policy: Policy, drawable: int, stop_ids: Sequence[int]) -> Mapping[str, int]:
        """Largest values of parameters that ask for different tokens at one position; empty if there is no limit.

        ``drawable`` is how many tokens the model can draw, ``stop_ids`` are those that end a text.
        """
        return {}


@dataclass(frozen=True, slots=True)
class Given(Component):
    """A component as stages are given it: its parameters, without its code."""

    values: tuple[tuple[str, Value], ...]

    @property
    def parameters(self) -> dict[str, Value]:
        """Those that were given."""
        return dict(self.values)


def given(spec: str | Mapping[str, Any]) -> Component:
    """As ``component``, of a specification that was checked before; no code is loaded."""
    values = {"name": spec} if isinstance(spec, str) else dict(spec)
    name = values.pop("name")
    return Given(name, tuple(values.items())) if values else Component(name)


@dataclass(frozen=True, slots=True)
class Controller(Component, ABC):
    """How the requests of a run follow from the replies: the topology of a search.

    A subclass adds its parameters as fields, and is declared with ``searchlens.catalogue.controller``, whose options
    ``evaluators``, ``transitions`` and ``schedulers`` name what it can be composed with, the default first. ``index``
    is its kind in BOPTR's selector: 0 autoregressive, 1 beams, 2 to 4 trees, 5 samplers of p^alpha and what declares
    none. ``colour`` is that of its policies in figures; grey without it.
    """

    prefixes: ClassVar[bool] = True
    """Whether the first n candidates of a run are what a run of n candidates would give. If not, as for beams, samples
    are read by whole runs only."""
    stops_version: ClassVar[int] = 2
    """Like ``version``, for changes that matter only under prompt templates with stop texts. 2: searches end there."""

    def candidates(self, policy: Policy) -> int:
        """Candidates that one run returns. More than one are no independent draws."""
        return 1

    def is_deterministic(self, policy: Policy) -> bool:
        """Whether every run gives the same candidates, so that one run is enough."""
        return False

    def expected_tokens(self, policy: Policy, texts: Texts) -> float | None:
        """Tokens that one run draws on average, without rollouts of evaluators; None if there is no formula."""
        return None

    @abstractmethod
    def search(self, task: Task, policy: Policy, evaluator: Evaluator) -> Search:
        """One run: a generator of requests that returns ``candidates(policy)`` candidates, the best first."""


def require_draws(policy: Policy) -> None:
    """Refuse temperature 0 for a controller that compares several draws from the same place."""
    if policy.local.temperature == 0:
        raise InputError(
            f"controller {policy.controller.name} needs draws that differ, but the temperature is 0",
            "give local.temperature above 0",
        )


# ---- evaluators


@dataclass(frozen=True, slots=True)
class RolloutUtility(Component):
    """Parameters of ``search.evaluators.RolloutUtility``."""

    rollouts: int = whole(2)


@dataclass(frozen=True, slots=True)
class AnswerAgreement(Component):
    """Parameters of ``search.evaluators.AnswerAgreement``."""

    version: ClassVar[int] = 2  # 1 told scores apart that differ in the order of a sum alone

    rollouts: int = whole(4)


@dataclass(frozen=True, slots=True)
class SelfEvaluation(Component):
    """Parameters of ``search.evaluators.SelfEvaluation``."""

    question: str = text("\nIs this right so far? Answer yes or no:")
    right: str = text(" yes")  # the keys are not called yes and no, which are truth values in YAML
    wrong: str = text(" no")
    top: int = whole(100)

    def check(self, policy: Policy) -> None:
        """Refuse equal answers."""
        if self.right == self.wrong:
            raise InputError(f"evaluator {self.name}: right and wrong are both {self.right!r}")

    def vocabulary_limits(self, policy: Policy, drawable: int, stop_ids: Sequence[int]) -> Mapping[str, int]:
        """At most all tokens are looked through."""
        return {"top": drawable}


@dataclass(frozen=True, slots=True)
class Verifier(Component):
    """Parameters of ``search.evaluators.Verifier``."""

    url: str = text("", "the http(s) address of a scorer", lambda url: url.startswith(("http://", "https://")))

    def check(self, policy: Policy) -> None:
        """Refuse a missing address."""
        if not self.url:
            raise InputError(f"evaluator {self.name} has no url")


EVALUATORS: Mapping[str, type[Component]] = {
    "mean_logprob": Component,
    "sequence_logprob": Component,
    "self_certainty": Component,
    "rollout_utility": RolloutUtility,
    "answer_agreement": AnswerAgreement,
    "self_evaluation": SelfEvaluation,
    "verifier": Verifier,
}


# ---- transitions


@dataclass(frozen=True, slots=True)
class Branch(Component):
    """Continuations from inside of a text; ``search/entropy_tree.py`` says what the parameters mean."""

    children: str = choice("distinct", "free")
    gap: int = whole(4)
    mask: str = choice("none", "words", "answer", silent=True)


@dataclass(frozen=True, slots=True)
class Thought(Component):
    """A thought at a time: text up to the delimiter, or up to ``max_tokens`` tokens."""

    delimiter: str = text("\n\n")
    max_tokens: int = whole(128)


TRANSITIONS: Mapping[str, type[Component]] = {
    "append": Component,
    "resample_suffix": Component,
    "branch": Branch,
    "thought": Thought,
}


# ---- schedulers


@dataclass(frozen=True, slots=True)
class Blocks(Component):
    """Blocks of tokens by which a text grows, and steps of the chain in each."""

    blocks: int = whole(16)
    steps: int = whole(10, 0)


@dataclass(frozen=True, slots=True)
class Rounds(Component):
    """Rounds of branching."""

    rounds: int = whole(1)


@dataclass(frozen=True, slots=True)
class BreadthFirst(Component):
    """Levels of a tree, each finished before the next begins."""

    depth: int = whole(8)


@dataclass(frozen=True, slots=True)
class Iterations(Component):
    """Iterations of a search, each of which ends with one complete text."""

    iterations: int = whole(16)


SCHEDULERS: Mapping[str, type[Component]] = {
    "independent": Component,
    "blocks": Blocks,
    "rounds": Rounds,
    "breadth_first": BreadthFirst,
    "iterations": Iterations,
    "lockstep": Component,
}


# ---- from the configuration

_LISTED = {"evaluator": EVALUATORS, "transition": TRANSITIONS, "scheduler": SCHEDULERS}
_COMPOSITION = {"evaluators": tuple(EVALUATORS), "transitions": ("append",), "schedulers": ("independent",)}
"""Options of the decorator ``controller`` that say what it can be composed with, with their defaults."""
_LOOKS = {"index": "[0-5]", "colour": "#[0-9A-Fa-f]{6}"}
"""Its other options, and the values that they may have."""


def names(role: str) -> tuple[str, ...]:
    """Names of all components of a role: ``controller``, ``evaluator``, ``transition`` or ``scheduler``."""
    return tuple(catalogue.declared("controller") if role == "controller" else _LISTED[role])


def parameters(role: str, name: str) -> dict[str, tuple[Value, str]]:
    """Each parameter of a component with its default and, in words, its allowed values."""
    kind = _kind(role, name)
    found: dict[str, Any] = {item.name: (item.default, item.metadata["allowed"]) for item in _fields(kind)}
    return found


def component(role: str, spec: str | Mapping[str, Any]) -> Component:
    """The component that a configuration asks for, with defaults for parameters that it does not set.

    An InputError: unknown component or parameter, or a value out of range.
    """
    values = {"name": spec} if isinstance(spec, str) else dict(spec)
    name = values.pop("name", None)
    if name is None:
        raise InputError(f"{role} has no name; allowed: {', '.join(names(role))}")
    kind = _kind(role, require_known(name, names(role), role))
    known = {item.name: item for item in _fields(kind)}
    for key, value in values.items():
        require_known(key, known, f"{role} {name!r}: parameter")
        if not known[key].metadata["fits"](value):
            raise InputError(f"{role} {name!r}: {key} is {value!r}; allowed: {known[key].metadata['allowed']}")
    # 1 and 1.0 are the same number, and must give the same generation id
    return kind(name, **{k: float(v) if isinstance(known[k].default, float) else v for k, v in values.items()})


@cache
def autoregressive() -> Controller:
    """The controller that appends one token at a time."""
    return _controller("autoregressive")("autoregressive")


def composition(controller: str) -> dict[str, tuple[str, ...]]:
    """Names of the evaluators, transitions and schedulers that go with a controller, by role, the default first.

    An InputError: the controller is declared with an unknown option, or with a component that does not exist.
    """
    options = catalogue.declared("controller")[controller].options
    allowed = {}
    for option, value in {**_COMPOSITION, **options}.items():
        require_known(option, _COMPOSITION | _LOOKS, f"controller {controller!r}: option")
        if option in _LOOKS:
            if not re.fullmatch(_LOOKS[option], str(value)):
                raise InputError(f"controller {controller!r}: {option} is {value!r}; allowed: {_LOOKS[option]}")
            continue
        role = option.removesuffix("s")
        if not isinstance(value, tuple) or not value or not set(value) <= set(names(role)):
            raise InputError(
                f"controller {controller!r}: {option} is {value!r}; allowed: a tuple of {', '.join(names(role))}"
            )
        allowed[role] = value
    return allowed


def _kind(role: str, name: str) -> type[Component]:
    return _controller(name) if role == "controller" else _LISTED[role][name]


def _controller(name: str) -> type[Controller]:
    """The class that is declared under a name, which may be a user's own."""
    kind = catalogue.definition(catalogue.declaration("controller", name))
    if not (isinstance(kind, type) and issubclass(kind, Controller) and "__dataclass_fields__" in vars(kind)):
        raise InputError(
            f"controller {name!r} is no dataclass that inherits from searchlens.search.components.Controller"
        )
    for item in _fields(kind):
        if "fits" not in item.metadata:
            raise InputError(
                f"controller {name!r}: parameter {item.name} has no range",
                "declare it with number, whole, choice or text of searchlens.search",
            )
    return kind
