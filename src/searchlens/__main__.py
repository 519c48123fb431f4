"""`python -m searchlens`."""

import sys

from searchlens.cli.main import main

sys.exit(main())
