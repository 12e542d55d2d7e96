"""``python -m tidemark.cli``: the command line, if its script is not on the PATH."""

import sys

from tidemark.cli.main import main

sys.exit(main())
