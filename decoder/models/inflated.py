"""The embedded pair, enlarged to the cost of larger models: the texts stay the same, but each pass reads more weights.

Every width is repeated, and layers that add nothing are appended. A matrix that is repeated in both directions and
divided by the number of copies maps repeated rows to repeated rows. Repeating a row changes neither its mean nor its
variance, so all logits equal the embedded model's logits up to rounding. The number of copies is a power of two, so
that the division is exact in every dtype. The appended layers read all their weights, but their output matrices are 0.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import torch
from torch import Tensor

from decoder.errors import ConfigError, DeviceError, quoted, require
from decoder.forward.families.architecture import Architecture
from decoder.forward.families.registry import FAMILIES, HEAD, reading_bytes, shapes
from decoder.forward.language_model import LanguageModel
from decoder.models.checkpoints import (
    EMBEDDED_DRAFT,
    EMBEDDED_TARGET,
    architecture_in,
    display_name,
    embedded_traits,
    model_of,
)
from decoder.models.load_progress import Tell
from decoder.models.quantisation import memory_of
from decoder.system.device import free_bytes
from decoder.system.libraries import imported

DRAFT_SHARE = 0.01
"""Ratio of the draft's to the target's parameters, as for the drafts of 68 million parameters for LLaMA-7B in SpecInfer
(Miao et al., 2024).
"""
WIDTH_PER_LAYER = 100
"""Usual ratio of a large model's width to its number of layers: 80 in Pythia-2.8B, 128 in Llama-3.1-8B."""
SHORTFALL = 1.1
"""Largest allowed ratio of a model's parameters to the requested parameters, for a model without appended layers."""
_SIZE = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)([MB])", re.IGNORECASE)
_UNITS = {"M": (10**6, "million"), "B": (10**9, "billion")}
_WIDTHS = ("hidden_size", "num_attention_heads", "num_key_value_heads", "intermediate_size")


@dataclass(frozen=True)
class Inflated:
    """An embedded model that costs as much as a larger model."""

    folder: str
    small: Architecture
    copies: int
    """Number of times that every width is repeated; a power of two."""
    layers: int
    """Number of layers, those of the embedded model included."""

    @property
    def architecture(self) -> Architecture:
        widths: dict[str, Any] = {name: getattr(self.small, name) * self.copies for name in _WIDTHS}
        return replace(
            self.small,
            **widths,
            num_hidden_layers=self.layers,
            layer_types=self.small.layer_types[:1] * self.layers,
            tie_word_embeddings=False,
        )

    @property
    def parameters(self) -> int:
        return sum(map(math.prod, shapes(self.architecture).values()))

    @property
    def name(self) -> str:
        """Name for display, such as books-16m inflated to 2.8B."""
        number, unit = _rounded(self.parameters)
        return f"{display_name(self.folder)} inflated to {number}{unit}"

    def load(self, device: torch.device, dtype: torch.dtype, tell: Tell = lambda _: None) -> LanguageModel:
        """Raises DeviceError if the model does not fit in the device's memory."""
        small = embedded_traits(self.folder, device, dtype, tell)
        assert small.source, "the embedded models are of a native family"  # noqa: S101 - for mypy
        source = replace(small.source, architecture=self.architecture, weights=_Weights(self, small.source.weights))
        traits = replace(small, layers=self.layers, source=source, skeleton=lambda: self._skeleton(dtype))
        return model_of(traits, self.name, lambda place: self._module(dtype, place))

    def _skeleton(self, dtype: torch.dtype) -> Any:
        config = imported("decoder.models.hf_checkpoints").load_config(self.folder)
        for name in (*_WIDTHS, "num_hidden_layers", "tie_word_embeddings"):
            setattr(config, name, getattr(self.architecture, name))
        return imported("decoder.forward.hf").skeleton(config, dtype)

    @torch.no_grad()
    def _module(self, dtype: torch.dtype, device: torch.device) -> Any:
        source_of = imported("decoder.forward.hf").source_of
        small = imported("decoder.models.hf_checkpoints").load_module(self.folder, dtype, device)
        module = self._skeleton(dtype).eval()
        module.load_state_dict(dict(_Weights(self, source_of(small).weights)), assign=True)
        for place, buffer in small.named_buffers():  # buffers depend only on the head size, which is equal in both
            part, _, own = place.rpartition(".")
            setattr(module.get_submodule(part), own, buffer)
        return module


