"""Mutation testing: applies each fault of faults.toml to a copy of the tree and expects that the named test fails. A
fault in a C file rebuilds the copy's library.

Every test must first pass on the unchanged copy, so that only the fault can make it fail. An argument that is part of a
path (`decoder/verify`) selects the faults of the matching files; without arguments all faults are tried. The exit code
is 1 unless every fault is killed.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FAULTS = Path(__file__).with_name("faults.toml")
COPIED = ("benchmarks", "decoder", "docs", "dynatui", "man", "screenshots", "tests", "pyproject.toml", "README.md")
REBUILD = """
import hatch_build, pathlib, sys
hatch_build.build(pathlib.Path(sys.argv[1]), hatch_build.chosen_platform())
"""
LIMIT_S = 600
"""Time limit of a test; a fault that makes its test exceed the limit counts as killed."""
PASSED, FAILED = 0, 1
"""Exit codes of pytest; other codes mean that a test was not found or did not run."""


@dataclass(frozen=True)
class Fault:
    """One deliberate mistake in one file."""

    file: str
    """Path from the root."""
    old: str
    """Text that `new` replaces; it occurs exactly once in the file."""
    new: str
    test: str
    """Node id of the test that must fail, without its parameters."""

    def stale(self, root: Path) -> str:
        """Why the fault can no longer be applied; empty if it can."""
        path = root / self.file
        if not path.is_file():
            return "the file is gone"
        times = path.read_text(encoding="utf-8").count(self.old)
        return "" if times == 1 else f"its text occurs {times} times: {self.old}"


def faults() -> list[Fault]:
    """All faults, in the order of the file."""
    return [Fault(**each) for each in tomllib.loads(FAULTS.read_text(encoding="utf-8"))["fault"]]


def copied(folder: Path) -> Path:
    """Copies the parts of the tree that tests need, and returns `folder`."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, folder / name)
    return folder


def outcome(root: Path, *tests: str) -> int:
    """Pytest's exit code for some tests; FAILED if they exceed the time limit."""
    command = [sys.executable, "-m", "pytest", "-n0", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        return subprocess.run(command, cwd=root, capture_output=True, check=False, timeout=LIMIT_S).returncode
    except subprocess.TimeoutExpired:
        return FAILED


def rebuild(changed: Path) -> None:
    if changed.suffix == ".c":
        subprocess.run([sys.executable, "-c", REBUILD, str(changed.parent)], cwd=ROOT, check=True)


def killed(root: Path, fault: Fault) -> str:
    """Applies a fault, runs its test and returns the result in words."""
    path = root / fault.file
    right, times = path.read_text(encoding="utf-8"), path.stat()
    path.write_text(right.replace(fault.old, fault.new), encoding="utf-8")
    try:
        rebuild(path)
        code = outcome(root, fault.test)
    finally:
        path.write_text(right, encoding="utf-8")
        rebuild(path)
        os.utime(path, (times.st_atime, times.st_mtime))  # so that the fault's bytecode is not reused
    return {FAILED: "killed", PASSED: "SURVIVED"}.get(code, f"the test did not run: pytest ended with {code}")


def judged(root: Path, fault: Fault) -> str:
    """Result of one fault in words; checks first that it can be applied and that its test passes without it."""
    if reason := fault.stale(root):
        return reason
    code = outcome(root, fault.test)
    return (
        killed(root, fault) if code == PASSED else f"the test does not pass without the fault: pytest ended with {code}"
    )


def main(parts: list[str]) -> int:
    """Prints one line per fault with its result; returns the exit code."""
    chosen = [fault for fault in faults() if not parts or any(part in fault.file for part in parts)]
    with tempfile.TemporaryDirectory() as folder:
        root, left = copied(Path(folder)), 0
        for fault in chosen:
            told = judged(root, fault)
            left += told != "killed"
            print(f"{fault.file}: {told}", flush=True)  # noqa: T201 - a program of its own
    print(f"{len(chosen) - left} of {len(chosen)} faults killed")  # noqa: T201 - the same
    return 1 if left or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
