"""Lets test modules share helpers as `tests.…`; appended, so that an installed package stays ahead of the folder."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
