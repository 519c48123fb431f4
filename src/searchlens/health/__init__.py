"""Whether the numbers of a cell mean anything: how its samples ended, and how many of them state an answer."""
