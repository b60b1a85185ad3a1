"""`python -m octavo.report DIR` is `octavo report DIR`."""

import sys

from octavo.__main__ import main

main(["report", *sys.argv[1:]])
