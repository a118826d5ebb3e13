"""`python -m sexton`."""

import sys

from sexton.cli.main import main

sys.exit(main())
