"""Hugging Face modules: their traits, their weights if the family is native, and their forward form. Importing this
file imports transformers, which takes longer than importing torch.
"""

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, GenerationConfig
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache

from decoder.forward.families.architecture import Architecture, ModelWeights, Traits
from decoder.forward.families.registry import FAMILIES, runs
from decoder.forward.kv_cache import KEYS, VALUES, KvCache
from decoder.forward.layer_kinds import FULL, first_seen, longest_text, whole_mask, windows_of
from decoder.forward.protocol import Forward, Ints, Mask
from decoder.forward.taps import LayerStates
from decoder.system.device import DTYPES

PARTS = frozenset({nn.ModuleList, nn.Linear, nn.Embedding, nn.LayerNorm, nn.Dropout})
META = torch.device("meta")
FEW_ROWS = 2
"""Number of rows that every model can compute in one pass."""
INDEXER_KEYS = "indexer keys"
PRECISION = "dynatui_precision"
"""Attribute that a module from a quantised checkpoint gets: a description of its weights and dtype in words."""
CACHES = ("past_key_values", "cache", "cache_params", "state")
"""Possible names of a module's argument for the cache."""
Call = Callable[..., Any]
"""Calls a module: (tokens, positions, biases by layer type, cache of the pass, further options) -> its output."""


class Layers(Cache):
    """The cache that a module gets for one pass after `rows` cached rows; subclasses store new keys and values."""

    def __init__(
        self,
        rows: int,
        positions: Int[Tensor, "N"] | None = None,
        key_positions: Int[Tensor, "S"] | None = None,
        starts: Mapping[int, int] | None = None,
    ) -> None:
        """`positions` are the positions of the new rows; None if the new rows directly follow the cached `rows`.
        `key_positions` are the positions of all rows, on the host. `starts` maps a layer to the first row that its
        attention reads; layers without an entry read all rows.
        """
        super().__init__(layers=[])
        self._rows, self._positions, self._key_positions = rows, positions, key_positions
        self.starts: Mapping[int, int] = starts or {}

    def put(
        self, layer: int, _keys: Float[Tensor, "H N D"], _values: Float[Tensor, "G N E"]
    ) -> tuple[Float[Tensor, "H S D"], Float[Tensor, "G S E"]]:
        """Stores new keys and values; returns all that attention reads. This class raises ValueError."""
        raise ValueError(
            f"the keys of layer {layer} cannot be read here: the module that owns the layer's state caches them itself"
        )

    def put_indexer(self, layer: int, _keys: Float[Tensor, "N I"]) -> Float[Tensor, "S I"]:
        """Stores new keys of an indexer of sparse attention; returns all its keys. This class raises ValueError."""
        raise ValueError(f"layer {layer} has an indexer, whose keys this cache cannot hold")

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        keys, values = self.put(layer_idx, key_states[0], value_states[0])
        return keys[None], values[None]

    def update_indexer(self, indexer_key_states: Tensor, layer_idx: int) -> Tensor:
        return self.put_indexer(layer_idx, indexer_key_states[0])[None]

    def positions(self, first: int, end: int) -> Int[Tensor, "K"] | None:
        """Positions of the rows `first` to `end` - 1, on the device of the pass; None if positions are unknown."""
        if self._key_positions is None or self._positions is None:
            return None
        return self._key_positions[first:end].to(self._positions.device)

    def get_seq_length(self, layer_idx: int | None = None) -> Any:
        """Number of cached rows before the pass. If `layer_idx` is given and positions are known: for each new row, its
        position minus its index in the pass, shape (N,); layers that scale queries by position (Llama 4) add the index.
        """
        if layer_idx is None or self._positions is None:
            return self._rows
        return self._positions - torch.arange(len(self._positions), device=self._positions.device)


