"""Policies: what the paper calls pi, as five frozen components.

A policy is a local policy (how one token is drawn), a controller (the search topology), an evaluator (how candidates
are scored), a transition (how the state grows) and a scheduler (how the budget is spent); paper, section "SearchLens",
"Components". Autoregressive policies differ in the local policy alone, and their names spell it out::

    greedy                temp_0.7             topp0.8_t0.9          topk20_t0.7          minp0.05_t0.7
    typical0.9_t1.0       temp_0.7_rep1.1      topp0.9_t0.7_freq0.5  topk20_topp0.9_t0.7  temp_1.0_pres0.5

``parse`` and ``name`` are inverse to each other: filters in the order of application, then the temperature, then
penalties.

``Texts`` is what a plan knows of the texts of a cell: how long they are, and how they divide into thoughts.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from statistics import NormalDist
from typing import Any, TypeVar, get_type_hints

from searchlens.config.policies import PolicySpec, Sampling
from searchlens.errors import InputError, require_known, within
from searchlens.search.components import Component, Controller, Thought, autoregressive, component, composition

FILTERS = {"minp": "min_p", "typical": "typical_p", "topk": "top_k", "topp": "top_p"}
PENALTIES = {"rep": "repetition_penalty", "freq": "frequency_penalty", "pres": "presence_penalty"}
FAMILIES = ("temperature", "top-p", "top-k", "min-p", "typical", "penalty", "mixed", "search", "greedy")
"""In the order of display."""
ROLES = ("controller", "evaluator", "transition", "scheduler")
Kind = TypeVar("Kind", bound=Component)

_FAMILY_OF_FILTER = {"min_p": "min-p", "typical_p": "typical", "top_k": "top-k", "top_p": "top-p"}
_PART = re.compile(r"(?P<key>[a-z]+)(?P<value>-?\d+(?:\.\d+)?)")
_NEUTRAL = Sampling()
_SIGNS = {"ge": (">=", operator.ge), "gt": (">", operator.gt), "le": ("<=", operator.le), "lt": ("<", operator.lt)}
SMALLEST_TEMPERATURE = 0.01
"""Above 0. vLLM raises a lower temperature to this one without failing, so that a policy would mean two things."""
_EXAMPLES = "greedy, temp_0.7, topp0.9_t0.7, topk20_t0.9, minp0.05_t0.7, typical0.9_t1.0, temp_0.7_rep1.1"


@dataclass(frozen=True, slots=True)
class Stated:
    """What a policy consists of, without the code of its search: all that stages know of it."""

    local: Sampling
    """Local policy: how one token is drawn."""
    controller: Component = field(default=Component("autoregressive"))
    evaluator: Component = field(default=Component("mean_logprob"))
    transition: Component = field(default=Component("append"))
    scheduler: Component = field(default=Component("independent"))
    """``evaluator``, ``transition``, ``scheduler``: the autoregressive defaults append one token at a time and spend
    the budget on independent samples. All components: ``searchlens.search.components``."""

    @property
    def components(self) -> tuple[Sampling, Component, Component, Component, Component]:
        """The five components in the paper's order."""
        return (self.local, self.controller, self.evaluator, self.transition, self.scheduler)

    @property
    def family(self) -> str:
        """One of ``FAMILIES``: by the controller, or else the only filter in use, whatever the temperature."""
        if self.controller.name != "autoregressive":
            return "search"
        if self.local.temperature == 0:
            return "greedy"
        if any(getattr(self.local, key) != getattr(_NEUTRAL, key) for key in PENALTIES.values()):
            return "penalty"
        used = [key for key in FILTERS.values() if getattr(self.local, key) != getattr(_NEUTRAL, key)]
        if not used:
            return "temperature"
        return _FAMILY_OF_FILTER[used[0]] if len(used) == 1 else "mixed"

    def resolved(self) -> dict[str, Any]:
        """Every parameter explicit, as plain JSON types: what a generation id is made from."""
        local = {key: value if key == "top_k" else float(value) for key, value in asdict(self.local).items()}
        return {"local": local, **{role: getattr(self, role).resolved() for role in ROLES}}


