"""The tokenizer: byte-level BPE in which every digit is a token of its own."""

from __future__ import annotations

import random

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from searchlens_lab.zoo.recipe import Recipe
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
