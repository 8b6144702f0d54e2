"""Hugging Face modules: their traits, their weights if the family is native, and their forward form.

`ModuleForward` makes any module a `Forward`. Importing this file imports transformers, which takes longer than
importing torch; models of native families do not need transformers.
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

from decoder.forward.families.architecture import Architecture, Source, Traits
from decoder.forward.families.registry import FAMILIES, runs
from decoder.forward.kv_cache import KEYS, VALUES, KvCache
from decoder.forward.taps import LayerStates
from decoder.forward.windows import FULL, first_seen, longest_text, whole_mask, windows_of
from decoder.system.device import DTYPES

PARTS = frozenset({nn.ModuleList, nn.Linear, nn.Embedding, nn.LayerNorm, nn.Dropout})
META = torch.device("meta")
FEW_ROWS = 2
"""Number of rows that every model can compute in one pass."""
INDEXER_KEYS = "indexer keys"
PRECISION = "dynatui_precision"
"""Name of an attribute of modules from quantised checkpoints; the attribute describes weights and dtype in words."""
CACHES = ("past_key_values", "cache", "cache_params", "state")
"""Possible names of a module's argument for the cache."""
Put = Callable[
    [int, Float[Tensor, "H N D"], Float[Tensor, "G N E"]], tuple[Float[Tensor, "H S D"], Float[Tensor, "G S E"]]
]
"""(layer number, the layer's new keys, its new values) -> all keys and values for attention, new ones included."""
PutIndexer = Callable[[int, Float[Tensor, "N I"]], Float[Tensor, "S I"]]
"""(layer number, new keys of its indexer) -> all keys of its indexer, new ones included."""
Call = Callable[..., Any]
"""(tokens, positions, biases by layer type, cache of the pass, further options) -> output of a module."""


def _no_indexer(layer: int, _: Tensor) -> Tensor:
    raise ValueError(f"layer {layer} has an indexer, whose keys this cache cannot hold")


class Layers(Cache):
    """KV cache with transformers' interface, for one pass after `rows` cached rows; `put` stores a layer's rows."""

    def __init__(
        self,
        put: Put,
        rows: int,
        positions: Int[Tensor, "N"] | None = None,
        put_indexer: PutIndexer = _no_indexer,
        *,
        key_positions: Int[Tensor, "S"] | None = None,
        starts: Mapping[int, int] | None = None,
    ) -> None:
        """Makes the cache of one pass.

        Args:
            put: Stores the new rows of a layer.
            rows: Number of cached rows.
            positions: Positions of the new rows; None if the new rows directly follow the cached rows.
            put_indexer: Stores the new keys of a layer's indexer.
            key_positions: Positions of all rows, new ones included, on the host; None if nothing reads them.
            starts: First row that a layer's attention reads, by layer number; row 0 for layers that are not in the
                mapping.
        """
        super().__init__(layers=[])
        self._put, self._put_indexer, self._rows, self._positions = put, put_indexer, rows, positions
        self._key_positions = key_positions
        self.starts: Mapping[int, int] = starts or {}
        """See the argument `starts`."""

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Stores a layer's new rows; returns all keys and values for attention, each of shape (1, H, rows, D)."""
        keys, values = self._put(layer_idx, key_states[0], value_states[0])
        return keys[None], values[None]

    def update_indexer(self, indexer_key_states: Tensor, layer_idx: int) -> Tensor:
        """Stores new keys of a layer's indexer, which serves sparse attention; returns all keys of the indexer, shape
        (1, S, I).
        """
        return self._put_indexer(layer_idx, indexer_key_states[0])[None]

    def positions(self, first: int, end: int) -> Int[Tensor, "K"] | None:
        """Positions of the rows from `first` to `end` - 1, on the device of the pass; None if the pass does not know
        positions.
        """
        if self._key_positions is None or self._positions is None:
            return None
        return self._key_positions[first:end].to(self._positions.device)

    def get_seq_length(self, layer_idx: int | None = None) -> Any:
        """Number of cached rows before the pass. If `layer_idx` is given and positions are known, the result instead
        has a number for each new row: the row's position minus its index in the pass.

        Layers that scale queries by position (Llama 4) add each row's index to this number, which gives the row's
        position.
        """
        if layer_idx is None or self._positions is None:
            return self._rows
        return self._positions - torch.arange(len(self._positions), device=self._positions.device)


