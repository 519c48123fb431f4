"""What readers want of the pages of a study, and with how many clicks they have it."""

import re

import pytest

from test_explorer_browser import Tab, address, browser, needs_browser, page_file, results, served, tab

__all__ = ["address", "browser", "page_file", "results", "served", "tab"]  # fixtures
pytestmark = needs_browser

TASKS = {
    "who leads with one sample and with most": ([], r"With 1 sample neither leads surely: RL − Base is \+20\.8 \["),
    "one greedy answer of each": ([], r"One greedy answer of Base solves 66\.7% .* of RL 66\.7%"),
    "whether the samples are sound": ([], r"The samples are sound: 100% of Base's and 100% of RL's state an answer"),
    "what one sample of RL is worth": ([], r"One sample of RL is worth 2\.6 \[1\.0 or less, 4\.0 or more\] of Base"),
    "which policies of Base reach RL": (["sums"], r"top-p 0\.9, temperature 0\.7"),
    "which exponents of a law are allowed": (["sums", "Budgets"], r"not rejected at 95% are exponents β from 0\.00 to"),
    "which questions Base alone solves": (["1 question that Base solves", "q4"], r"RL solves nothing|none of RL's"),
    "how many samples of a question are right": (["sums", "Questions", "q1"], r"2 of 4 samples right"),
    "where the samples were drawn": (["Origins"], r"cpu"),
    "a table with its numbers": (["Tables", "Support"], r"[Ee]xpanded"),
}


@pytest.mark.parametrize("task", TASKS)
def test_readers_have_it_in_three_clicks(tab: Tab, task: str) -> None:
    clicks, wanted = TASKS[task]
    assert len(clicks) <= 3
    for name in clicks:
        tab.click(re.compile(f"^{re.escape(name)}"))
    assert re.search(wanted, tab.text(), re.DOTALL)
