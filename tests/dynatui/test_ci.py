"""Tests of continuous integration: bash understands its script, and hooks and workflows run the same checks."""

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".ci" / "run"
STEPS = re.findall(r'^ *step "(\.venv/bin/.*?)"', SCRIPT.read_text(encoding="utf-8"), re.MULTILINE)
"""Commands of the virtual environment that the script runs, besides the README's test command."""
CHECKS = [step for step in STEPS if "pytest" not in step]


def values(file: str, key: str) -> list[str]:
    text = (ROOT / file).read_text(encoding="utf-8")
    return [value.strip('"') for value in re.findall(rf"^[ -]*{key}: (.*)$", text, re.MULTILINE)]


def test_the_script_can_be_started_and_stops_at_the_first_failure() -> None:
    assert os.access(SCRIPT, os.X_OK)
    subprocess.run(["bash", "-n", str(SCRIPT)], check=True)
    assert "set -euo pipefail" in SCRIPT.read_text(encoding="utf-8")


def test_the_script_lints_formats_checks_types_and_ends_with_the_tests() -> None:
    assert [step.split()[0] for step in CHECKS] == [".venv/bin/ruff", ".venv/bin/ruff", ".venv/bin/mypy"]
    steps = [line for line in SCRIPT.read_text(encoding="utf-8").splitlines() if line.startswith("step ")]
    assert (steps[0], *steps[-2:]) == (
        'step "${command% && *}"',
        'step "${command##* && }"',
        'step ".venv/bin/pytest -m slow"',
    )


def test_hooks_and_hosted_integration_run_the_same_with_the_python_of_the_test_command() -> None:
    assert values(".pre-commit-config.yaml", "entry") == CHECKS
    assert set(values(".pre-commit-config.yaml", "language")) == {"system"}
    assert values(".github/workflows/ci.yml", "run") == [".ci/run"]
    (version,) = values(".github/workflows/ci.yml", "python-version")
    assert f"\npython{version} -m venv" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_contributors_are_told_the_steps_of_the_script() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [step for step in STEPS if not re.search(rf"^{re.escape(step)}(?= |$)", guide, re.MULTILINE)] == []
