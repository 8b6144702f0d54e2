"""Triton kernels in tests without a GPU: run by Triton's interpreter, and compiled for given architectures.

Imported only where Triton is installed. Triton itself chooses one of the two for a whole process.
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import interpreter
from triton.runtime.jit import JITFunction, mangle_type

SHARED_LIMITS = {80: 163 << 10, 90: 227 << 10, 100: 227 << 10}
"""Largest shared memory of a block in bytes by compute capability (CUDA C++ Programming Guide, technical
specifications): A100; H100 and H200; B200."""


def tree_mask(text: int, seen: Tensor, slots: int, dtype: torch.dtype) -> Tensor:
    """Attention bias of rows over `slots` slots: rows see the text's slots, and those after it that `seen` marks."""
    visible = torch.zeros((len(seen), slots), dtype=torch.bool)
    visible[:, : max(1, text)] = True
    visible[:, text : text + seen.shape[1]] |= seen
    return torch.zeros(visible.shape, dtype=dtype).masked_fill_(~visible, torch.finfo(dtype).min)


@contextmanager
def interpreted() -> Iterator[None]:
    """Kernels launched in this context, and the functions that they call, are run by the interpreter.

    Its bfloat16 products are wrong: they multiply the numbers' bits.
    """
    made: dict[Any, Any] = {}

    def of(function: Any) -> Any:
        if function.fn not in made:
            module = sys.modules[function.fn.__module__]
            for name, value in list(vars(module).items()):
                if isinstance(value, tl.constexpr):
                    as_numbers.enter_context(patch.object(module, name, value.value))
            made[function.fn] = interpreter.InterpretedFunction(function.fn)
        return made[function.fn]

    def run(function: Any, *args: Any, **kwargs: Any) -> Any:
        return of(function).run(*args, **kwargs)

    def call(function: Any, *args: Any, **kwargs: Any) -> Any:
        return of(function).rewrite()(*args, **kwargs)

    # A launch patches only the modules that its kernel names, not those of Triton's own functions, such as `max`.
    scope = interpreter._patch_lang(tl.max.fn)
    try:
        # As on a device, an overflow gives an infinity without a warning.
        with (
            ExitStack() as as_numbers,
            np.errstate(over="ignore"),
            patch.object(JITFunction, "run", run),
            patch.object(JITFunction, "__call__", call),
            patch.object(interpreter, "_patch_lang_tensor", _patched_tensor),
        ):
            yield
    finally:
        scope.restore()


_patch_lang_tensor = interpreter._patch_lang_tensor


def _patched_tensor(tensor: Any, scope: Any) -> None:
    """The interpreter's own patch; in addition a number in an array of one element can be an index, which NumPy 2.4
    refuses to Triton 3.6.
    """
    _patch_lang_tensor(tensor, scope)
    tensor.__index__ = lambda number: number.handle.data.item()


@contextmanager
def loads_of(tensor: Tensor) -> Iterator[list[int]]:
    """For each load of interpreted kernels in this context: how many of the tensor's numbers it reads, if any."""
    sizes: list[int] = []
    first, last = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
    load = interpreter.InterpreterBuilder.create_masked_load

    def counted(builder: Any, addresses: Any, mask: Any, *others: Any) -> Any:
        if size := int((mask.data & (first <= addresses.data) & (addresses.data < last)).sum()):
            sizes.append(size)
        return load(builder, addresses, mask, *others)

    with patch.object(interpreter.InterpreterBuilder, "create_masked_load", counted):
        yield sizes


@dataclass(frozen=True)
class Figures:
    """What one thread or block of a compiled kernel needs."""

    registers: int
    stack: int
    """Bytes of a thread's local memory; it holds spilled registers."""
    shared: int
    """Bytes of a block's shared memory."""


@dataclass(frozen=True)
class Launch:
    kernel: Any
    arguments: Mapping[str, Any]
    """All arguments by name."""
    options: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The kernel's file and function."""
        return f"{self.kernel.fn.__module__.rpartition('.')[2]}.{self.kernel.fn.__name__}"

    def compiled(self, capability: int) -> Any:
        """The kernel compiled for a compute capability as the launch would on such a device: dtypes, numbers that are
        1, and numbers and addresses that 16 divides are known, unless the kernel does not specialise for them.
        """
        signature: dict[str, str] = {}
        divisible = []
        for place, parameter in enumerate(self.kernel.params):
            given = self.arguments[parameter.name]
            general = parameter.do_not_specialize
            known = parameter.is_constexpr or (isinstance(given, int) and given == 1 and not general)
            signature[parameter.name] = "constexpr" if known else mangle_type(given)
            if not known and not general and (given.data_ptr() if hasattr(given, "data_ptr") else given) % 16 == 0:
                divisible.append(place)
        constants = {name: self.arguments[name] for name, kind in signature.items() if kind == "constexpr"}
        attributes = {(place,): [["tt.divisibility", 16]] for place in divisible}
        source = ASTSource(self.kernel, signature, constants, attributes)
        return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=dict(self.options))

    def figures(self, capability: int) -> Figures:
        made = self.compiled(capability)
        with TemporaryDirectory() as folder:
            binary = Path(folder, "kernel.cubin")
            binary.write_bytes(made.asm["cubin"])
            tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
            told = subprocess.run([tool, "--dump-resource-usage", binary], capture_output=True, text=True, check=True)
        found = re.search(r"REG:(\d+) STACK:(\d+)", told.stdout)
        assert found, told.stdout
        return Figures(int(found[1]), int(found[2]), made.metadata.shared)


@contextmanager
def recorded() -> Iterator[list[Launch]]:
    """Kernels launched in this context are not run; the list has their launches."""
    launches: list[Launch] = []

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        del grid, warmup
        options = {name: value for name, value in kwargs.items() if name not in kernel.arg_names}
        launches.append(Launch(kernel, kernel.signature.bind(*args, **_without(kwargs, options)).arguments, options))

    with patch.object(JITFunction, "run", run):
        yield launches


def _without(values: Mapping[str, Any], left_out: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in left_out}
