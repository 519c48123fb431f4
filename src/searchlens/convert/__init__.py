"""Checkpoint folders from GGUF files of Gemma 3, where a hub cannot be reached (docs/pretrained.md)."""

from searchlens.convert._folder import convert

__all__ = ["convert"]
