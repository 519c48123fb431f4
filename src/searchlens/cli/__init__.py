"""The commands: their options (``main`` and the files that it names), what they do, and the stages of the workflow."""
