"""Tables: frames in; ``.csv``, ``.tex`` and ``.md`` files out.

Each table is one function with the decorator ``searchlens.catalogue.table``. ``table`` defines a table, prints numbers
and writes files. Nothing is estimated here.
"""
