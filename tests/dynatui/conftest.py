"""What the user who runs the tests has set up for himself has no part in them."""

import os

import pytest


@pytest.fixture(autouse=True)
def _nobodys_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings and a terminal of all colours, in this process and in those that it starts."""
    for name in [name for name in os.environ if name.startswith("DYNATUI_") and name != "DYNATUI_DATA"]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("DYNATUI_CONFIG", os.devnull)
