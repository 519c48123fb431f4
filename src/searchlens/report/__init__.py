"""The report: figures and tables of a study with their captions, as one page."""

from searchlens.report.page import report_page

__all__ = ["report_page"]
