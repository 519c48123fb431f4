"""The explorer: one page that shows a study down to its single samples, and the data that the page reads.

The page computes nothing that was computed before. It asks for bytes of files by name, and has two sources for them:
``results/explorer.html`` has them inside, as many as its size allows; `searchlens view` gives them out of the results
folder, by ranges.

index.py       what there is, in one JSON: pairs, cells, policies, tables, and the file of everything
sentences.py   what a cell says, in words
texts.py       questions, answers and samples as the page reads them
files.py       every file that the page may ask for, by name
inlined.py     the page with its data inside, within a size
page.py        the page itself, and where the data go
server.py      a server for this machine alone, which reads and never writes
"""

from searchlens.explorer.files import Files
from searchlens.explorer.inlined import Inlined, explorer_page
from searchlens.explorer.server import Server

__all__ = ["Files", "Inlined", "Server", "explorer_page"]
