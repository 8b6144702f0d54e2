"""Runs a program on the fake CUDA device.

    python -m tests.fake_cuda.run -m MODULE ...
    python -m tests.fake_cuda.run -c CODE ...
    python -m tests.fake_cuda.run FILE ...

The arguments are those of the Python interpreter. The program also finds a command `nvidia-smi`, and measures the copy
bandwidth of the device, which means nothing, by a single copy.
"""

import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

from dynatui.lab.bench import machine
from tests.fake_cuda.driver import fake_cuda


def main(arguments: Sequence[str]) -> None:
    """Runs the program that the interpreter's arguments name."""
    first, *rest = arguments
    os.environ["PATH"] = f"{Path(__file__).with_name('bin')}{os.pathsep}{os.environ['PATH']}"
    with fake_cuda(), patch.multiple(machine, COPIES=1, SERIES=1):
        if first == "-m":
            sys.argv = rest
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        elif first == "-c":
            sys.argv = [first, *rest[1:]]
            exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - as `python -c` does
        else:
            sys.argv = [first, *rest]
            runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
