"""`python -m octavo.report DIR` is `octavo report DIR`."""

import sys

from octavo.cli import app

app(["report", *sys.argv[1:]], prog_name="octavo")
