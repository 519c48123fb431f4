"""Benchmarks: questions, and what decides whether an answer to them is right.

A file has the project's own format (family ``jsonl``), or is one of a known benchmark (``benchmarks/families.py``) in
any of the formats and layouts in which it circulates. Importing this package needs the standard library only, because
every planning step imports it; reading a Parquet file needs pyarrow.
"""

from searchlens.benchmarks.choices import options
from searchlens.benchmarks.known import (
    OWN,
    HubSplit,
    KnownBenchmark,
    LoadedBenchmark,
    family_names,
    known_benchmark,
    known_benchmarks,
    load,
    read,
)
from searchlens.benchmarks.questions import (
    BenchmarkFile,
    Question,
    Row,
    RowError,
    asked_hash,
    content_hash,
    dumps,
)

__all__ = [
    "OWN",
    "BenchmarkFile",
    "HubSplit",
    "KnownBenchmark",
    "LoadedBenchmark",
    "Question",
    "Row",
    "RowError",
    "asked_hash",
    "content_hash",
    "dumps",
    "family_names",
    "known_benchmark",
    "known_benchmarks",
    "load",
    "options",
    "read",
]
