"""The program lets torch's idle threads spin only briefly, unless the user decides otherwise."""

import os
import subprocess
import sys

import pytest

from decoder.system.openmp import SPIN_COUNT, VARIABLE, spin_briefly, waiting_words
from dynatui import __main__ as program


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither variable is set, and the test's values do not stay."""
    monkeypatch.setenv(VARIABLE, "")
    for name in (VARIABLE, "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)


def test_threads_spin_briefly_by_default() -> None:
    spin_briefly()
    assert os.environ[VARIABLE] == str(SPIN_COUNT)


@pytest.mark.parametrize("name", [VARIABLE, "OMP_WAIT_POLICY"])
def test_a_value_of_the_user_stays(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "7")
    before = dict(os.environ)
    spin_briefly()
    assert dict(os.environ) == before


def test_the_program_sets_it_before_anything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str | None] = []

    def run() -> int:
        found.append(os.environ.get(VARIABLE))
        return 0

    monkeypatch.setattr(program, "_run", run)
    assert program.main() == 0
    assert found == [str(SPIN_COUNT)]


@pytest.mark.parametrize(
    ("name", "words"),
    [(VARIABLE, "GOMP_SPINCOUNT=7"), ("OMP_WAIT_POLICY", "OMP_WAIT_POLICY=7"), ("X", "GOMP_SPINCOUNT is not set")],
)
def test_the_report_names_the_variable_in_force(monkeypatch: pytest.MonkeyPatch, name: str, words: str) -> None:
    monkeypatch.setenv(name, "7")
    assert waiting_words().endswith(words)


@pytest.mark.skipif(sys.platform != "linux", reason="torch has GNU's OpenMP only on Linux")
def test_torch_reads_the_value_that_the_process_has_set_itself() -> None:
    code = "from decoder.system.openmp import spin_briefly; spin_briefly(); import torch"
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "OMP_DISPLAY_ENV": "VERBOSE"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert f"GOMP_SPINCOUNT = '{SPIN_COUNT}'" in told.stderr