class _Weights(Mapping[str, Tensor]):
    """Weights of an inflated model by name; each is computed from the embedded model's weights when it is accessed."""

    def __init__(self, model: Inflated, small: Mapping[str, Tensor]) -> None:
        family, few = FAMILIES[model.small.model_type], model.small.num_hidden_layers
        self._small, self._copies, self._embedding = small, model.copies, f"{family.embedding}.weight"
        self._names = shapes(model.architecture)
        further = range(few, model.layers)
        self._first = f"{family.body}.layers.0."
        self._further = tuple(f"{family.body}.layers.{layer}." for layer in further)
        self._adding = family.outward, family.down
        """Names of a layer's matrices whose outputs are added to the hidden rows."""

    def __getitem__(self, name: str) -> Tensor:
        before = next((prefix for prefix in self._further if name.startswith(prefix)), None)
        if before is None:
            return self._wide(name)
        part = name.removeprefix(before)
        weight = self._wide(self._first + part)
        return torch.zeros_like(weight) if part.startswith(self._adding) else weight

    def _wide(self, name: str) -> Tensor:
        small, copies = self._small[name], self._copies
        if small.dim() == 1:
            return small.repeat(copies)
        if name == self._embedding:
            return small.repeat(1, copies)
        return small.repeat(1 if name == HEAD else copies, copies).div_(copies)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def inflated_pair(size: str, names: Mapping[str, str], report: Tell = lambda _: None) -> dict[str, Inflated]:
    """Inflated models for the roles in `names` (folders by role): a target of about `size` parameters, and a draft with
    `DRAFT_SHARE` times as many. `report` is called with their description.

    Raises ConfigError if `names` has another model, or if `size` is too small or not a number of parameters.
    """
    embedded = {"target": str(EMBEDDED_TARGET), "draft": str(EMBEDDED_DRAFT)}
    require(
        names.items() <= embedded.items(),
        "--inflate makes the embedded pair larger, but other models are named; leave out --inflate, or --target and "
        "--draft",
        "inflate",
    )
    found = _SIZE.fullmatch(size.strip())
    if found is None:
        raise ConfigError(f"--inflate is {quoted(size)}; give a number of parameters, such as 2.8B or 500M", "inflate")
    wanted = float(found[1]) * _UNITS[found[2].upper()][0]
    target = _nearest(embedded["target"], wanted)
    number, unit = _rounded(target.parameters)
    require(
        wanted >= target.parameters / SHORTFALL,
        f"--inflate is {quoted(size)}, which is less than the embedded target has; give more than {number}{unit}",
        "inflate",
    )
    pair = {"target": target}
    if "draft" in names:
        pair["draft"] = _nearest(embedded["draft"], wanted * DRAFT_SHARE)
    report(made(pair))
    return pair


def made(models: Mapping[str, Inflated]) -> str:
    sizes = {role: _rounded(model.parameters) for role, model in models.items()}
    words = {role: f"{number} {_UNITS[unit][1]}" for role, (number, unit) in sizes.items()}
    draft, whose = (f", draft of {words['draft']}", "their") if "draft" in words else ("", "its")
    return f"target of {words['target']} parameters{draft}: the embedded pair's texts at {whose} cost"


def require_memory(models: Mapping[str, Inflated], dtypes: Mapping[str, torch.dtype], device: torch.device) -> None:
    """Raises DeviceError if the free memory is known and too small for weights, the keys and values of a text as long
    as the context, and the temporary memory for making the largest layer.
    """
    if not models:
        return
    needs = [memory_of(model.architecture, dtypes[role]) for role, model in models.items()]
    making = max(reading_bytes(model.architecture, dtypes[role]) for role, model in models.items())
    needed = making + sum(need.weights_bytes + need.cache_bytes for need in needs)
    free = free_bytes(device)
    if free is not None and free < needed:
        remedy = ", or --dtype bfloat16" * (dtypes["target"].itemsize > torch.bfloat16.itemsize)
        raise DeviceError(
            f"{models['target'].name} needs {needed / 2**30:.1f} GiB of memory with its draft, but {device} has "
            f"{free / 2**30:.1f} GiB free; give a smaller --inflate{remedy}",
            "inflate",
        )


def _nearest(folder: str, wanted: float) -> Inflated:
    """The embedded model of `folder`, inflated to about `wanted` parameters in the proportions of large models."""
    small = architecture_in(folder)
    return min(
        _candidates(folder, small, wanted),
        key=lambda model: abs(math.log(model.architecture.hidden_size / model.layers / WIDTH_PER_LAYER)),
    )


def _candidates(folder: str, small: Architecture, wanted: float) -> Iterator[Inflated]:
    """Models of all possible widths, each with the number of layers that comes nearest to `wanted` parameters."""
    fewest = small.num_hidden_layers
    for copies in (2**power for power in count()):
        base, next_one = (Inflated(folder, small, copies, fewest + more).parameters for more in (0, 1))
        if copies > 1 and base > wanted * SHORTFALL:
            return
        yield Inflated(folder, small, copies, max(fewest, fewest + round((wanted - base) / (next_one - base))))


def _rounded(parameters: int) -> tuple[str, str]:
    rounded = float(f"{parameters:.2g}")
    unit = "B" if rounded >= _UNITS["B"][0] else "M"
    return f"{rounded / _UNITS[unit][0]:g}", unit
