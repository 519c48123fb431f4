"""The laboratory of searchlens: what proves the instrument, and what makes its toys.

    equivalence/   policies and searches against independent references; samplers of p^alpha side by side
    resident/      an engine for toys on a GPU
    simulate/      studies of known truth
    zoo/           training of the small Base/RL pairs
    pretrained/    training of a pair from a pretrained checkpoint

``addon`` says what it adds to the command line, the configuration and the workflow.
"""
