"""Sampling, the only stage that needs a model: one job samples one pool of policies of one (checkpoint, benchmark).

The samples that the store does not have are cut into chunks. Finished chunks are kept next to the shards, so a killed
job resumes after them; a shard is published as soon as all its chunks are finished, and the manifest of the pool is
written last. docs/generation.md says how jobs are run, docs/engine.md what an engine does.
"""

from searchlens.sampling._chunks import Chunk, ChunkSamples, MissingShard
from searchlens.sampling._job import Job
from searchlens.sampling._pool import GraceExpired, Notice, generate, stop_signals
from searchlens.sampling._prompts import drawn_otherwise, prompts
from searchlens.sampling._sample import sample
from searchlens.sampling._trace import trace

__all__ = [
    "Chunk",
    "ChunkSamples",
    "GraceExpired",
    "Job",
    "MissingShard",
    "Notice",
    "drawn_otherwise",
    "generate",
    "prompts",
    "sample",
    "stop_signals",
    "trace",
]
