"""The stages of a study: one file for each rule of the workflow, from files to files.

A stage reads its inputs, calls the functions of one package, and writes its outputs. It is given what it needs of the
configuration (``plan.needs``) and never sees the configuration itself. ``record`` and ``importing`` are no rules;
``costs`` and ``source`` serve several stages.
"""
