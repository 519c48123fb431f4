"""Runs in worker processes: IFEval's checkers, made ready once in the server that the workers fork from."""

import langdetect
import nltk

from searchlens.grading._checkers import judge, registry

__all__ = ["judge"]

registry()
langdetect.detect("Ready.")
nltk.tokenize.word_tokenize("Ready.")
