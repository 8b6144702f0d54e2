"""Fixtures of the tests of the laboratory's commands: those of the command line's tests."""

from tests.dynatui.cli.conftest import engine, recorded, screen
from tests.dynatui.conftest import _nobodys_settings, _warm, recording, start, start_new

__all__ = ["_nobodys_settings", "_warm", "engine", "recorded", "recording", "screen", "start", "start_new"]
