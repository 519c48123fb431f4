"""Controllers, which decide what to generate next, and the driver that keeps thousands of them alive on one engine."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from searchlens.policies import Policy
    from searchlens.search.task import Controller, Task


def start(task: Task, policy: Policy) -> Controller:
    """The policy's controller on a task: the module of its name, with the policy's evaluator."""
    from searchlens.search.evaluators import evaluator

    module = import_module(f"searchlens.search.{policy.controller.name}")
    controller: Controller = module.search(task, policy, evaluator(policy.evaluator))
    return controller