@dataclass(frozen=True, slots=True)
class Policy(Stated):
    """pi: five components (paper, section "SearchLens")."""

    controller: Controller = field(default_factory=autoregressive)

    @property
    def is_plain(self) -> bool:
        """Whether its texts are draws from the model itself: temperature 1, no filter, no penalty, no search."""
        return self.local == _NEUTRAL and self.controller == autoregressive()

    @property
    def is_scored(self) -> bool:
        """Whether log q of a given text is known: each text is drawn at random by itself, without penalties."""
        return self.controller == autoregressive() and self.local.temperature > 0 and not self.local.has_penalties

    def component(self, kind: type[Kind]) -> Kind:
        """The component of a class, such as ``policy.component(Thought).max_tokens``; a TypeError if there is none.

        What a controller is composed with is declared with it.
        """
        for item in self.components:
            if isinstance(item, kind):
                return item
        raise TypeError(f"the policy has no component {kind.__name__}: {self.components}")

    @property
    def delimiter(self) -> str:
        """The text that ends a thought; empty if paths do not grow by thoughts."""
        return self.transition.delimiter if isinstance(self.transition, Thought) else ""

    @property
    def width(self) -> int:
        """Candidates of one run; more than one are no independent draws."""
        return self.controller.candidates(self)

    @property
    def smallest_budget(self) -> int:
        """Fewest samples at which the policy can be read."""
        return 1 if self.controller.prefixes else self.width

    @property
    def deterministic(self) -> bool:
        """Whether every run is the same, so that one is enough."""
        return self.controller.is_deterministic(self)

    def expected_tokens(self, texts: Texts) -> float | None:
        """Tokens that one run draws on average; None if the controller has no formula for them."""
        return self.controller.expected_tokens(self, texts)

    @property
    def name(self) -> str:
        """The canonical name of an autoregressive policy; ``parse`` reads it back."""
        if self.controller.name != "autoregressive":
            raise ValueError(f"only autoregressive policies have a canonical name, not {self.controller.name}")
        penalties = _spell(self.local, PENALTIES)
        if self.local.temperature == 0:
            return "_".join(["greedy", *penalties])
        filters = _spell(self.local, FILTERS)
        temperature = repr(float(self.local.temperature))
        return "_".join([*filters, f"t{temperature}", *penalties] if filters else ["temp", temperature, *penalties])


def _spell(local: Sampling, keys: Mapping[str, str]) -> list[str]:
    values = {short: getattr(local, key) for short, key in keys.items()}
    return [f"{short}{value!r}" for short, value in values.items() if value != getattr(_NEUTRAL, keys[short])]


def _check_sampling(local: Sampling, where: str) -> Sampling:
    """``local``, if every parameter is within the limits of ``Sampling``; an InputError says what is allowed."""
    for key, hint in get_type_hints(Sampling, include_extras=True).items():
        value, bounds = getattr(local, key), hint.__metadata__[0]
        limits = [(name, bound) for name in _SIGNS if (bound := getattr(bounds, name, None)) is not None]
        if not all(_SIGNS[name][1](value, bound) for name, bound in limits):
            allowed = ", ".join(f"{_SIGNS[name][0]} {bound}" for name, bound in limits)
            raise InputError(f"policy {where!r}: {key} is {value}; allowed: {allowed}")
    if 0 < local.temperature < SMALLEST_TEMPERATURE:
        raise InputError(
            f"policy {where!r}: temperature is {local.temperature}; allowed: 0, or >= {SMALLEST_TEMPERATURE}, <= 100"
        )
    return local


def _malformed(name: str, why: str) -> InputError:
    return InputError(f"policy name {name!r} is malformed: {why}", f"names look like {_EXAMPLES}")


def parse(name: str) -> Policy:
    """The autoregressive policy that a name spells; errors as of ``spelled``."""
    return Policy(spelled(name))


@cache
def spelled(name: str) -> Sampling:
    """The local policy that a name spells, such as ``topp0.8_t0.9``.

    Parts may come in any order; ``Policy.name`` prints the canonical one. An InputError: unknown or repeated part,
    missing temperature, or a value out of range.
    """
    pieces = name.split("_")
    if pieces[0] == "temp" and len(pieces) > 1:
        pieces = [f"t{pieces[1]}", *pieces[2:]]
    values: dict[str, float] = {}
    if pieces[0] == "greedy":
        values["temperature"], pieces = 0.0, pieces[1:]
    keys = {**FILTERS, **PENALTIES, "t": "temperature"}
    for piece in pieces:
        match = _PART.fullmatch(piece)
        if not match or match["key"] not in keys:
            raise _malformed(name, f"part {piece!r} is not one of {', '.join(f'{k}<number>' for k in keys)}")
        key = keys[match["key"]]
        if key in values:
            raise _malformed(name, f"{key} is given twice")
        if key == "top_k" and "." in match["value"]:
            raise _malformed(name, f"top_k must be a whole number, not {match['value']}")
        values[key] = int(match["value"]) if key == "top_k" else float(match["value"])
    if "temperature" not in values:
        raise _malformed(name, "it has no temperature (t<number>)")
    return _check_sampling(Sampling(**values), name)  # type: ignore[arg-type]


