"""`python -m searchlens.cli`."""

import sys

from searchlens.cli.main import main

sys.exit(main())
