"""Ours against references that are not ours: local policies, searches and distributions (docs/equivalence.md)."""
