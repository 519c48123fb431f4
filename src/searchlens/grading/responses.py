"""Runs in worker processes: the checkers of IFEval, loaded once in the server that the workers are forked from."""

import langdetect
import nltk

from searchlens.grading.checkers import judge, registry

__all__ = ["judge"]

registry()
langdetect.detect("Ready.")
nltk.tokenize.word_tokenize("Ready.")
