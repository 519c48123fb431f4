"""Graded samples to what they say: the landscape, the recovery of RL's curve in it, measures, and health.

landscape  ``points`` reads what each policy reaches with each budget, for each of ``metrics`` and of extensions;
           ``compact`` and ``expand`` store it and restore it without samples
recovery   where the RL model's default curve lies inside the Base landscape
measures   of a pair, with ``equivalents`` and others: what uses every sample, in whatever order; ``pair_measures``: all
health     whether the numbers of a cell mean anything

One pool of samples per policy gives every smaller budget and every metric (paper, section "Search landscape"), under
two estimates:

``first_k``
    The first n samples of the stream, as the paper reads them: one 0/1 per question, Wilson intervals over questions.
``unbiased``
    The exact mean over all n-subsets of the pool, which does not depend on the order of the samples: the unbiased
    pass@k, and the same for vote, best-of-N and first finish. Bootstrap intervals over questions. Candidates of one
    search (a tree, a beam) are not independent draws: for these it is the mean over runs of the first n candidates, or
    over subsets of whole runs.

Both describe the sampled pool. At n = pool size there is one subset, and the estimates differ in ties alone.
"""
