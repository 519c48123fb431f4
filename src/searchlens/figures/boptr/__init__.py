"""Figures of the BOPTR analysis, drawn from the frames of ``searchlens.boptr.study``.

What a cohort does not have is named in the figure, with the reason that its frame gives.
"""
