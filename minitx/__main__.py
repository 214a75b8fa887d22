import sys

from minitx.cli import main

sys.exit(main())
