"""Waiting for the foreground of a terminal, in processes of their own; test_job_control tests the screens."""

import sys

import pytest

from tests.dynatui.one_job_shell import IN_BACKGROUND, STOPPED
from tests.dynatui.pty_terminal import ENTER, Start, edits_lines

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")]


def test_a_process_in_the_foreground_goes_on(start: Start) -> None:
    terminal = start("-c", "from dynatui.terminal.output import *; wait_for_foreground(0); print('went on')")
    terminal.wait_for("went on")
    assert terminal.end() == 0


def test_a_job_that_no_shell_can_hand_the_terminal_is_refused(start: Start) -> None:
    """Its shell has ended, so that the system no longer stops it."""
    waits = "from dynatui.terminal.output import *; wait_for_foreground(0)"
    command = f"set -m; {sys.executable} -c '{waits}' & exit"
    terminal = start("-c", f"import subprocess, time; subprocess.run(['sh', '-c', {command!r}]); time.sleep(60)")
    terminal.wait_for("the terminal belongs to another job")


CUT_OFF = f"""
import os
from pathlib import Path
from dynatui.terminal.guard import screen_only
with screen_only(Path(os.devnull)) as output:
    output.write({ENTER.decode()!r})
    output.restore()
"""


def test_a_screen_that_is_cut_off_restores_the_modes_of_the_foreground(start: Start) -> None:
    """And not those in which the shell edited its command line while the job started in the background."""
    terminal = start("-m", "tests.dynatui.one_job_shell", IN_BACKGROUND, "-c", CUT_OFF)
    terminal.wait_for(STOPPED)
    terminal.send("fg\n")
    assert terminal.end() == 0
    assert edits_lines(terminal)
