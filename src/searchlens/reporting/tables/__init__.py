"""Tables: frames in; ``.csv``, ``.tex`` and ``.md`` files out.

Each table is one function with the decorator ``searchlens.catalogue.table``. ``table`` defines a table and writes its
files, ``format`` prints numbers and intervals, ``build`` makes every table of a stage. Nothing is estimated here.
"""
