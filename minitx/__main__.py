"""`python -m minitx` is `minitx`."""
import sys

from minitx.cli import main

sys.exit(main())
