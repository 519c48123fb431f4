"""Figures: frames in; ``.svg``, ``.pdf`` and ``.png`` files out, with a ``.csv`` of the numbers that are shown.

Each figure is one file with two functions: ``numbers(context)`` has the decorator ``searchlens.catalogue.figure`` and
selects and arranges rows; ``draw(numbers, context)`` draws them. ``style`` makes every figure of a stage. No number is
estimated here: rows are counted where a figure says how many it shows, and envelopes run straight between points that
were read.
"""
