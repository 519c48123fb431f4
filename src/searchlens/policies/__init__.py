"""Policies: what the paper calls pi, as five components with a name that says them all."""

from searchlens.policies.policy import (
    FAMILIES,
    FILTERS,
    PENALTIES,
    Part,
    Policy,
    check_sampling,
    from_spec,
    parse,
)

__all__ = ["FAMILIES", "FILTERS", "PENALTIES", "Part", "Policy", "check_sampling", "from_spec", "parse"]
