"""Import this in a script that imports a test: it makes the tests of all rooms importable by name, as pytest does."""

import sys
from pathlib import Path

sys.path += [str(folder) for folder in Path(__file__).parent.iterdir() if folder.is_dir()]
