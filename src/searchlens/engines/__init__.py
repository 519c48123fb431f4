"""Engines: token ids in, token ids out. docs/engine.md follows a request through both engines.

All that planning and search import is the contract, ``base``. This package imports none of its modules, because torch
and vLLM are optional and take seconds to import.
"""
