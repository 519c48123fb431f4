"""The corpus that Base reads: problems of the train split with noisy solutions, as one flat array of tokens."""

from __future__ import annotations

import multiprocessing
import random
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer
from tqdm import tqdm

from searchlens_lab.zoo.recipe import Corpus, Recipe
from searchlens_lab.zoo.styles import draw_document
from searchlens_lab.zoo.tokenizer import END

_CHUNK = 5_000  # documents with one random stream; another number gives another corpus


@dataclass(frozen=True, slots=True)
class Tokens:
    """Documents as tokens."""

    flat: npt.NDArray[np.uint16]
    """All documents, one after the other; a document that ends has the stop token last. Shape (total,)."""
    lengths: npt.NDArray[np.int32]
    prompts: npt.NDArray[np.int32]
    """``lengths``, ``prompts``: Int32 arrays. Number of tokens of each document, and of its prompt. Shape
    (documents,)."""


def _chunk(task: tuple[int, int], corpus: Corpus, seed: int, tokenizer: str) -> Tokens:
    number, size = task
    rng = random.Random(f"corpus/{seed}/{number}")
    drawn = [draw_document(rng, corpus) for _ in range(size)]
    bpe = Tokenizer.from_str(tokenizer)
    prompts = [encoding.ids for encoding in bpe.encode_batch([text for text, _ in drawn])]
    solutions = bpe.encode_batch([solution.text for _, solution in drawn])
    documents = []
    for prompt, encoding, (_, solution) in zip(prompts, solutions, drawn, strict=True):
        ids = prompt + encoding.ids + ([END] if solution.ends else [])
        documents.append(ids[: corpus.max_tokens])
    return Tokens(
        np.fromiter((token for ids in documents for token in ids), np.uint16),
        np.array([len(ids) for ids in documents], np.int32),
        np.array([len(ids) for ids in prompts], np.int32),
    )


def build_corpus(recipe: Recipe, tokenizer: str, workers: int) -> Tokens:
    """Write the corpus with ``workers`` processes; the result does not depend on their number.

    ``tokenizer``: the tokenizer as JSON (``backend_tokenizer.to_str()``).
    """
    n = recipe.corpus.documents
    sizes = [min(_CHUNK, n - first) for first in range(0, n, _CHUNK)]
    write = partial(_chunk, corpus=recipe.corpus, seed=recipe.corpus_seed, tokenizer=tokenizer)
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        chunks = list(tqdm(pool.imap(write, enumerate(sizes)), "corpus", len(sizes), unit="chunk", mininterval=10))
    return Tokens(
        np.concatenate([chunk.flat for chunk in chunks]),
        np.concatenate([chunk.lengths for chunk in chunks]),
        np.concatenate([chunk.prompts for chunk in chunks]),
    )
