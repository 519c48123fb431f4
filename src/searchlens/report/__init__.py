"""The report: figures and tables of a study with their captions, as one page.

contents.py   which figures and tables a study has, in the order of the page
page.py       the page
"""

from searchlens.report.page import report_page

__all__ = ["report_page"]
