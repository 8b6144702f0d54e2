"""What a check of `dynatui doctor` finds."""

from functools import partial
from typing import Literal, NamedTuple


class Finding(NamedTuple):
    """One result of a check, with a remedy if one is needed."""

    verdict: Literal["ok", "note", "problem"]
    """problem: dynatui cannot run with these options; note: dynatui can run, but the finding matters to users."""
    text: str
    remedy: str = ""


ok, note, problem = partial(Finding, "ok"), partial(Finding, "note"), partial(Finding, "problem")
