"""What readings leave open, by the same limits wherever that is said in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WIDE = 1.0
"""Width of a set of exponents from which on the exponent is not identified."""


def of_exponents(row: Mapping[str, Any]) -> str:
    """Why the exponents of a row of ``readings.exponents.EXPONENTS``, or of Nones, are no answer; empty if they are."""
    if row["empty"]:
        return "no power law that was tested fits"
    if row["testable"] is False:
        return "too few questions"
    if row["hardly"]:
        return "hardly any law fits"
    if row["beta_lo"] is not None and row["beta_hi"] - row["beta_lo"] >= WIDE:
        return "not identified"
    return ""


def up_to(row: Mapping[str, Any]) -> str:
    """Up to which N a law was read, by ``pool_min`` and ``pool_max`` of ``readings.exponents.EXPONENTS``."""
    least, most = row["pool_min"], row["pool_max"]
    return f"N up to {most}" if least == most else f"N up to {least} to {most}, the pool of each policy"
