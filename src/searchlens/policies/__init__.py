"""Policies: what the paper calls pi, as five components with a name that says them all."""

from searchlens.policies.components import Component, Controller, choice, number, text, whole
from searchlens.policies.policy import FAMILIES, FILTERS, PENALTIES, Policy, from_spec, parse

__all__ = [
    "FAMILIES",
    "FILTERS",
    "PENALTIES",
    "Component",
    "Controller",
    "Policy",
    "choice",
    "from_spec",
    "number",
    "parse",
    "text",
    "whole",
]
