"""How many different answers a question gets: the entropy of its answer classes."""

from __future__ import annotations

import numpy as np

from searchlens.readings.pool import Pool
from searchlens.uncertainty import Floats


def entropy(pool: Pool) -> Floats:
    """Entropy of the answers to each question, plain and with the correction of its bias.

    Parameters
    ----------
    pool : Pool
        Samples without an answer are one class of their own.

    Returns
    -------
    ndarray, shape (questions, 2)
        In nats. First -sum f log f over the shares f of the classes, from 0 to log n; then the same plus
        (K - 1) / (2 n), K the number of classes that occur (Miller and Madow).

    Notes
    -----
    The plain entropy is too low, by about (K - 1) / (2 n). K counts only what occurred, so that the corrected one is
    too low, too, where most samples have answers of their own: neither can exceed log n by much.

    References
    ----------
    Miller (1955), Note on the bias of information estimates; Wu et al. (2025), arXiv:2507.14843 (entropy
    of answers).
    """
    sizes, _ = pool.sizes
    counted = np.column_stack([sizes, pool.samples - pool.answered])
    shares = counted / pool.samples
    plain = -(shares * np.log(np.where(counted > 0, shares, 1))).sum(axis=1)
    return np.column_stack([plain, plain + ((counted > 0).sum(axis=1) - 1) / (2 * pool.samples)])
