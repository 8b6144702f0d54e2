"""`python -m dynatui`: the same as `dynatui`."""

import sys

from dynatui.cli import main

if __name__ == "__main__":
    sys.exit(main())
