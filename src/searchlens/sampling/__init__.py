"""Sampling, the only stage that needs a model: one job samples one pool of policies of one (checkpoint, benchmark).

The samples that the store does not have are cut into chunks. Finished chunks are kept next to the shards, so a killed
job resumes after them; a shard is published as soon as all its chunks are finished, and the manifest of the pool is
written last. docs/generation.md says how jobs are run, docs/engine.md what an engine does.
"""

from searchlens.sampling._again import scored_texts, trace
from searchlens.sampling._job import Job, drawn_otherwise, prompts
from searchlens.sampling._pool import GraceExpired, Notice, generate, stop_signals
from searchlens.sampling._work import work

__all__ = [
    "GraceExpired",
    "Job",
    "Notice",
    "drawn_otherwise",
    "generate",
    "prompts",
    "scored_texts",
    "stop_signals",
    "trace",
    "work",
]
