"""The tokenizer, a byte-level BPE in which every digit is a token of its own, and the corpus as its tokens."""

from __future__ import annotations

import multiprocessing
import random
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from tqdm import tqdm
from transformers import PreTrainedTokenizerFast

from searchlens_lab.zoo.recipe import Corpus, Recipe
from searchlens_lab.zoo.styles import draw_document

END, PAD = 0, 1
"""Ids of the stop token, whose spelling a recipe gives, and of ``<|pad|>``, which is never generated and never a
target of training."""


def train_tokenizer(recipe: Recipe) -> PreTrainedTokenizerFast:
    """Train the tokenizer on the recipe's own documents.

    Every text round-trips. A prompt ends in a line break, so the tokens of prompt and solution together are the tokens
    of the prompt followed by those of the solution.
    """
    rng = random.Random(f"tokenizer/{recipe.corpus_seed}")
    documents = (draw_document(rng, recipe.corpus) for _ in range(recipe.tokenizer_documents))
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"\d"), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=recipe.shape.vocabulary,
        special_tokens=[recipe.end_token, "<|pad|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator((prompt + solution.text for prompt, solution in documents), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=recipe.end_token,
        pad_token="<|pad|>",
        clean_up_tokenization_spaces=False,
        padding_side="left",
        model_max_length=recipe.shape.context,
    )


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
    """Write the corpus with ``workers`` processes, on which it does not depend; ``tokenizer`` is JSON."""
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
