"""The samples of one side: which pools of its files are compared."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from searchlens.errors import InputError
from searchlens.importing import Pool, Reading

BASE, RL = "base", "rl"
TITLES = {BASE: "Base", RL: "RL"}
UNNAMED = "not known"
"""Name of a policy that the log does not say."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """The samples of one side."""

    role: str
    """``base`` or ``rl``."""
    reading: Reading
    pools: dict[str, Pool]
    """By the name of the policy. RL has one; that policy of Base which is compared with it one to one is the first."""

    @property
    def title(self) -> str:
        """Its name for people."""
        return TITLES[self.role]

    @property
    def first(self) -> Pool:
        """The pool that is compared one to one."""
        return next(iter(self.pools.values()))


def base_and_rl(base: Reading, rl: Reading, models: tuple[str, str]) -> tuple[Side, Side]:
    """The pools of both sides; of their models the named ones, where files have several. An ``InputError`` if a side
    has no samples or several models, RL has several policies, or two pools have one name.
    """
    ours, theirs = _by_policy(BASE, base, models[0]), _by_policy(RL, rl, models[1])
    if len(theirs) > 1:
        raise InputError(
            f"RL has samples of {len(theirs)} policies: {', '.join(theirs)}", "name the files of one of them as RL"
        )
    pools = {name: ours[name] for name in sorted(ours, key=lambda name: name not in theirs)}
    return Side(role=BASE, reading=base, pools=pools), Side(role=RL, reading=rl, pools=theirs)


def _by_policy(role: str, reading: Reading, model: str) -> dict[str, Pool]:
    """The pools of one model or, if the log knows sides, of this side."""
    kept = [pool for pool in reading.pools if (pool.stream.model == model if model else pool.role in ("", role))]
    if not kept:
        what = f"no samples of the model {model!r}" if model else "no samples: the log says that all are of the other"
        raise InputError(f"{TITLES[role]}: {what}; models of its files: {', '.join(_models(reading.pools))}")
    if len(models := _models(kept)) > 1:
        option = {BASE: "--base-model", RL: "--rl-model"}[role]
        raise InputError(f"{TITLES[role]}: the files have several models: {', '.join(models)}", f"{option} MODEL")
    named: dict[str, Pool] = {}
    for pool in kept:
        name = pool.policy or UNNAMED
        if name in named:
            raise InputError(
                f"{TITLES[role]}: two streams of samples have the policy {name}, but were drawn differently:"
                f" {differing(named[name], pool) or '(nothing is said)'}",
                "name the files of one of them",
            )
        named[name] = pool
    return named


def _models(pools: Sequence[Pool]) -> list[str]:
    return list(dict.fromkeys(pool.stream.model or "(no name)" for pool in pools))


def differing(one: Pool, other: Pool, apart_from: Collection[str] = ()) -> str:
    """What was asked otherwise of two pools, with both values; empty if the log says nothing that differs."""
    ours, theirs = one.stream.asked, other.stream.asked
    keys = [key for key in {**ours, **theirs} if key not in apart_from and ours.get(key) != theirs.get(key)]
    return ", ".join(f"{key} {_said(ours.get(key))} and {_said(theirs.get(key))}" for key in keys)


def _said(value: object) -> str:
    return "not stated" if value is None else str(value)
