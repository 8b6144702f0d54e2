"""Refused commands, each of which prints one line."""

import pytest

from dynatui.main import main


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that a refused command prints, without the program's name."""
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    return printed.err.removeprefix("dynatui: ")
