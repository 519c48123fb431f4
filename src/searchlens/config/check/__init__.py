"""Reading, merging and checking the YAML files of a configuration."""

from searchlens.config.check.load import DEFAULT_FILES, files, load, merge, overlays, read, validate
from searchlens.config.check.schema import schema, schema_text

__all__ = ["DEFAULT_FILES", "files", "load", "merge", "overlays", "read", "schema", "schema_text", "validate"]
