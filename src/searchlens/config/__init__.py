"""The configuration: typed, checked and loaded."""

from searchlens.config._all import *  # noqa: F403
