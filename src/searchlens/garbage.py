"""How often Python looks for cyclic garbage; it looks at every object, whether that is garbage or not."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_RARELY = (100_000, 20, 100)


def collect_rarely() -> None:
    """Look for garbage rarely from here on.

    For processes that make many objects and keep them. Imports make hundreds of thousands, and planning makes millions:
    looking for garbage takes a sixth of a command's start, and of planning.
    """
    gc.set_threshold(*_RARELY)


@contextmanager
def collected_rarely() -> Iterator[None]:
    """``collect_rarely`` within a ``with`` block, for callers who set it otherwise."""
    before = gc.get_threshold()
    collect_rarely()
    try:
        yield
    finally:
        gc.set_threshold(*before)
