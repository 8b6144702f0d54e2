"""Compiles the launches of kernels for GPUs that are not there, and reads the figures of the compiled code.

A launch is compiled as Triton compiles it at its first run: dtypes, sizes of 1, and numbers that 16 divides are known.
"""

import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from tests.decoder.session.cuda_graph.kernels.interpreted import REASON, jit

triton = pytest.importorskip("triton", reason=REASON)
compiler = pytest.importorskip("triton.compiler", reason=REASON)
backends = pytest.importorskip("triton.backends.compiler", reason=REASON)

ARCHITECTURES = (80, 90, 100)
"""Compute capabilities of A100, of H100 and H200, and of B200."""
TYPES = {
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.uint8: "u8",
}
DIVISIBLE = [["tt.divisibility", 16]]
_CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


@dataclass(frozen=True)
class Figures:
    """Resources of one compiled kernel."""

    registers: int
    """Registers of each thread."""
    stack: int
    """Bytes of each thread's stack; registers spill there."""
    shared: int
    """Bytes of shared memory of each block."""


@dataclass(frozen=True)
class Launch:
    """A kernel with the arguments of one launch."""

    kernel: Any
    arguments: Mapping[str, Any]
    options: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The kernel's file and function."""
        return f"{self.kernel.fn.__module__.rpartition('.')[2]}.{self.kernel.fn.__name__}"

    def compiled(self, architecture: int) -> Any:
        """The compiled kernel."""
        constants = {param.name for param in self.kernel.params if param.is_constexpr}
        known = {name: value for name, value in self.arguments.items() if name in constants or _is_one(value)}
        signature = {name: "constexpr" if name in known else _type(value) for name, value in self.arguments.items()}
        attributes = {
            (place,): DIVISIBLE
            for place, (name, value) in enumerate(self.arguments.items())
            if name not in known and (value.data_ptr() if isinstance(value, Tensor) else value) % 16 == 0
        }
        source = compiler.ASTSource(fn=self.kernel, signature=signature, constexprs=known, attrs=attributes)
        return triton.compile(source, target=backends.GPUTarget("cuda", architecture, 32), options=dict(self.options))

    def figures(self, architecture: int) -> Figures:
        """Resources of the kernel on GPUs of a compute capability."""
        kernel = self.compiled(architecture)
        with TemporaryDirectory() as folder:
            path = Path(folder, "kernel.cubin")
            path.write_bytes(kernel.asm["cubin"])
            usage = subprocess.run(
                [_CUOBJDUMP, "--dump-resource-usage", path], capture_output=True, text=True, check=True
            ).stdout
        (registers, stack), *_ = re.findall(r"REG:(\d+) STACK:(\d+)", usage)
        return Figures(int(registers), int(stack), kernel.metadata.shared)


def _is_one(value: Any) -> bool:
    return isinstance(value, int) and value == 1


def _type(value: Any) -> str:
    return f"*{TYPES[value.dtype]}" if isinstance(value, Tensor) else "i32"


@dataclass(frozen=True)
class _Recorder:
    kernel: Any
    launches: list[Launch]

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*arguments: Any, **options: Any) -> None:
            names = (param.name for param in self.kernel.params)
            self.launches.append(Launch(self.kernel, dict(zip(names, arguments, strict=True)), options))

        return launch


@contextmanager
def recorded(*modules: ModuleType) -> Iterator[list[Launch]]:
    """Records the launches of these modules' kernels, which do not run."""
    launches: list[Launch] = []
    with ExitStack() as stack:
        for module in modules:
            for name, value in list(vars(module).items()):
                if isinstance(value, jit.JITFunction):
                    stack.enter_context(patch.object(module, name, _Recorder(value, launches)))
        yield launches
