"""searchlens: how much of an RLVR gain was already in the base model?

One module or folder per stage, in the order data flows: ``grid`` (what there is to do), ``generate`` (samples into
shards), ``score`` (verdicts), ``landscape`` (operating points), ``recovery`` (the RL curve inside the Base landscape),
``tables`` and ``figures``.
"""

__version__ = "0.1.0"
