"""Where the RL model's default curve lies inside the Base landscape (paper, sections "Same-policy gaps" to "Geometry").

``tables.recover`` computes every table of the stage for one pair on one benchmark; ``gaps`` and ``paths`` have a
function for each table. All of it is arithmetic on the hits and points of two landscapes.
"""
