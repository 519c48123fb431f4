"""What is counted of a pool while its samples are read, so that nothing of them has to be kept in memory."""

from __future__ import annotations

import hashlib
import heapq
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from searchlens.readers.logged import LoggedSample, Verdict

EXAMINED = 1000
"""Samples of a pool whose texts are looked at before anything is stored."""

_ENOUGH = 2000
"""Fewest characters of the texts of a stream that can be equal by no chance to those of another one."""

_WRAP = 2**64


@dataclass(frozen=True, order=True)
class Examined:
    """A sample that is looked at before anything is stored. They are chosen by the hash of their content."""

    key: int
    number: int
    sample: int
    text: str
    finish: str
    verdicts: Mapping[str, Verdict]


class Tally:
    """Counts of one pool."""

    def __init__(self) -> None:
        self.samples: dict[int, array[int]] = {}
        """Number of a question to the numbers of its samples, as they came."""
        self.failed: dict[int, array[int]] = {}
        """The same, of failed requests."""
        self.ends: Counter[str] = Counter()
        self.inferred = 0
        """Ends that were inferred from the limit of tokens."""
        self.with_tokens = 0
        self.with_logprobs = 0
        self.with_text = 0
        self.count = 0
        self.scorers: dict[str, None] = {}
        self._content = 0
        self._texts: dict[int, list[int]] = {}
        self._examined: list[tuple[int, int, Examined]] = []

    def add(
        self, number: int, question: str, sample: LoggedSample, text: str, finish: str, n_tokens: int | None
    ) -> None:
        """Count one sample of a question."""
        self.count += 1
        self.samples.setdefault(number, array("L")).append(sample.sample)
        self.ends[finish] += 1
        self.with_tokens += n_tokens is not None
        self.with_logprobs += sample.logprobs is not None
        self.with_text += sample.text is not None
        if sample.verdicts:
            self.scorers |= dict.fromkeys(sample.verdicts)
        if finish == "failed":
            self.failed.setdefault(number, array("L")).append(sample.sample)
        else:
            sums = self._texts.setdefault(sample.sample, [0, 0, 0])
            sums[0] = (sums[0] + hash((number, text))) % _WRAP
            sums[1] += 1
            sums[2] += len(text)
        rest = f"{question}\0{sample.sample}\0{finish}\0{sample.tokens}\0{sample.logprobs}\0"
        key = int.from_bytes(hashlib.sha256((rest + text).encode("utf-8", "surrogatepass")).digest(), "big")
        self._content = (self._content + key) % (1 << 256)
        if len(self._examined) < EXAMINED or -key > self._examined[0][0]:
            one = Examined(key, number, sample.sample, text, finish, sample.verdicts)
            add = heapq.heappush if len(self._examined) < EXAMINED else heapq.heapreplace
            add(self._examined, (-key, self.count, one))

    @property
    def content(self) -> str:
        """Hash of all samples, whatever their order: 64 hexadecimal digits."""
        return f"{self._content:064x}"

    @property
    def examined(self) -> list[Examined]:
        """At most ``EXAMINED`` samples, the same ones for the same samples in any order."""
        return sorted(one for _, _, one in self._examined)

    @property
    def equal_samples(self) -> tuple[int, int] | None:
        """Two samples that have equal texts in all questions, which are no two draws; None if there are none."""
        seen: dict[tuple[int, int], int] = {}
        for sample in sorted(self._texts):
            total, count, characters = self._texts[sample]
            if characters >= _ENOUGH and count == len(self.samples):
                first = seen.setdefault((total, characters), sample)
                if first != sample:
                    return first, sample
        return None

    def repeated(self) -> Iterator[tuple[int, int]]:
        """(question, sample) that came more than once."""
        for number, samples in self.samples.items():
            values, counts = np.unique(np.asarray(samples), return_counts=True)
            yield from ((number, int(value)) for value in values[counts > 1])

    def usable(self, number: int) -> int:
        """Samples of a question that did not fail."""
        return len(self.samples.get(number, ())) - len(self.failed.get(number, ()))

    def absent(self, number: int, size: int) -> list[int]:
        """The samples below ``size`` that a question does not have."""
        present = set(self.samples.get(number, ()))
        return [sample for sample in range(size) if sample not in present]
