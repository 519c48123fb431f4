"""Readings of a pair that use every sample and do not depend on the order in which samples were drawn.

pool.py          the samples of one policy, as counts of every question
options.py       section ``readings`` of the configuration
equivalents.py   how many samples of Base equal b samples of RL
exponents.py     which alpha and beta of N = alpha * b^beta the samples allow
study.py         every reading of every pair: the frames of stage ``readings``
"""
