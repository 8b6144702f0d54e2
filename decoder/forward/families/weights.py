"""Reads weights of Hugging Face modules: folds norms into the matrices behind them and packs these."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.forward.cpu.packed import HALF, Linear, Maker, pack

Layer = TypeVar("Layer")


def keep(_layer: Any) -> None:
    """Leaves a layer as it is."""


def empty(layer: Any) -> None:
    """Lets go of a layer's weights."""
    for weight in layer.parameters():
        weight.data = weight.new_empty(0)


@dataclass(frozen=True)
class Arithmetic:
    """How a model is read: the dtypes of its passes, and what becomes of its module."""

    rows: torch.dtype
    """Residual, norms, rotations, attention, keys and values."""
    weights: torch.dtype
    """Of matrices."""
    pack: Maker = pack
    """Lays a matrix out for where it is used."""
    done: Callable[[Any], None] = keep
    """Called with each layer of the module, once it was read."""

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
    def read(cls, linear: Any, dtype: torch.dtype, norm: Any = None) -> "Matrix":
        """A module's weights, with the affine part of the norm before it folded in."""
        weight = linear.weight.detach().to(dtype)
        bias = weight.new_zeros(weight.shape[0]) if linear.bias is None else linear.bias.detach().to(dtype)
        if norm is None:
            return cls(weight, bias)
        if getattr(norm, "bias", None) is not None:
            bias = bias + weight @ norm.bias.detach().to(dtype)
        return cls(weight * norm.weight.detach().to(dtype), bias)

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


def read_layers(layers: Iterable[Any], read: Callable[[Any], Layer], arithmetic: Arithmetic) -> list[Layer]:
    """All layers of a module, read one by one."""
    found = []
    for layer in layers:
        found.append(read(layer))
        arithmetic.done(layer)
    return found
