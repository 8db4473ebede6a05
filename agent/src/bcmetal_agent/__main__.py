"""`python -m bcmetal_agent`."""

import sys

from bcmetal_agent.cli import main

sys.exit(main())
