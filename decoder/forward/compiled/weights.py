"""Weights of a native family in the layout of the compiled library.

A matrix is stored as panels of a few outputs each; in a panel, the weights of one input are adjacent. The dtype is the
narrowest that represents all weights exactly, so that a bfloat16 checkpoint gives the logits of float32 arithmetic with
half the memory. Norms are not folded into the matrices, since rounding would change folded weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.forward.compiled.huge_pages import Pool
from decoder.forward.compiled.library import NUMBERS, LayerStruct, MatrixStruct, ModelStruct, NormStruct, PassLibrary
from decoder.forward.compiled.model import CompiledModel, padded
from decoder.forward.families.architecture import ModelWeights
from decoder.forward.families.model import Heads, Rotation
from decoder.forward.families.registry import FAMILIES, NORMS, heads_of
from decoder.forward.layer_kinds import windows_of

ACTIVATIONS = {"none": 2, "tanh": 3, None: 4}
"""Numbers of activations in `passes.c`, by torch's name for the kind of GELU; None stands for SiLU."""
Affine = tuple[Tensor, Tensor | None]


@dataclass
class Packing:
    source: ModelWeights
    columns: int
    """Number of outputs of a panel."""
    lanes: int
    """Number of outputs of a SIMD vector."""
    held: list[object] = field(default_factory=list)
    """Objects that own the memory at all addresses that `address` has returned."""
    pool: Pool = field(default_factory=Pool)
    """Memory of the matrices."""
    weights: int = 0
    """Number of weights of all matrices so far."""
    weight_bytes: int = 0
    """Size of all matrices so far in bytes, without padding."""

    def address(self, tensor: Tensor) -> int:
        """Address of a tensor, which `held` keeps in memory from now on."""
        self.held.append(tensor)
        return tensor.data_ptr()

    def affine(self, name: str) -> Affine:
        bias = self.source.weights.get(f"{name}.bias")
        return self.source.weights[f"{name}.weight"].detach(), None if bias is None else bias.detach()

    def norm(self, name: str) -> NormStruct:
        weight, bias = self.affine(name)
        return NormStruct(self.address(weight.float()), None if bias is None else self.address(bias.float()))

    def matrix(self, parts: Sequence[Affine], *, alternating: bool = False) -> MatrixStruct:
        """One linear layer with the outputs of all parts in succession, or with alternating panels of the parts."""
        pairs = [(weight, weight.new_zeros(len(weight)) if bias is None else bias) for weight, bias in parts]
        if len(pairs) > 1 and not alternating:
            pairs = [(torch.cat([weight for weight, _ in pairs]), torch.cat([bias for _, bias in pairs]))]
        panels = [_panels(weight, self.columns) for weight, _ in pairs]
        weights = narrowed(torch.stack(panels, 1).flatten(0, 1) if len(panels) > 1 else panels[0])
        if weights.dtype is torch.bfloat16:
            # Each two vectors are interleaved lane by lane; see `load_weights` in `passes.c`.
            weights = weights.unflatten(-1, (-1, 2, self.lanes)).transpose(-1, -2).reshape(weights.shape)
        biases = [_filled(bias, self.columns).float().view(-1, self.columns) for _, bias in pairs]
        bias = torch.stack(biases, 1).flatten()
        count = sum(weight.numel() for weight, _ in pairs)
        self.weights, self.weight_bytes = self.weights + count, self.weight_bytes + count * weights.itemsize
        number = NUMBERS[weights.dtype]
        return MatrixStruct(
            self.address(self.pool.copied(weights)), self.address(bias), weights.shape[1], len(weights), number
        )


def compiled_model(source: ModelWeights, library: PassLibrary) -> CompiledModel:
    """Makes a compiled model; its weights, of at most 32 bits each, are read layer by layer."""
    arch, family = source.architecture, FAMILIES[source.architecture.model_type]
    packing = Packing(source, library.columns, library.lanes)
    rotation, windows = Rotation(source.frequencies, torch.float32), windows_of(arch)
    heads = heads_of(arch, rotation)

    def layer(at: str) -> LayerStruct:
        inward = [packing.affine(f"{at}.{name}") for name in family.inward]
        head_norms = zip(("query_norm", "key_norm"), family.head_norms, strict=False)
        return LayerStruct(
            **{field: packing.norm(f"{at}.{name}") for field, name in head_norms},
            attention_norm=packing.norm(f"{at}.{NORMS[0]}"),
            mlp_norm=packing.norm(f"{at}.{NORMS[1]}"),
            inward=packing.matrix(inward if len(inward) > 1 else [_by_part(inward[0], heads)]),
            outward=packing.matrix([packing.affine(f"{at}.{family.outward}")]),
            up=packing.matrix([packing.affine(f"{at}.{name}") for name in family.up], alternating=len(family.up) > 1),
            down=packing.matrix([packing.affine(f"{at}.{family.down}")]),
        )

    layers = source.layers(f"{family.body}.layers", layer)
    for each, kind in zip(layers, windows.layers, strict=True):
        each.window = windows.sizes.get(kind, 0)
    array = (LayerStruct * len(layers))(*layers)
    embedding = source.weights[f"{family.embedding}.weight"].detach().contiguous()
    described = ModelStruct(
        layer_count=len(layers),
        width=arch.hidden_size,
        inner=arch.intermediate_size,
        heads=heads.heads,
        groups=heads.groups,
        head=heads.width,
        rotated=heads.rotated,
        parallel=arch.use_parallel_residual,
        gated=len(family.up) > 1,
        activation=ACTIVATIONS[family.activations[arch.hidden_act].approximate],
        vocabulary=arch.vocab_size,
        embedding_number=NUMBERS[embedding.dtype],
        epsilon=arch.norm_eps,
        scale=heads.width**-0.5,
        embedding=packing.address(embedding),
        layers=array,
        last_norm=packing.norm(family.last_norm),
        output=packing.matrix([packing.affine("lm_head")]),
    )
    held = (*packing.held, array)
    return CompiledModel(
        library=library,
        embedding=embedding,
        rotation=rotation,
        heads=heads,
        windows=windows,
        layers=len(layers),
        inner=arch.intermediate_size,
        described=described,
        held=held,
        weights=packing.weights,
        weight_bytes=packing.weight_bytes,
    )


def narrowed(weights: Tensor) -> Tensor:
    """The same numbers in the narrowest dtype that holds them exactly."""
    for dtype in (torch.bfloat16, torch.float16):
        narrow = weights.to(dtype)
        if torch.equal(narrow.to(weights.dtype), weights):
            return narrow
    return weights


def _by_part(affine: Affine, heads: Heads) -> Affine:
    """Reorders the outputs of a matrix that interleaves queries, keys and values by head: [queries | keys | values]."""
    weight, bias = affine
    order = torch.arange(len(weight)).view(heads.heads, 3, heads.width).transpose(0, 1).flatten()
    return weight[order], None if bias is None else bias[order]


def _panels(weights: Float[Tensor, "Y X"], columns: int) -> Float[Tensor, "P X C"]:
    return _filled(weights, columns).view(-1, columns, weights.shape[1]).transpose(1, 2).contiguous()


def _filled(rows: Float[Tensor, "Y *X"], columns: int) -> Float[Tensor, "Z *X"]:
    """The rows, padded with rows of zeros to a multiple of `columns`."""
    missing = padded(len(rows), columns) - len(rows)
    return torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])]) if missing else rows
