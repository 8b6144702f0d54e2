"""Runs kernels on a CPU with Triton's interpreter, beside compiled kernels in one process.

TRITON_INTERPRET decides at the import of triton whether all kernels are interpreted, so it cannot be used here. Test
modules that import this module are skipped without triton.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

REASON = "triton is not installed; it exists for Linux only: pip install triton"
tl = pytest.importorskip("triton.language", reason=REASON)
interpreter = pytest.importorskip("triton.runtime.interpreter", reason=REASON)
jit = pytest.importorskip("triton.runtime.jit", reason=REASON)
FOLDER = "decoder.session.cuda_graph.kernels"
best_tokens, keep_level, pack_tree, verify_tree = MODULES = tuple(
    pytest.importorskip(f"{FOLDER}.{name}", reason=REASON)
    for name in ("best_tokens", "keep_level", "pack_tree", "verify_tree")
)

jit.mangle_type(0)  # at its first call, this imports modules that need compiled functions


class _Interpreted:
    """A kernel, or a function that kernels call; for the latter, the language is the interpreter's already."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self._interpreted = interpreter.InterpretedFunction(fn)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        launch: Callable[..., None] = self._interpreted[grid]
        return launch

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._interpreted.rewrite()(*args, **kwargs)


@contextmanager
def interpreted() -> Iterator[None]:
    """Interprets all kernels, and Triton's own functions that kernels call."""
    scope = interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    try:
        with ExitStack() as stack:
            for module in (tl, tl.standard, *MODULES):
                for name, value in list(vars(module).items()):
                    if isinstance(value, jit.JITFunction):
                        stack.enter_context(patch.object(module, name, _Interpreted(value.fn)))
                    elif isinstance(value, tl.constexpr):
                        stack.enter_context(patch.object(module, name, value.value))
            yield
    finally:
        scope.restore()
