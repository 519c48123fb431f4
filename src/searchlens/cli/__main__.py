"""`python -m searchlens.cli`."""

import sys

from searchlens.cli import main

sys.exit(main())
