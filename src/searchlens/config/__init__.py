"""The configuration: one frozen record a section, every key with its type, default, limits and meaning, in one place.

The records import nothing else of this package, and no library. ``check`` reads YAML files into them, once, with all
checks that need more than one section; from then on ``model.plain`` and ``model.from_plain`` write and read them.
``config/README.md`` is generated from them (``make schema``); a test fails when they disagree.
"""
