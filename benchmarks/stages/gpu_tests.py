"""Stages that run the tests marked `gpu`: graphs against plain calls, and rounds against the host's."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest

from benchmarks.stages.worker import Work

GRAPHS = "tests/decoder/session/cuda_graph/test_graphs.py"
SAMPLING = (
    "tests/decoder/sampling/test_on_device.py",
    "tests/decoder/verify/lossless/test_batched.py",
    "tests/decoder/session/test_independent.py",
)
PLAIN, WAITS = "plain_calls or plain_functions", "hidden or captured_while or waits"
OPTIONS = ("-o", "addopts=", "-W", "default", "-W", "ignore:Unknown config option", "-q", "-m", "gpu", "--maxfail=15")
"""Warnings are no errors, since nobody knows which harmless ones the libraries of another machine give."""


@dataclass(eq=False)
class Outcomes:
    """pytest plugin that counts the tests by their outcomes."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Counts a test when it has run, or has failed before or after that."""
        if report.failed:
            self.failed.append(f"{report.nodeid}: {str(report.longrepr).strip().splitlines()[-1][:200]}")
        elif report.when == "call" and report.passed:
            self.passed += 1


def run_tests(work: Work, selected: Sequence[str]) -> None:
    """Runs tests in this process.

    Raises:
        RuntimeError: A test has failed, or none was run.
    """
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    outcomes = Outcomes()
    pytest.main([*OPTIONS, *work.setting.test_options, *selected], [outcomes])
    work.note(f"{outcomes.passed} passed, {len(outcomes.failed)} failed", failed=outcomes.failed)
    if outcomes.failed or not outcomes.passed:
        raise RuntimeError(outcomes.failed[0] if outcomes.failed else "no test was run; see log.txt")


waits = partial(run_tests, selected=("-k", WAITS, GRAPHS))
calls = partial(run_tests, selected=("-k", PLAIN, GRAPHS))
rounds = partial(run_tests, selected=("-k", f"not ({WAITS} or {PLAIN} or compiled)", GRAPHS))
sampled = partial(run_tests, selected=SAMPLING)
compiled = partial(run_tests, selected=("-k", "compiled", GRAPHS))
