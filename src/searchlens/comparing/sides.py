"""The samples of one side: which pools of its files are compared."""

from __future__ import annotations

from collections.abc import Sequence
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

    @property
    def model(self) -> str:
        """As the log names it; empty if it does not."""
        return self.first.stream.model


def base_and_rl(base: Reading, rl: Reading, models: tuple[str, str]) -> tuple[Side, Side]:
    """The pools of both sides.

    Parameters
    ----------
    models : (str, str)
        Names of the models of Base and RL, where files have several; empty: there is one.

    Raises
    ------
    InputError
        A side has no samples or several models, RL has several policies, or two pools have one name.
    """
    theirs = _named(RL, _of_model(RL, rl.pools, models[1]))
    if len(theirs) > 1:
        raise InputError(
            f"RL has samples of {len(theirs)} policies: {', '.join(theirs)}", "name the files of one of them as RL"
        )
    ours = _named(BASE, _of_model(BASE, base.pools, models[0]))
    same = [name for name in theirs if name in ours]
    order = [*same, *(name for name in ours if name not in same)]
    pools = {name: ours[name] for name in order}
    return Side(role=BASE, reading=base, pools=pools), Side(role=RL, reading=rl, pools=theirs)


def _of_model(role: str, pools: Sequence[Pool], model: str) -> list[Pool]:
    """The pools of one model and, if the log knows sides, of this side."""
    kept = [pool for pool in pools if pool.role in ("", role) or model]
    kept = [pool for pool in kept if not model or pool.stream.model == model]
    found = list(dict.fromkeys(pool.stream.model or "(no name)" for pool in pools))
    if not kept:
        what = f"no samples of the model {model!r}" if model else "no samples: the log says that all are of the other"
        raise InputError(f"{TITLES[role]}: {what}; models of its files: {', '.join(found)}")
    models = list(dict.fromkeys(pool.stream.model or "(no name)" for pool in kept))
    if len(models) > 1:
        option = {BASE: "--base-model", RL: "--rl-model"}[role]
        raise InputError(f"{TITLES[role]}: the files have several models: {', '.join(models)}", f"{option} MODEL")
    return kept


def _named(role: str, pools: Sequence[Pool]) -> dict[str, Pool]:
    named: dict[str, Pool] = {}
    for pool in pools:
        name = pool.policy or UNNAMED
        if name in named:
            raise InputError(
                f"{TITLES[role]}: two streams of samples have the policy {name}, but were drawn differently:"
                f" {_differing(named[name], pool)}",
                "name the files of one of them",
            )
        named[name] = pool
    return named


def _differing(one: Pool, other: Pool) -> str:
    keys = [key for key in {**one.asked, **other.asked} if one.asked.get(key) != other.asked.get(key)]
    return ", ".join(f"{key} {one.asked.get(key)} and {other.asked.get(key)}" for key in keys) or "(nothing is said)"
