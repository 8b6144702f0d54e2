"""The script of continuous integration is a program that bash understands."""

import os
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / ".ci" / "run"


def test_the_script_can_be_started() -> None:
    assert os.access(SCRIPT, os.X_OK)
    subprocess.run(["bash", "-n", str(SCRIPT)], check=True)


def test_the_script_stops_at_the_first_failure() -> None:
    assert "set -euo pipefail" in SCRIPT.read_text(encoding="utf-8")
