"""Stages that run the tests marked `gpu`: graphs against plain calls, and rounds against the host's."""

import os
from dataclasses import dataclass, field

import pytest

from benchmarks.stages.worker import Work

GRAPHS = "tests/decoder/session/cuda_graph/test_graphs.py"
SAMPLED_GRAPHS = "tests/decoder/session/cuda_graph/test_graph_sampling.py"
SAMPLING = (
    "tests/decoder/sampling/test_on_device.py",
    "tests/decoder/verify/lossless/test_batched.py",
    "tests/decoder/session/test_independent.py",
)
PLAIN = "plain_calls or plain_functions"
WAITS = "hidden or captured_while or waits"
OPTIONS = ("-o", "addopts=", "-W", "default", "-W", "ignore:Unknown config option", "-q", "-m", "gpu", "--maxfail=15")
"""Warnings are no errors, since nobody knows which harmless ones the libraries of another machine give."""


def waits(work: Work) -> None:
    """Graphs never make the host wait."""
    run_tests(work, "-k", WAITS, GRAPHS, SAMPLED_GRAPHS)


def calls(work: Work) -> None:
    """Graphs and kernels compute the same as plain calls."""
    run_tests(work, "-k", PLAIN, GRAPHS)


def rounds(work: Work) -> None:
    """Graphs and the host compute the same rounds."""
    run_tests(work, "-k", f"not ({WAITS} or {PLAIN} or compiled)", GRAPHS)


def sampled(work: Work) -> None:
    """Graphs and the host compute the same sampled rounds."""
    run_tests(work, "-k", f"not ({WAITS})", SAMPLED_GRAPHS, *SAMPLING)


def compiled(work: Work) -> None:
    """Graphs also capture compiled passes."""
    run_tests(work, "-k", "compiled", GRAPHS)


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


def run_tests(work: Work, *selected: str) -> None:
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
