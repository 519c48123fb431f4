"""Seeds and generators of a study: sampling, search, simulation and resampling. Training of the zoo has its own seeds.

A seed is a pure function of its key. ``uniform`` makes the random numbers with which the engines draw tokens. Nothing
here has state, so what is drawn here does not depend on the order in which samples finish or on what else is in a
batch.

Samples, searches and simulations use keys of strings and integers, hashed with SHA-256, because consecutive seeds are
not independent streams on every engine. Resampling uses keys of integers, which numpy's ``SeedSequence`` mixes.
"""

from __future__ import annotations

import hashlib
import json

import numpy as np
import numpy.typing as npt

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def _digest(key: tuple[str | int, ...]) -> bytes:
    """Hash a key as a JSON list, which keeps ("a", "bc") and ("ab", "c"), or 1 and "1", apart."""
    return hashlib.sha256(json.dumps(key, separators=(",", ":")).encode()).digest()


def sample_seed(generation_id: str, question_id: str, sample: int) -> int:
    """Return the seed of a sample, by its position from 0: in [0, 2**63), so that it fits a signed 64-bit column."""
    return int.from_bytes(_digest((generation_id, question_id, sample))[:8], "big") >> 1


def child(seed: int, *key: str | int) -> int:
    """Return the seed, in [0, 2**63), of one request of a controller, from that of the sample or run.

    The key says where in the search the request stands (block and step, path in the tree), never when it was made.
    """
    return int.from_bytes(_digest((seed, *key))[:8], "big") >> 1


def generator(*key: str | int) -> np.random.Generator:
    """Return a generator for what is neither a token nor resampled: cut points of a search, simulated data.

    Equal keys give equal streams; types count, so 1 and "1" differ. It is a Philox, counter-based, with a 128-bit key.
    """
    return np.random.Generator(np.random.Philox(key=int.from_bytes(_digest(key)[:16], "big")))


def resampler(*key: int) -> np.random.Generator:
    """Return a generator for resampling: bootstrap draws, permutations, shuffles and sign flips.

    The key is the seed of the analysis, then the shape of what is resampled; none negative. Equal keys give equal
    draws, which is what pairs the intervals of different tables. It is a Philox, seeded through
    ``numpy.random.SeedSequence``.
    """
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))


def _mix(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Finalise SplitMix64 (a bijection of 64-bit words)."""
    state = (state ^ (state >> np.uint64(30))) * _MIX_1
    state = (state ^ (state >> np.uint64(27))) * _MIX_2
    return state ^ (state >> np.uint64(31))


def uniform(seeds: npt.NDArray[np.uint64], positions: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return one number in [0, 1), a multiple of 2**-53, per seed and position of the generated token, from 0.

    The number is the top 53 bits of ``mix(mix(seed) + (position + 1) * golden)``: output ``position`` of the SplitMix64
    stream whose state starts at ``mix(seed)`` (Steele, Lea and Flood (2014), Fast splittable pseudorandom number
    generators).
    """
    counter = (positions.astype(np.uint64) + np.uint64(1)) * _GOLDEN
    return (_mix(_mix(seeds) + counter) >> np.uint64(11)).astype(np.float64) * 2.0**-53
