"""What every section of the configuration is made of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from searchlens import errors

Name = Annotated[str, Field(pattern=f"^{errors.NAME}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Repository = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$")]


class Section(BaseModel):
    """Unknown keys, wrong types and numbers that are not finite are errors; nothing changes after loading."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


def unknown(where: str, name: str, known: Iterable[str]) -> str:
    """The message about a name that is not among the known ones, with the nearest of them."""
    return f"{where}: {errors.unknown(name, known)}"
