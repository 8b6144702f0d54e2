"""Reads weights of Hugging Face modules: folds norms into the matrices behind them and packs these."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.lean.packed import HALF, Linear, Maker, pack


@dataclass(frozen=True)
class Arithmetic:
    """The dtypes of a forward pass."""

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
