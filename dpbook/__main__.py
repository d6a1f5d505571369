"""The command line: ``python -m dpbook``."""

import sys

from dpbook._copy import main

if __name__ == "__main__":
    sys.exit(main())
