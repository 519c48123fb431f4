"""Readings of a pair that use every sample and do not depend on the order in which samples were drawn.

pool.py          the samples of one policy, as counts of every question
options.py       section ``readings`` of the configuration
equivalents.py   how many samples of Base equal b samples of RL
exponents.py     which alpha and beta of N = alpha * b^beta the samples allow
support.py       which questions RL keeps, loses and adds of those that Base solves
coverage.py      how reliably questions are solved: Cover@tau, G-Pass@k, pass^k
guessing.py      what guessing among options solves, and pass@k corrected for it
variance.py      parts of the variance of pass@1; the winner of a second run
extrapolation.py pass@k beyond the pool, and how often its intervals are right
measures.py      numbers of both sides and of their difference, with intervals
study.py         every reading of every pair: the frames of stage ``readings``
"""
