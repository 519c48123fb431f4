"""Samples that somebody brings: one file for each format, and what formats share."""
