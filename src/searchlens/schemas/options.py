"""What the options of all stages share: the types of their fields, and how strictly a configuration is read into them.

A stage defines its options in a module ``options`` of its package, as a frozen dataclass with a docstring under each
field. The configuration, its JSON schema and ``config/README.md`` take names, types, limits, defaults and descriptions
from there. Limits are checked when a configuration is read, not when an object is made.

Standard library and ``annotated_types`` only, so that planning loads nothing heavy.
"""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt

Positive = Annotated[int, Ge(1)]
Natural = Annotated[int, Ge(0)]
Draws = Annotated[int, Ge(100)]
Proportion = Annotated[float, Ge(0), Le(1)]
Confidence = Annotated[float, Gt(0), Lt(1)]
Nonnegative = Annotated[float, Ge(0)]

QInstructions = Literal["first_sample", "verdict_majority"]
"""Which votes count as equal where no answer can be extracted: used in grading, set in section ``landscape``."""

STRICT = {"extra": "forbid", "strict": True, "use_attribute_docstrings": True}
"""``__pydantic_config__`` of every options class: unknown keys and wrong types are errors, docstrings descriptions."""
