"""Base and RL compared from answers that one has: arrays, or the log files of other tools.

arrays.py     the measures of right and wrong answers in arrays
statements.py what these measures can and cannot say, in words
common.py     which questions of the two sides are the same
judging.py    right and wrong samples, by a grader, as recorded, and by other graders
samples.py    samples for people to read
logs.py       all of it: log files to ``LogComparison``, and the sentences about it
sections.py   the same as small tables of text
"""

from searchlens.comparison.logs import LogComparison, Wishes, compare_logs, compare_tasks
from searchlens.comparison.sections import page

__all__ = ["LogComparison", "Wishes", "compare_logs", "compare_tasks", "page"]
