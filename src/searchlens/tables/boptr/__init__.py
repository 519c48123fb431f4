"""Tables of the BOPTR analysis: those of the paper's section "SearchPath" and its appendices, and further ones.

Each function selects, pivots and prints frames that ``searchlens.boptr.study`` has computed.
"""
