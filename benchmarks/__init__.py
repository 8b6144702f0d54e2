"""Benchmarks of dynatui itself; each module is a program that is run on its own."""

import sys


def say(line: str) -> None:
    """Prints a progress line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