def from_spec(name: str, spec: PolicySpec | Mapping[str, Any] | None) -> Policy:
    """The policy of one entry under ``policies:``; without a ``spec`` the entry's key says it all.

    ``spec`` has ``local`` (parameters of ``Sampling``) and optionally ``controller``, ``evaluator``, ``transition``,
    ``scheduler``, each a name or a mapping with ``name`` and parameters. An InputError: unknown key or parameter, value
    out of range, or a canonical name that contradicts the definition.
    """
    if spec is None:
        return parse(name)
    if isinstance(spec, PolicySpec):
        spec = asdict(spec)
    _refuse_unknown(name, spec, {"local", *ROLES})
    local = spec.get("local", {})
    _refuse_unknown(f"{name}.local", local, {f.name for f in fields(Sampling)})
    sampling = _check_sampling(Sampling(**local), name)
    with within(f"policy {name!r}"):
        controller = component("controller", spec.get("controller") or "autoregressive")
        components: dict[str, Any] = {"controller": controller}
        for role, allowed in composition(controller.name).items():
            components[role] = item = component(role, spec.get(role) or allowed[0])
            if item.name not in allowed:
                raise InputError(
                    f"{role} {item.name} does not go with controller {controller.name}; allowed: {', '.join(allowed)}"
                )
        policy = Policy(sampling, **components)
        for item in policy.components[1:]:
            item.check(policy)
    try:
        meant = parse(name)
    except InputError:
        return policy
    if meant != policy:
        raise InputError(
            f"policy {name!r} is defined as something else than its name says", "rename it, or drop the definition"
        )
    return policy


def _refuse_unknown(where: str, spec: Mapping[str, Any], allowed: set[str]) -> None:
    for key in spec:
        require_known(key, allowed, f"policy {where!r}: key")


# ---- texts

QUANTILES = 64
"""Equally likely lengths that stand for a law of lengths."""


@dataclass(frozen=True)
class Texts:
    """The texts of a cell, as far as the cost of a policy depends on them."""

    lengths: tuple[float, ...]
    """Equally likely lengths in tokens, ascending, each in (0, limit]."""
    limit: int
    """Most tokens of a text."""
    thought: float | None = None
    """Mean tokens of a thought; None: half of the limit that a policy sets for one."""
    distinct: float = 1.0
    """Probability that a further thought after the same path is a new one, in [0, 1]. It is near 1 for paragraphs, and
    small for short lines of which there are few."""

    @classmethod
    def of_mean(
        cls, mean: float, limit: int, spread: float, thought: float | None = None, distinct: float = 1.0
    ) -> Texts:
        """Texts of the mean length T: lengths have a lognormal law, cut at the limit and scaled so that the mean is T.

        ``spread``: standard deviation of the logarithm of the lengths.
        """
        return cls(_lognormal(float(mean), limit, float(spread)), limit, thought, distinct)

    @property
    def mean(self) -> float:
        """T, the mean length."""
        return sum(self.lengths) / len(self.lengths)

    @property
    def running(self) -> float:
        """Mean number of tokens that a text has while it is drawn, ``E[T^2] / (2 E[T])``: long texts run longer."""
        return sum(length * length for length in self.lengths) / (2 * sum(self.lengths))

    def longest(self, of: int) -> float:
        """Mean length of the longest of ``of`` texts."""
        n = len(self.lengths)
        return sum(length * (((i + 1) / n) ** of - (i / n) ** of) for i, length in enumerate(self.lengths))

    def thoughts(self, limit: int) -> tuple[float, float]:
        """Mean tokens m of a thought of at most ``limit`` tokens, and the share ``1 - m / T`` that ends no text.

        A thought ends its text with the same probability wherever it stands, so a text has T / m thoughts on average,
        and a text that has not ended has T tokens to come.
        """
        tokens = min(limit / 2 if self.thought is None else self.thought, float(limit), self.mean)
        return tokens, 1 - tokens / self.mean


@cache
def _lognormal(mean: float, limit: int, spread: float) -> tuple[float, ...]:
    """Quantiles of a lognormal law, cut at ``limit``, with a given mean; found by bisection for its scale."""
    if not 0 < mean <= limit:
        raise ValueError(f"a mean of {mean} tokens with a limit of {limit}")
    law = NormalDist(0, 1)
    shape = [math.exp(spread * law.inv_cdf((i + 0.5) / QUANTILES)) for i in range(QUANTILES)]
    low, high = 0.0, limit / shape[0]
    for _ in range(60):
        middle = (low + high) / 2
        cut = sum(min(middle * each, limit) for each in shape) / QUANTILES
        low, high = (middle, high) if cut < mean else (low, middle)
    return tuple(min(high * each, float(limit)) for each in shape)
