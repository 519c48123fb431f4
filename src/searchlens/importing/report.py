"""What an import found, in lines for people."""

from __future__ import annotations

from collections.abc import Sequence

from searchlens.errors import one_line
from searchlens.importing.checks import Check
from searchlens.importing.pools import Pool
from searchlens.importing.reading import Reading


def report(reading: Reading, pools: Sequence[Pool], checks: Sequence[Check]) -> list[str]:
    """Questions matched, then each pool with its policy, samples and checks, then what was chosen or left out."""
    count = len(reading.files)
    lines = [
        f"{count:,} file{'s' if count != 1 else ''}, read as {reading.format}",
        f"questions: {len(reading.questions):,} ({reading.found})",
    ]
    for pool, check in zip(pools, checks, strict=True):
        lines += _of_pool(pool, check)
    return [*lines, *(f"note: {note}" for note in reading.notes)]


def _of_pool(pool: Pool, check: Check) -> list[str]:
    tally = pool.tally
    who = " ".join(part for part in (pool.role, pool.stream.model) if part) or "samples"
    head = f"{who}: policy {pool.policy or 'not known'}, {len(pool.questions):,} questions x {pool.samples:,} samples"
    lines = [one_line(head, 1000), one_line(f"  in the log: {pool.proposal}", 1000), f"  {check}"]
    kept = len(pool.questions) * pool.samples
    if tally.ends["failed"]:
        lines.append(f"  {tally.ends['failed']:,} requests failed")
    if pool.failed == "drop":
        lines.append(f"  kept the first {pool.samples:,} samples of each question: {kept:,} of {tally.count:,}")
    if pool.failed == "wrong":
        lines.append(f"  {kept - tally.count + tally.ends['failed']:,} failed or missing samples count as wrong")
    if tally.ends["unknown"]:
        lines.append(f"  of {tally.ends['unknown']:,} samples it is not known how they ended")
    if tally.inferred:
        lines.append(f"  of {tally.inferred:,} samples it is inferred from the limit of tokens that they were cut off")
    whole = tally.count - tally.ends["failed"]
    for what, known in (("token counts", tally.with_tokens), ("log-probabilities", tally.with_logprobs)):
        if 0 < known < whole:
            lines.append(f"  {what} are left out: only {known:,} of {whole:,} samples have them")
    lines += [f"  attention: {fault}" for fault in check.faults]
    return [*lines, *check.examples]
