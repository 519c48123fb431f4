"""The micro zoo: Base/RL pairs of about a million parameters, really trained, small enough for a laptop.

For the first pair, in the order of use: ``recipe`` (every number), ``tasks`` (questions with exact gold),
``benchmarks`` (the committed JSONL), ``styles`` and ``corpus`` (what Base reads), ``model``, ``pretrain``, ``sample``,
``rlvr``, ``evaluate``, ``card`` and ``__main__`` (all of it in one call).
``python -m searchlens_lab.zoo --help`` lists the commands; ``docs/zoo.md`` describes the pair.

For the cohort (``docs/zoo-cohort.md``): ``cohort`` (every number), ``jobs`` in the order of a schedule with each
state saved, ``accept`` (thresholds), ``card``.
``searchlens.zoo`` loads the trained models.
"""
