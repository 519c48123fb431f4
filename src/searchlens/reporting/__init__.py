"""Tables and figures of one analysis together, a file for each result."""
