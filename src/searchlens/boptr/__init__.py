"""BOPTR: the law of the path through the Base landscape (paper, section "SearchPath")."""