def appending(
    cache: KvCache, positions: Int[Tensor, "N"] | None = None, starts: Mapping[int, int] | None = None
) -> Layers:
    """A `Layers` object for one pass. It writes new rows to `cache`, after the rows in use, but does not change
    `cache.used`.

    After the first pass, the caller must call `cache.settle`.

    Args:
        cache: Cache to write to.
        positions: See `Layers`.
        starts: See `Layers`.
    """
    reads_from = starts or {}

    def put(layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        start, end = reads_from.get(layer, 0), cache.used + keys.shape[1]
        if not cache.store.shape[2]:
            all_keys, all_values = (
                cache.append_part((what, layer), rows, 1) for what, rows in ((KEYS, keys), (VALUES, values))
            )
            return all_keys[:, start:], all_values[:, start:]
        layer_rows = cache.store[layer]
        layer_rows[0, :, cache.used : end] = keys
        layer_rows[1, :, cache.used : end] = values
        return layer_rows[0, :, start:end], layer_rows[1, :, start:end]

    def put_indexer(layer: int, keys: Tensor) -> Tensor:
        return cache.append_part((INDEXER_KEYS, layer), keys, 0)

    of_keys = None
    if positions is not None and cache.positions is not None:
        of_keys = cache.positions[: cache.used + len(positions)]
    return Layers(put, cache.used, positions, put_indexer, key_positions=of_keys, starts=reads_from)


def unknown_cache(layers: int, capacity: int) -> KvCache:
    """An empty cache of a model whose key and value shapes are known only after its first pass."""
    return KvCache(torch.zeros((layers, 2, 0, capacity, 0)))


def cache_argument(module: Any) -> str:
    """Name of the cache, as an argument of a module and in the module's output; transformers 5.24 renamed it."""
    return next((name for name in CACHES if name in _arguments(module)), CACHES[0])


def takes_cache(module: Any) -> bool:
    """Whether a module has an argument for a cache, so that it can continue a text."""
    return not _arguments(module).isdisjoint(CACHES)


def takes_positions(module: Any) -> bool:
    """Whether a module takes the position of each token as an argument."""
    return "position_ids" in _arguments(module)


def _arguments(module: Any) -> AbstractSet[str]:
    return inspect.signature(module.forward).parameters.keys()


class ModuleForward:
    """A Hugging Face module as a `Forward`, run with the caller's mask and positions."""

    def __init__(self, module: Any, states: LayerStates | None = None) -> None:
        """Wraps a module; its passes write layer inputs to `states`, if given."""
        config = module.config.get_text_config()
        self._module = module
        self._states = states
        self._layers: int = config.num_hidden_layers
        self._windows = windows_of(config)
        # Inspecting the signature in each pass would take a notable part of a small model's time.
        self._cache_argument = cache_argument(module)
        self._device, self._dtype = next(module.parameters()).device, dtype_of(module)

    def new_cache(self, capacity: int) -> KvCache:
        cache = unknown_cache(self._layers, capacity)
        return cache.with_positions() if self._windows.sizes else cache

    def forward(
        self, cache: KvCache, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Float[Tensor, "N V"]:
        logits: Tensor = self.through(cache, tokens, positions, visible, self.output).logits[0]
        return logits

    def through(
        self,
        cache: KvCache,
        tokens: Sequence[int],
        positions: Sequence[int],
        visible: NDArray[np.bool_],
        call: Call,
    ) -> Any:
        """Output of `call`, which runs the module on the new rows. For the other arguments, see
        `LanguageModel.forward`.
        """
        end = cache.used + len(tokens)
        masks = self._masks(cache, positions, visible)
        starts = {kind: first_seen(masks[kind]) for kind in self._windows.sizes}
        biases = {kind: self._bias(mask[:, starts.get(kind, 0) :]) for kind, mask in masks.items()}
        given, places = (torch.tensor(ids, device=self._device) for ids in (tokens, positions))
        by_layer = {layer: starts.get(kind, 0) for layer, kind in enumerate(self._windows.layers) if starts}
        layers = appending(cache, places, by_layer)
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
        """The module's output of one pass; `biases` maps each layer type to the bias that is added to the attention
        scores of layers of this type.

        If the options contain `inputs_embeds`, the module reads these rows in place of the tokens.
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

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        positions = range(cache.length, cache.length + len(tokens))
        logits = self.forward(cache, tokens, positions, np.tri(len(tokens), dtype=np.bool_))[-1]
        cache.keep(positions)
        return logits

    def tapped(self, states: LayerStates) -> "ModuleForward":
        return ModuleForward(self._module, states)


@torch.inference_mode()
def has_room(module: Any, text: int, rows: int) -> bool:
    """Whether a module can compute `rows` rows together after a text of `text` tokens; True if unknown.

    Some families store a mask or token types for texts up to a maximum length, and fail on longer texts. Whether a
    module fails is tried on torch's meta device, whose tensors have only shapes. There a pass takes almost no time;
    with real tensors, it would take minutes and gigabytes. If a module's control flow depends on tensor values, the
    module fails on the meta device even for a few rows, and the answer is unknown.
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
                **{cache_argument(shapes): appending(cache, positions)},
            )
            cache.settle()
    except Exception:  # noqa: BLE001 - families without room raise different errors
        return False
    return True


def _without_numbers(module: Any) -> Any:
    """A copy of the module on the meta device. The module is copied because a forward pass may store tensors in it.

    All floating-point tensors are bfloat16, since the meta device has some operators only for this dtype.
    """
    originals = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    return copy.deepcopy(module, {place: _shape(tensor) for place, tensor in originals.items()})


def _shape(tensor: Tensor) -> Tensor:
    real = tensor.is_floating_point()
    shape = torch.empty_like(tensor, device=META, dtype=torch.bfloat16 if real else None)
    return nn.Parameter(shape, requires_grad=False) if isinstance(tensor, nn.Parameter) else shape


def sizes_of(module: Any) -> dict[str, int]:
    """Integers in a module's configuration, by name; some of these integers may limit the module's attention."""
    named = module.config.get_text_config().to_dict()
    return {name: size for name, size in named.items() if type(size) is int and not name.endswith("_id")}


def resized(module: Any, name: str, size: int) -> Any | None:
    """A module with the same weights and buffers, and with `name` set to `size` in the configuration; None if this is
    impossible.
    """
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
    """Whether a module computes with quantised weights; False if they were converted to a plain dtype at loading."""
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
    """`Traits` of a module in evaluation mode."""
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
    """Architecture of a module of this configuration; the name of the module's class if its family is not native."""
    module = skeleton(config, config.dtype).eval()
    source = source_of(module)
    return source.architecture if source else type(module).__name__


def skeleton(config: Any, dtype: torch.dtype) -> Any:
    """A module without weights, with the structure that a configuration describes, on the meta device."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=dtype)


def settings(eos: Any, pad: int | None) -> GenerationConfig:
    """Generation settings with these end-of-text and padding tokens; all other settings have transformers' defaults."""
    return GenerationConfig(eos_token_id=eos, pad_token_id=pad)


def source_of(module: Any) -> Source | None:
    """Weights of a module; None if it has any part that native families do not know."""
    config, name = module.config, type(module).__name__
    # The family is found by class name, since a module's configuration may have the model type of another family.
    kind = next((kind for kind, family in FAMILIES.items() if family.name == name), None)
    if kind is None or is_quantised(module) or not _plain(module):
        return None
    arch = replace(Architecture.of(config), model_type=kind)
    if not runs(arch):
        return None
    weights: dict[str, Tensor] = dict(module.named_parameters(remove_duplicate=False))
    return Source(arch, weights, module.base_model.rotary_emb.inv_freq)


def frequencies_of(module: Any) -> Tensor | None:
    """Rotary frequencies, in radians per position, one for each pair of dimensions; None if positions are not rotary,
    or if layers have different frequencies.
    """
    frequencies = getattr(getattr(module.base_model, "rotary_emb", None), "inv_freq", None)
    return frequencies if isinstance(frequencies, Tensor) else None


def _plain(module: Any) -> bool:
    """Whether all parts of a module are the family's original ones, in one dtype: no adapter, no quantised matrix."""
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
