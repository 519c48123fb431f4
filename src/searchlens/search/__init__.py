"""Controllers, which decide what to generate next, and the driver that keeps thousands of searches alive on one engine.

A controller stands with its parameters, what it can be composed with, and its search. The planner imports these
files for their parameters, several times per job, and must not load numpy. So a controller imports ``search.task`` for
types only, and numpy inside of the functions that compute with arrays.
"""
