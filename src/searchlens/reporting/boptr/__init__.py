"""Tables and figures of BOPTR: those of the paper's section "SearchPath" and its appendices, and further ones.

A file has the tables and the figure of the result that the file of the same name in ``searchlens.boptr`` computes.
Means of errors (``boptr.transfer``) are in ``vertical``, too, fits of single cells (``boptr.regimes``) in
``identification``, ``boptr.extension`` on batches and contrasts (``boptr.study``) in ``protocol``, ``boptr.offsets`` in
``metrics``. Frames are selected, pivoted, printed and drawn; nothing is estimated. What a cohort does not have is
named, with the reason that its frame gives.
"""
