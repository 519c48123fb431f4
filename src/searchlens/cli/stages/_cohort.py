"""The cohort and the options of BOPTR, as the configuration of a study gives them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from searchlens.boptr.cohort import CohortPlan


def cohort_of(study: Mapping[str, Any]) -> CohortPlan:
    """The typed cohort of ``needs.boptr`` or ``needs.transfer``."""
    return TypeAdapter(CohortPlan).validate_json(json.dumps(study["cohort"]))
