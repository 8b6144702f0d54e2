"""Passes of the usual sizes as torch.compile makes them: few large kernels, which a graph repeats as it repeats others.

The number of rows is fixed; how many slots there are and how many are read is not, so that a text that grows compiles
nothing anew. Whatever was not compiled beforehand is computed by plain calls: no round ever waits for a compiler. The
compiler captures no graphs of its own: those would not take a store that is written to, nor the thread we run in.
"""

from collections.abc import Callable, Collection
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoder.device import without_gradients
from decoder.errors import ConfigError
from decoder.forward.static.layers import NativeStatic
from decoder.forward.static.static_forward import StaticForward
from decoder.session.cuda_graph.slots import BEYOND, causal_bias, new_store
from decoder.session.cuda_graph.static_shapes import slots

Pass = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
Compile = Callable[[Pass], Pass]
MOST_COMPILED = 256
"""Sizes of all models together: a process may load many pairs, and the compiler's own limit is 8."""
LENGTHS: dict[int, Literal["default", "fail_on_recompile"]] = {100: "default", 400: "fail_on_recompile"}
"""Of texts in passes that are compiled: the second one, of another range of slots, must find the first one's pass."""


def by_torch(function: Pass) -> Pass:
    """What torch makes of it."""
    return torch.compile(function, fullgraph=True, dynamic=False)


def require_compilable(device: torch.device, *, exact: bool) -> None:
    """Refuses exact passes, and other devices, whose rounds have no passes of fixed shape.

    Raises:
        ConfigError: There is nothing to compile here.
    """
    if exact:
        raise ConfigError(
            "--compile has no effect beside --exact, whose passes are not compiled; leave out one of them"
        )
    if device.type != "cuda":
        raise ConfigError(f"--compile is for CUDA and this is {device}; leave it out, or give --device cuda")


class Compiled:
    """A forward whose passes of some sizes are compiled."""

    def __init__(self, plain: StaticForward, compile_pass: Compile) -> None:
        """Prepares a forward; nothing is compiled yet.

        Args:
            plain: Computes all other sizes.
            compile_pass: Makes one function of a pass.
        """
        self.plain = plain
        readable = plain.for_a_compiler() if isinstance(plain, NativeStatic) else plain
        self._pass = compile_pass(readable.computed)
        self._sizes: set[int] = set()

    def new_store(self, capacity: int) -> Float[Tensor, "L 2 H S D"]:
        """See `StaticForward`."""
        return self.plain.new_store(capacity)

    def rotation(self, store: Float[Tensor, "L 2 H S D"], positions: Int[Tensor, "N"]) -> Tensor:
        """See `StaticForward`."""
        return self.plain.rotation(store, positions)

    def computed(
        self,
        store: Float[Tensor, "L 2 H S D"],
        tokens: Int[Tensor, "N"],
        rotation: Tensor,
        slots: Int[Tensor, "N"],
        bias: Float[Tensor, "N M"],
    ) -> Float[Tensor, "N V"]:
        """See `StaticForward`."""
        if len(tokens) not in self._sizes:
            return self.plain.computed(store, tokens, rotation, slots, bias)
        # Should the compiler hold that this is another pass than the one it knows, it shall not stop a round for it.
        with torch.compiler.set_stance("eager_on_recompile"):
            return self._pass(store, tokens, rotation, slots, bias)

    def compile(self, sizes: Collection[int]) -> None:
        """Compiles passes of so many rows."""
        from torch import _dynamo as dynamo  # noqa: PLC0415 - takes a second, for those who compile

        limits: dict[str, Any] = dict.fromkeys(("recompile_limit", "accumulated_recompile_limit"), MOST_COMPILED)
        for rows in sorted(set(sizes) - self._sizes):
            for length, stance in LENGTHS.items():
                given = example(self, rows, length)
                dynamo.mark_dynamic(given[0], 3)
                dynamo.mark_dynamic(given[-1], 1)
                with without_gradients(), dynamo.config.patch(limits), torch.compiler.set_stance(stance):
                    self._pass(*given)
            self._sizes.add(rows)


def example(forward: StaticForward, rows: int, length: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """What a pass of so many rows is given in a slot whose text is so long."""
    store = new_store(forward, slots(length + rows) + BEYOND)
    with without_gradients():
        tokens, positions, places = (torch.arange(rows, device=store.device) for _ in range(3))
        rotation = forward.rotation(store, positions)
        return store, tokens, rotation, places + length, causal_bias(store, rows, length)
