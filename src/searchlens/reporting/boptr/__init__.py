"""Tables and figures of BOPTR: those of the paper's section "SearchPath" and its appendices, and further ones.

A file has the tables and the figure of the result that the file of the same name in ``searchlens.boptr`` computes.
Means of errors (``boptr.transfer``) are in ``horizontal``, ``vertical`` and ``coverage``. Frames are selected, pivoted,
printed and drawn; nothing is estimated. What a cohort does not have is named, with the reason that its frame gives.
"""
