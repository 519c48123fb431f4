"""Benchmarks: questions, and what decides whether an answer to them is right.

A file has the project's own format (family ``jsonl``), or is one of a known benchmark (``benchmarks/families.py``) in
any of the formats and layouts in which it circulates. Importing this package needs the standard library only, because
every planning step imports it; reading a Parquet file needs pyarrow.
"""

from searchlens.benchmarks.choices import options as options
from searchlens.benchmarks.known import OWN as OWN
from searchlens.benchmarks.known import HubSplit as HubSplit
from searchlens.benchmarks.known import KnownBenchmark as KnownBenchmark
from searchlens.benchmarks.known import LoadedBenchmark as LoadedBenchmark
from searchlens.benchmarks.known import family_names as family_names
from searchlens.benchmarks.known import known_benchmark as known_benchmark
from searchlens.benchmarks.known import known_benchmarks as known_benchmarks
from searchlens.benchmarks.known import read as read
from searchlens.benchmarks.questions import BenchmarkFile as BenchmarkFile
from searchlens.benchmarks.questions import Question as Question
from searchlens.benchmarks.questions import Row as Row
from searchlens.benchmarks.questions import RowError as RowError
from searchlens.benchmarks.questions import asked_hash as asked_hash
from searchlens.benchmarks.questions import content_hash as content_hash
from searchlens.benchmarks.questions import dumps as dumps
