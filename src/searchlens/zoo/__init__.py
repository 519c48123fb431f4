"""The micro zoo: a Base/RL pair of about a million parameters, really trained, small enough for a laptop.

In the order of use: ``recipe`` (every number), ``tasks`` (questions with exact gold), ``benchmarks`` (the committed
JSONL), ``styles`` and ``corpus`` (what Base reads), ``tokenizer``, ``model``, ``pretrain``, ``sample``, ``rlvr``,
``evaluate``, ``card`` and ``train`` (all of it, in one call). ``python -m searchlens.zoo --help`` lists the commands;
``docs/zoo.md`` tells the story.
"""
