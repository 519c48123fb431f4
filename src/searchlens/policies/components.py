"""What a policy can be composed of: every controller, evaluator, transition and scheduler with its parameters.

The names and parameters of the paper's five components (section "SearchLens", "Components"), as data: the planner reads
them without loading a model. How a controller searches is one file of the same name under ``search/``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from searchlens.errors import InputError

Value = float | int | str


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a component.

    Attributes
    ----------
    default : float, int or str
        Its type is the parameter's type.
    allowed : str
        For messages.
    fits : callable
        Whether a value is in range.
    silent : bool
        Whether the default is left out of the resolved parameters: a parameter that came later leaves the ids of the
        policies that were there before it as they are.
    """

    default: Value
    allowed: str
    fits: Callable[[Value], bool]
    silent: bool = False


def _number(default: float, allowed: str, fits: Callable[[float], bool]) -> Parameter:
    def number(value: Value) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and fits(value)

    return Parameter(default, allowed, number)


def _whole(default: int, lowest: int = 1) -> Parameter:
    return Parameter(
        default,
        f"a whole number >= {lowest}",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= lowest,
    )


def _choice(*names: str, silent: bool = False) -> Parameter:
    return Parameter(names[0], f"one of {', '.join(names)}", lambda value: value in names, silent)


def _text(default: str) -> Parameter:
    return Parameter(default, "a text", lambda value: isinstance(value, str) and bool(value))


@dataclass(frozen=True, slots=True)
class Component:
    """A registered evaluator, transition or scheduler.

    Attributes
    ----------
    parameters : mapping of str to Parameter
    """

    parameters: Mapping[str, Parameter] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ControllerKind:
    """A registered controller: its parameters and what it can be composed with, the default first.

    Attributes
    ----------
    parameters : mapping of str to Parameter
    evaluators, transitions, schedulers : tuple of str
    width : callable
        Candidates that one run returns, from the resolved parameters of controller, transition and scheduler. More than
        one are no independent draws: budgets are read by whole runs and by prefixes of a run.
    prefixes : bool
        Whether the first n candidates of a run are what a run of n candidates would give. Not so for beams, which are
        only read by whole runs.
    """

    parameters: Mapping[str, Parameter]
    evaluators: tuple[str, ...]
    transitions: tuple[str, ...]
    schedulers: tuple[str, ...]
    width: Callable[[Mapping[str, Value]], int] = lambda _: 1
    prefixes: bool = True


EVALUATORS: Mapping[str, Component] = {
    "mean_logprob": Component(),
    "sequence_logprob": Component(),
    "self_certainty": Component(),
    "rollout_utility": Component({"rollouts": _whole(2)}),
    "answer_agreement": Component({"rollouts": _whole(4)}),
    # the answers are not called yes and no, which are truth values in YAML
    "self_evaluation": Component(
        {
            "question": _text("\nIs this right so far? Answer yes or no:"),
            "right": _text(" yes"),
            "wrong": _text(" no"),
            "top": _whole(100),
        }
    ),
    "verifier": Component(
        {"url": Parameter("", "the http(s) address of a scorer", lambda v: str(v).startswith(("http://", "https://")))}
    ),
}
_LIKELIHOODS = ("mean_logprob", "sequence_logprob", "self_certainty")
_ALL = tuple(EVALUATORS)

TRANSITIONS: Mapping[str, Component] = {
    "append": Component(),
    "resample_suffix": Component(),
    "branch": Component(
        {
            "children": _choice("distinct", "free"),
            "gap": _whole(4),
            "mask": _choice("none", "words", "answer", silent=True),
        }
    ),
    "thought": Component(
        {
            "delimiter": _text("\n\n"),
            "max_tokens": _whole(128),
        }
    ),
}

SCHEDULERS: Mapping[str, Component] = {
    "independent": Component(),
    "blocks": Component({"blocks": _whole(16), "steps": _whole(10, 0)}),
    "rounds": Component({"rounds": _whole(1)}),
    "breadth_first": Component({"depth": _whole(8)}),
    "iterations": Component({"iterations": _whole(16)}),
    "lockstep": Component(),
}


def _tree_leaves(p: Mapping[str, Value]) -> int:
    return int(p["roots"]) * (1 + int(p["positions"]) * int(p["rounds"]) * int(p["children_per_position"]))


CONTROLLERS: Mapping[str, ControllerKind] = {
    "autoregressive": ControllerKind({}, _ALL, ("append",), ("independent",)),
    "power": ControllerKind(
        {
            "alpha": _number(4.0, "> 0", lambda v: v > 0),
            "mode": _choice("exact", "reference"),
        },
        ("sequence_logprob", "mean_logprob", "self_certainty"),
        ("resample_suffix",),
        ("blocks",),
    ),
    "entropy_tree": ControllerKind(
        {
            "roots": _whole(1),
            "positions": _whole(3),
            "children_per_position": _whole(1),
            "select": _choice("top", "threshold"),
            "threshold": _number(1.0, ">= 0 (nats)", lambda v: v >= 0),
        },
        _LIKELIHOODS,
        ("branch",),
        ("rounds",),
        _tree_leaves,
    ),
    "thought_tree": ControllerKind(
        {"width": _whole(4), "children": _whole(2)},
        _ALL,
        ("thought",),
        ("breadth_first",),
        lambda p: int(p["width"]),
    ),
    "mcts": ControllerKind(
        {
            "select": _choice("puct", "uct"),
            "exploration": _number(1.0, ">= 0", lambda v: v >= 0),
            "children": _whole(3),
            "parallel": _whole(1),
        },
        _ALL,
        ("thought",),
        ("iterations",),
        lambda p: int(p["iterations"]),
    ),
    "beam": ControllerKind(
        {"width": _whole(4), "length_penalty": _number(1.0, "a number", lambda _: True)},
        ("sequence_logprob",),
        ("append",),
        ("lockstep",),
        lambda p: int(p["width"]),
        prefixes=False,
    ),
    "step_beam": ControllerKind(
        {"width": _whole(4), "expand": _whole(4), "diverse": _choice("no", "yes")},
        _ALL,
        ("thought",),
        ("breadth_first",),
        lambda p: int(p["width"]),
        prefixes=False,
    ),
}


def resolve(
    where: str, name: str, kinds: Mapping[str, Component | ControllerKind], given: Mapping[str, Value]
) -> dict[str, Value]:
    """Every parameter of a component, defaults filled in but for those of silent parameters.

    Parameters
    ----------
    where : str
        For messages, such as ``policy 'x': controller``.
    name : str
    kinds : mapping
        One of ``CONTROLLERS``, ``EVALUATORS``, ``TRANSITIONS``, ``SCHEDULERS``.
    given : mapping of str to value
        Parameters that were set.

    Raises
    ------
    InputError
        Unknown component or parameter, or a value out of range.
    """
    if name not in kinds:
        raise InputError(f"{where} {name!r} does not exist; allowed: {', '.join(kinds)}")
    known = kinds[name].parameters
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise InputError(f"{where} {name!r} has unknown parameters {unknown}; allowed: {sorted(known) or 'none'}")
    for key, value in given.items():
        if not known[key].fits(value):
            raise InputError(f"{where} {name!r}: {key} is {value!r}; allowed: {known[key].allowed}")
    values = {key: _typed(given.get(key, parameter.default), parameter.default) for key, parameter in known.items()}
    return {key: value for key, value in values.items() if not (known[key].silent and value == known[key].default)}


def _typed(value: Value, default: Value) -> Value:
    """1 and 1.0 are one value where a number is meant: a generation id must not tell them apart."""
    return float(value) if isinstance(default, float) else value
