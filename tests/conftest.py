"""Lets test modules share helpers as `tests.…`; appended, so that an installed package stays ahead of the folder."""

import gc
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))


def pytest_collection_finish() -> None:
    """What is imported stays: to search all of it for garbage, again and again, takes a fifth of the time of tests."""
    gc.collect()
    gc.freeze()
