"""The configuration, typed: every key with its type, default, limits and meaning, in one place.

A section that is options of a stage is defined by that stage (``landscape.options``, ``recovery.options``,
``boptr.options``) or by an add-on; the others are defined here, a file each, with the checks that need more
than one section. ``config/README.md`` is generated from them (``make schema``); a test fails when they disagree.
"""

from searchlens.config.load import DEFAULT_FILES, files, load, merge, overlays, plain, read, validate
from searchlens.config.model import Config
from searchlens.config.schema import schema, schema_text

__all__ = [
    "DEFAULT_FILES",
    "Config",
    "files",
    "load",
    "merge",
    "overlays",
    "plain",
    "read",
    "schema",
    "schema_text",
    "validate",
]
