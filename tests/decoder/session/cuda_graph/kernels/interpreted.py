"""Runs kernels on a CPU with Triton's interpreter, beside the compiled kernels in one process.

TRITON_INTERPRET decides at the import of triton whether all kernels are interpreted, so it cannot be used here.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.jit import JITFunction, mangle_type

mangle_type(0)  # imports what expects the compiler's functions


class _Part(interpreter.InterpretedFunction):  # type: ignore[misc]  # triton has no types
    """A function that kernels call; the language is already the interpreter's."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.rewrite()(*args, **kwargs)


@contextmanager
def interpreted(*modules: ModuleType) -> Iterator[None]:
    """Interprets all kernels of these modules, and Triton's own functions that kernels call."""
    scope = interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    try:
        with ExitStack() as stack:
            for module in (tl, tl.standard, *modules):
                for name, value in list(vars(module).items()):
                    if isinstance(value, JITFunction):
                        stack.enter_context(patch.object(module, name, _Part(value.fn)))
                    elif isinstance(value, tl.constexpr):
                        stack.enter_context(patch.object(module, name, value.value))
            yield
    finally:
        scope.restore()
