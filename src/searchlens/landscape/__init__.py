"""The search landscape: what each policy reaches with each budget (paper, section "Search landscape").

One pool of samples per policy gives every smaller budget and every metric, under two readouts:

``prefix``
    The first n samples of the stream, as the paper reads them: one 0/1 per question, Wilson intervals over questions.
``expected``
    The exact mean over all n-subsets of the pool, which does not depend on the order of the samples: the unbiased
    pass@k, and the same for vote, best-of-N and first finish. Bootstrap intervals over questions. Candidates of one
    search (a tree, a beam) are not independent draws: for these it is the mean over runs of the first n candidates, or
    over subsets of whole runs.

Both describe the sampled pool. At n = pool size there is one subset, and the readouts differ in ties alone.

``points`` reads the operating points, ``compact`` and ``expand`` store and restore them without samples. Metrics are
declared in ``metrics`` and in extensions.
"""
