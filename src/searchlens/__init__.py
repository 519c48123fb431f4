"""searchlens: how much of an RLVR gain was already in the base model?

``grid`` turns a ``config`` into cells, jobs and generation ids; ``store`` has every path and file on disk.
``generate`` draws samples on one of the ``engines``, under ``policies`` and controllers of ``search``; ``benchmarks``
has the questions and ``grading`` the verdicts. ``landscape`` reads samples as operating points, ``recovery`` compares
two landscapes, ``boptr`` fits the law, ``tables`` and ``figures`` show it; ``stages`` runs each from files to files.
``catalogue`` says how to add a metric, table, figure, controller, grader or benchmark family.
"""

__version__ = "0.1.0"
