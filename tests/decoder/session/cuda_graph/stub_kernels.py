"""Stand-ins for kernels: plain functions, so that triton is not needed, with made-up times."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from decoder.forward.families.native import NativeModel
from decoder.models.pair import Pair
from decoder.session.cuda_graph import kernel_trial, pass_comparison
from decoder.session.cuda_graph.operators import PLAIN, Operators
from decoder.session.cuda_graph.pass_comparison import Share
from decoder.session.cuda_graph.slots import GraphSlots
from decoder.tree_rules import Rules

LAYERS = ("attention of the target", "attention of the draft")


def exactly(share: float) -> Share:
    return Share(share, share, share)


def times(factor: float) -> Callable[[NativeModel], NativeModel]:
    """Kernels that multiply the rows of each layer by a factor."""
    return lambda form: form.with_layers(lambda layer: lambda *given: layer(*given) * factor)


def tried_kernels(pair: Pair, slots: GraphSlots, tried: Sequence[Rules | None]) -> Operators:
    """The operators after a trial of all kernels; the slots have them too."""
    for _ in kernel_trial.trial(pair, slots, tried, {}):
        pass
    return slots.operators


def by_rows(patch: pytest.MonkeyPatch, share_of: Callable[[int, int], float]) -> None:
    """Gives kernels of layers a share of the plain operators' time by numbers of rows and of the text's tokens."""

    def compared(_: Any, __: Any, sizes: Any, ___: Any, text: int) -> Share:
        return exactly(share_of(sizes[0], text))

    patch.setattr(kernel_trial, "compared", compared)


class Stubs:
    """Two kernels, of which `pack_tree` is faster and `keep_level` is not, and faster layers."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.tried: list[str] = []
        """Kernels whose times were measured."""
        self.kernels: dict[str, Callable[..., Any]] = {
            "pack_tree": lambda *given: PLAIN.pack_tree(*given),
            "keep_level": lambda *given, **named: PLAIN.keep_level(*given, **named),
        }
        right, shares = kernel_trial._in_rounds, {"pack_tree": exactly(0.5), "keep_level": exactly(1.5)}

        def noted(name: str, *given: Any) -> Any:
            self.tried.append(name)
            return right(name, *given)

        def in_layers(*_: Any) -> Share:
            self.tried.append("layers")
            return exactly(0.5)

        patch.setattr(kernel_trial, "kernels", lambda: self.kernels)
        patch.setattr(kernel_trial, "layer_kernels", lambda: {"attention": times(1)})
        patch.setattr(kernel_trial, "_in_rounds", noted)
        patch.setattr(pass_comparison, "relative_time", in_layers)
        patch.setattr(kernel_trial, "relative_time", lambda *_: shares[self.tried[-1]])

    def fail(self, name: str) -> None:
        """Lets a kernel fail from now on."""

        def fails(*_: Any, **__: Any) -> None:
            raise RuntimeError("out of memory")

        self.kernels[name] = fails
