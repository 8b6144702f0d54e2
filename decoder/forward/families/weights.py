"""Reads weights by their names: folds norms into the matrices behind them and packs these."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.forward.cpu.packed import HALF, Linear, Maker, pack
from decoder.forward.families.architecture import Architecture

Layer = TypeVar("Layer")
Shapes = Mapping[str, tuple[int, ...]]
"""Of weights, by their names."""


def keep(_layer: str) -> None:
    """Leaves a layer as it is."""


@dataclass(frozen=True)
class Source:
    """Where a model's weights are; all in one dtype and on one device."""

    architecture: Architecture
    weights: Mapping[str, Tensor]
    """By their names in Hugging Face's module; each lookup may read a file."""
    frequencies: Float[Tensor, "R"]
    """See `Architecture.frequencies`; on the weights' device."""
    done: Callable[[str], None] = keep
    """Called with the name of each layer, once it was read."""

    def layers(self, prefix: str, read: Callable[[str], Layer]) -> list[Layer]:
        """All layers, read one by one by their names."""
        found = []
        for number in range(self.architecture.num_hidden_layers):
            found.append(read(f"{prefix}.{number}"))
            self.done(f"{prefix}.{number}")
        return found


@dataclass(frozen=True)
class Arithmetic:
    """How a model is read: the dtypes of its passes, and the layout of its matrices."""

    rows: torch.dtype
    """Residual, norms, rotations, attention, keys and values."""
    weights: torch.dtype
    """Of matrices."""
    pack: Maker = pack
    """Lays a matrix out for where it is used."""

    @classmethod
    def of(cls, dtype: torch.dtype) -> "Arithmetic":
        """How a model of this dtype is computed: half precision keeps to the weights, which is where its speed is."""
        return cls(torch.float32 if dtype in HALF else dtype, dtype)


@dataclass(frozen=True)
class Matrix:
    """A linear layer before it is packed, in the rows' dtype."""

    weight: Float[Tensor, "Y X"]
    bias: Float[Tensor, "Y"]

    @classmethod
    def read(cls, weights: Mapping[str, Tensor], name: str, dtype: torch.dtype, norm: str | None = None) -> "Matrix":
        """A linear layer's weights, with the affine part of the norm before it folded in."""

        def found(part: str) -> Tensor | None:
            held = weights.get(part)
            return None if held is None else held.detach().to(dtype)

        weight, bias = weights[f"{name}.weight"].detach().to(dtype), found(f"{name}.bias")
        bias = weight.new_zeros(len(weight)) if bias is None else bias
        if norm is None:
            return cls(weight, bias)
        if (shift := found(f"{norm}.bias")) is not None:
            bias = bias + weight @ shift
        return cls(weight * weights[f"{norm}.weight"].detach().to(dtype), bias)

    def scaled(self, factor: float) -> "Matrix":
        """Products times a factor."""
        return Matrix(self.weight * factor, self.bias * factor)

    def ordered(self, order: Tensor) -> "Matrix":
        """Products in another order."""
        return Matrix(self.weight[order], self.bias[order])

    def packed(self, arithmetic: Arithmetic) -> Linear:
        """The layer as it is used."""
        return arithmetic.pack(self.weight, self.bias if bool(self.bias.any()) else None, arithmetic.weights)


def stacked(*parts: Matrix) -> Matrix:
    """One product whose columns are those of all parts."""
    return Matrix(torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts]))


def summed(*parts: Matrix) -> Matrix:
    """One product of the parts' inputs side by side that is the sum of their products."""
    bias = torch.stack([part.bias for part in parts]).sum(0)
    return Matrix(torch.cat([part.weight for part in parts], 1), bias)