class Appending(Layers):
    """Writes new rows after the rows in use; the caller updates `cache.used`, and calls `cache.settle` after a pass."""

    def __init__(
        self, cache: KvCache, positions: Int[Tensor, "N"] | None = None, starts: Mapping[int, int] | None = None
    ) -> None:
        of_keys = None
        if positions is not None and cache.positions is not None:
            of_keys = cache.positions[: cache.used + len(positions)]
        super().__init__(cache.used, positions, of_keys, starts)
        self._cache = cache

    def put(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        cache, start = self._cache, self.starts.get(layer, 0)
        end = cache.used + keys.shape[1]
        if not cache.store.shape[2]:
            all_keys, all_values = (
                cache.append_part((what, layer), rows, 1) for what, rows in ((KEYS, keys), (VALUES, values))
            )
            return all_keys[:, start:], all_values[:, start:]
        layer_rows = cache.store[layer]
        layer_rows[0, :, cache.used : end] = keys
        layer_rows[1, :, cache.used : end] = values
        return layer_rows[0, :, start:end], layer_rows[1, :, start:end]

    def put_indexer(self, layer: int, keys: Tensor) -> Tensor:
        return self._cache.append_part((INDEXER_KEYS, layer), keys, 0)


def unknown_cache(layers: int, capacity: int) -> KvCache:
    """A cache whose key and value shapes are known only after the first pass."""
    return KvCache(torch.zeros((layers, 2, 0, capacity, 0)))


def cache_argument(module: Any) -> str:
    """Name of the cache among a module's arguments and in its output; transformers 5.24 changed this name."""
    return next((name for name in CACHES if name in _arguments(module)), CACHES[0])


def takes_cache(module: Any) -> bool:
    return not _arguments(module).isdisjoint(CACHES)


def takes_positions(module: Any) -> bool:
    return "position_ids" in _arguments(module)


def _arguments(module: Any) -> AbstractSet[str]:
    return inspect.signature(module.forward).parameters.keys()


class ModuleForward(Forward):
    def __init__(self, module: Any, states: LayerStates | None = None) -> None:
        config = module.config.get_text_config()
        self._module = module
        self._states = states
        self._layers: int = config.num_hidden_layers
        self._windows = windows_of(config)
        # Inspecting the signature in each pass would take a notable part of a small model's time.
        self._cache_argument = cache_argument(module)
        self._device, self._dtype = next(module.parameters()).device, dtype_of(module)

    @property
    def weights(self) -> int:
        return sum(weight.numel() for weight in self._module.parameters())

    def new_cache(self, capacity: int) -> KvCache:
        cache = unknown_cache(self._layers, capacity)
        return cache.with_positions() if self._windows.sizes else cache

    def forward(self, cache: KvCache, tokens: Ints, positions: Ints, visible: Mask) -> Float[Tensor, "N V"]:
        logits: Tensor = self.through(cache, tokens, positions, visible, self.output).logits[0]
        return logits

    def through(self, cache: KvCache, tokens: Ints, positions: Ints, visible: Mask, call: Call) -> Any:
        """Output of `call`, which runs the module on the new rows."""
        end = cache.used + len(tokens)
        masks = self._masks(cache, positions, visible)
        starts = {kind: first_seen(masks[kind]) for kind in self._windows.sizes}
        biases = {kind: self._bias(mask[:, starts.get(kind, 0) :]) for kind, mask in masks.items()}
        given, places = (torch.tensor(ids, device=self._device) for ids in (tokens, positions))
        by_layer = {layer: starts.get(kind, 0) for layer, kind in enumerate(self._windows.layers) if starts}
        layers = Appending(cache, places, by_layer)
        options = {"output_hidden_states": True} if self._states else {}
        output = call(given, places, biases, layers, **options)
        cache.settle()
        if self._states:
            self._states.put(cache.used, [output.hidden_states[layer][0] for layer in self._states.layers])
        cache.used = end
        return output

    def output(
        self,
        tokens: Int[Tensor, "N"],
        positions: Int[Tensor, "N"],
        biases: Mapping[str, Float[Tensor, "N S"] | None],
        layers: Cache,
        **options: Any,
    ) -> Any:
        """The module's output for N new rows. `biases` are added to the attention scores, by layer type; embedded rows
        in the option `inputs_embeds` replace the tokens.
        """
        masks = {kind: None if bias is None else bias[None, None] for kind, bias in biases.items()}
        given = {} if "inputs_embeds" in options else {"input_ids": tokens[None]}
        return self._module(
            position_ids=positions[None],
            attention_mask=masks if len(masks) > 1 else masks.popitem()[1],
            use_cache=True,
            **{self._cache_argument: layers},
            **given,
            **options,
        )

    def _masks(
        self, cache: KvCache, positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Mapping[str, Bool[np.ndarray, "N S"]]:
        """Mask of each layer type; also stores the positions of the new rows in the cache."""
        seen = whole_mask(visible, cache.used + len(visible))
        if cache.positions is None:
            return {FULL: seen}
        keys = cache.note(positions)
        return self._windows.masks(seen, keys[cache.used :], keys)

    def _bias(self, mask: Bool[np.ndarray, "N S"]) -> Float[Tensor, "N S"]:
        bias = torch.zeros(mask.shape, dtype=self._dtype)
        return bias.masked_fill_(torch.from_numpy(~mask), torch.finfo(self._dtype).min).to(self._device)

    def tapped(self, states: LayerStates) -> "ModuleForward":
        return ModuleForward(self._module, states)


@torch.inference_mode()
def has_room(module: Any, text: int, rows: int) -> bool:
    """Whether a module can compute `rows` rows in one pass after `text` tokens; some modules store a mask of limited
    length. The test passes run on torch's meta device, where they take almost no time. Also true if even a short pass
    fails there: the module's control flow then depends on tensor values, and the test says nothing about room.
    """
    return _computes(module, text, rows) or not _computes(module, FEW_ROWS, FEW_ROWS)


def _computes(module: Any, text: int, rows: int) -> bool:
    cache = unknown_cache(module.config.get_text_config().num_hidden_layers, text + rows)
    try:
        shapes = _without_numbers(module)
        # The first pass allocates the cache.
        for start, count in ((0, 1), (text, rows)):
            cache.used = start
            positions = torch.zeros(count, dtype=torch.long, device=META)
            shapes(
                input_ids=positions[None],
                position_ids=positions[None],
                attention_mask=torch.zeros((1, 1, count, start + count), dtype=torch.bfloat16, device=META),
                use_cache=True,
                **{cache_argument(shapes): Appending(cache, positions)},
            )
            cache.settle()
    except Exception:  # noqa: BLE001 - families without room raise different errors
        return False
    return True


def _without_numbers(module: Any) -> Any:
    """A copy of the module on the meta device in bfloat16, the only dtype that some operators support there."""
    originals = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    return copy.deepcopy(module, {place: _shape(tensor) for place, tensor in originals.items()})


def _shape(tensor: Tensor) -> Tensor:
    real = tensor.is_floating_point()
    shape = torch.empty_like(tensor, device=META, dtype=torch.bfloat16 if real else None)
    return nn.Parameter(shape, requires_grad=False) if isinstance(tensor, nn.Parameter) else shape


def sizes_of(module: Any) -> dict[str, int]:
    """Integers in a module's configuration by name, except token ids; any of them may be the length of a window."""
    named = module.config.get_text_config().to_dict()
    return {name: size for name, size in named.items() if type(size) is int and not name.endswith("_id")}


def resized(module: Any, name: str, size: int) -> Any | None:
    """A module with the same weights whose configuration has `size` as field `name`; None if this is impossible."""
    config = copy.deepcopy(module.config)
    try:
        setattr(config.get_text_config(), name, size)
        twin = skeleton(config, dtype_of(module)).eval()
        shared = _share_quantised(twin, module) if is_quantised(module) else ()
        weights = {place: weight for place, weight in module.state_dict().items() if not place.startswith(shared)}
        twin.load_state_dict(weights, assign=True, strict=not shared)
    except Exception:  # noqa: BLE001 - families raise different errors for a size that they do not support
        return None
    buffers = dict(twin.named_buffers())
    for place, buffer in module.named_buffers():
        if place not in buffers or buffers[place].shape != buffer.shape:
            return None
        part, _, own = place.rpartition(".")
        setattr(twin.get_submodule(part), own, buffer)
    return twin


def _share_quantised(twin: Any, module: Any) -> tuple[str, ...]:
    """Puts the quantised parts of `module` into `twin`, which has no weights; returns the prefixes of their names."""
    shared: list[str] = []
    for place, part in module.named_modules():
        if not place.startswith(tuple(shared)) and _differs(part, twin.get_submodule(place)):
            twin.set_submodule(place, part)
            shared.append(f"{place}.")
    return tuple(shared)


def _differs(part: nn.Module, plain: nn.Module) -> bool:
    """Whether `part` may be a quantised form of `plain`; raises ValueError if their matrices have different sizes."""
    sizes = [(getattr(each, "in_features", None), getattr(each, "out_features", None)) for each in (part, plain)]
    if sizes[0] != sizes[1] and None not in sizes[0]:
        raise ValueError("the two products have matrices of different sizes")
    return isinstance(part, nn.Linear) or type(part) is not type(plain)


def is_quantised(module: Any) -> bool:
    """Whether a module computes with quantised weights; False if they were dequantised at loading."""
    return getattr(module, "hf_quantizer", None) is not None


@torch.inference_mode()
def dtype_of(module: Any) -> torch.dtype:
    """Dtype in which a module computes. Quantised weights may have another dtype, and their scales a third dtype."""
    values = next(module.parameters())
    if is_quantised(module):
        values = module.get_input_embeddings()(torch.zeros(1, 1, dtype=torch.long, device=values.device))
    dtype: torch.dtype = values.dtype
    return dtype


def traits_of(module: Any) -> Traits:
    config = module.config.get_text_config()
    dtype = dtype_of(module)
    return Traits(
        layers=config.num_hidden_layers,
        width=config.vocab_size,
        context=longest_text(config),
        device=next(module.parameters()).device,
        dtype=dtype,
        eos=module.generation_config.eos_token_id,
        skeleton=partial(skeleton, module.config, dtype),
        source=source_of(module),
        precision=getattr(module, PRECISION, ""),
    )


def architecture_of(config: Any) -> Architecture | str:
    """The architecture, if the model's family is native; else the name of the module's class."""
    module = skeleton(config, config.dtype).eval()
    source = source_of(module)
    return source.architecture if source else type(module).__name__


def skeleton(config: Any, dtype: torch.dtype) -> Any:
    """A module without weights, on the meta device."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=dtype)


def settings(eos: Any, pad: int | None) -> GenerationConfig:
    return GenerationConfig(eos_token_id=eos, pad_token_id=pad)


def source_of(module: Any) -> ModelWeights | None:
    """The module's weights for a native model; None if native families do not support every part of the module."""
    config, name = module.config, type(module).__name__
    # The family is found by class name, since a module's configuration may have the model type of another family.
    kind = next((kind for kind, family in FAMILIES.items() if family.name == name), None)
    if kind is None or is_quantised(module) or not _plain(module):
        return None
    arch = replace(Architecture.of(config), model_type=kind)
    if not runs(arch):
        return None
    weights: dict[str, Tensor] = dict(module.named_parameters(remove_duplicate=False))
    return ModelWeights(arch, weights, module.base_model.rotary_emb.inv_freq)


def frequencies_of(module: Any) -> Tensor | None:
    """RoPE frequencies of the module; None if positions are not rotary, or if layers have different frequencies."""
    frequencies = getattr(getattr(module.base_model, "rotary_emb", None), "inv_freq", None)
    return frequencies if isinstance(frequencies, Tensor) else None


def _plain(module: Any) -> bool:
    """Whether the module has one device and dtype, and only its family's own parts: no adapter, no quantised matrix."""
    weights = {(weight.device, weight.dtype) for weight in module.parameters()}
    activation = type(ACT2FN[module.config.hidden_act])
    return (
        len(weights) == 1
        and {dtype for _, dtype in weights} <= set(DTYPES.values())
        and all(_known(part, type(module), activation) for part in module.modules())
    )


def _known(part: nn.Module, family: type, activation: type) -> bool:
    """Whether a part is of a known class, without hooks, and in evaluation mode."""
    known = type(part) in PARTS or type(part) is activation or type(part).__module__ == family.__module__
    return known and not part.training and not part._forward_hooks and not part._forward_pre_hooks  # noqa: SLF001 - not public
