"""Cross-likelihoods: how likely the texts of each side of a pair are under the other side.

texts.py     texts of both sides, with log p of each under both checkpoints
summary.py   what they say: divergences, perplexities, entropies, numbers of samples, and a regression
"""
