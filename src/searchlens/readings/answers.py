"""How many different answers a question gets: the entropy of its answer classes."""

from __future__ import annotations

import numpy as np

from searchlens.readings.pool import Pool
from searchlens.uncertainty import Floats


def entropy(pool: Pool) -> Floats:
    """Entropy of the answers to each question in nats, plain and corrected: shape (questions, 2).

    Plain is -sum f log f over the shares f of the classes; samples without an answer are one class. It is too low by
    about (K - 1) / (2 n), K the number of classes that occur, which the second adds (Miller and Madow). K counts only
    what occurred, so that this is too low, too, where most samples have answers of their own: neither can exceed log n
    by much.

    Miller (1955), Note on the bias of information estimates; Wu et al. (2025), arXiv:2507.14843 (entropy of answers).
    """
    sizes, _ = pool.sizes
    counted = np.column_stack([sizes, pool.samples - pool.answered])
    shares = counted / pool.samples
    plain = -(shares * np.log(np.where(counted > 0, shares, 1))).sum(axis=1)
    return np.column_stack([plain, plain + ((counted > 0).sum(axis=1) - 1) / (2 * pool.samples)])
