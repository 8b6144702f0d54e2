"""Triton kernels in tests without a GPU: run by Triton's interpreter, and compiled for given architectures.

Imported only where Triton is installed. Triton itself chooses one of the two for a whole process.
"""

import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import interpreter
from triton.runtime.jit import JITFunction

SHARED_LIMITS = {80: 163 << 10, 90: 227 << 10, 100: 227 << 10}
"""Largest shared memory of a block in bytes by compute capability (CUDA C++ Programming Guide, technical
specifications)."""


@contextmanager
def interpreted() -> Iterator[None]:
    """Kernels launched in this context, and the functions that they call, are run by the interpreter.

    Its bfloat16 products are wrong: they multiply the numbers' bits.
    """
    made: dict[Any, Any] = {}

    def of(function: Any) -> Any:
        return made.setdefault(function.fn, interpreter.InterpretedFunction(function.fn))

    def run(function: Any, *args: Any, **kwargs: Any) -> Any:
        return of(function).run(*args, **kwargs)

    def call(function: Any, *args: Any, **kwargs: Any) -> Any:
        return of(function).rewrite()(*args, **kwargs)

    # A launch patches only the modules that its kernel names, not those of Triton's own functions, such as `max`.
    scope = interpreter._patch_lang(tl.max.fn)
    try:
        with patch.object(JITFunction, "run", run), patch.object(JITFunction, "__call__", call):
            yield
    finally:
        scope.restore()


@dataclass(frozen=True)
class Figures:
    """What one thread or block of a compiled kernel needs."""

    registers: int
    """Registers of a thread."""
    stack: int
    """Bytes of a thread's local memory; it holds spilled registers."""
    shared: int
    """Bytes of a block's shared memory."""


def compiled(
    kernel: Any, types: Mapping[str, str], constants: Mapping[str, Any], capability: int, folder: Path, **options: int
) -> Figures:
    """Compiles a kernel for a compute capability; `types` are the types of the arguments that are not constants.

    Pointers and strides are taken to be multiples of 16, as a launch finds them.
    """
    aligned = [(place,) for place, name in enumerate(kernel.arg_names) if aligned_by_16(name, types.get(name, ""))]
    source = ASTSource(
        fn=kernel,
        signature={name: types.get(name, "constexpr") for name in kernel.arg_names},
        constexprs=dict(constants),
        attrs={place: [["tt.divisibility", 16]] for place in aligned},
    )
    with triton.knobs.cache.scope():
        triton.knobs.cache.dir = str(folder)
        result = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={**options, "enable_fp_fusion": True})
    binary = folder / f"{kernel.__name__}.cubin"
    binary.write_bytes(result.asm["cubin"])
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    told = subprocess.run([tool, "--dump-resource-usage", binary], capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", told)
    assert found, told
    return Figures(int(found[1]), int(found[2]), result.metadata.shared)


def aligned_by_16(name: str, kind: str) -> bool:
    """Whether an argument is taken to be a multiple of 16."""
    return kind.startswith("*") or name.endswith("stride")
