"""Commands around a study: the plan, the progress, damaged files, unused files."""
