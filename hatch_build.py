"""What a wheel has besides Python files: the project's files that lie at the top level of a checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROJECT = ("Snakefile", "workflow", "config", "profiles")
"""What a wheel has in ``searchlens/project/``, where ``searchlens.config.project.root`` finds it."""


class ProjectFiles(BuildHookInterface):
    """Adds the project's files to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add them unless the install is editable: that one finds them in the checkout."""
        if version == "standard":
            sources = {str(Path(self.root, name)): f"searchlens/project/{name}" for name in PROJECT}
            build_data["force_include"].update(sources)
