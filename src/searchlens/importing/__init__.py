"""Samples of other tools as pools: matched with a benchmark, checked, and read in bounded memory.

``read`` yields the pools of some files without a study or a store; the stage ``importing`` puts them into the store.
"""

from searchlens.importing.pools import RECORDED, Pool
from searchlens.importing.reading import Choices, Reading, read

__all__ = ["RECORDED", "Choices", "Pool", "Reading", "read"]
