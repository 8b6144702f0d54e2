"""A language model with its forward form, and the conversion of a draft to a target's number of token ids."""

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from decoder.errors import PairError
from decoder.forward.batch_invariant import exactly
from decoder.forward.compiled.growth import TreeGrower
from decoder.forward.compiled.library import library
from decoder.forward.compiled.model import CompiledModel
from decoder.forward.compiled.weights import compiled_model
from decoder.forward.families.architecture import Traits
from decoder.forward.families.native import NativeModel
from decoder.forward.families.registry import native_model, only_compiled
from decoder.forward.hf_module import HfModule, Load, OnDemand
from decoder.forward.kv_cache import KvCache
from decoder.forward.linear import HALF
from decoder.forward.protocol import Forward, Ints, Mask, TensorParallelGroup
from decoder.forward.streaming import Streaming, key_rotation
from decoder.forward.taps import LayerStates, Observed, tapped
from decoder.forward.token_choice import ranked
from decoder.sampling.ranking import Best, Ranking
from decoder.system.libraries import imported

AT_ONCE = 512
"""Largest number of tokens that one pass over a text reads."""


class LanguageModel:
    def __init__(self, name: str, traits: Traits, hf: HfModule) -> None:
        """On a CPU, a native form computes the passes if the family has one; otherwise the Hugging Face module does,
        which the first pass loads.
        """
        self.name = name
        self.layers: int = traits.layers
        self.width: int = traits.width
        self.context: int = traits.context
        self.device: torch.device = traits.device
        self.dtype: torch.dtype = traits.dtype
        self.eos: Any = traits.eos
        self.hf = hf
        self.precision = traits.precision or str(traits.dtype).removeprefix("torch.")
        """Dtype of the weights (for example float16), or their quantisation, in words."""
        self.computed_by = ""
        """Name of the external library that computes the passes, such as llama.cpp; empty without one."""
        self._keeps_states = False
        self.ranks: TensorParallelGroup | None = None
        """The model's tensor-parallel processes; None if this process runs the model alone."""
        self._native = native_on_cpu(traits)
        self._rotary = traits.source.frequencies if self._native and traits.source else None
        self.architecture = traits.source.architecture if traits.source else None
        """Architecture of a model of a native family; None for other models."""
        self.runs_by: Forward = self._native or OnDemand(hf)
        self.runs_without_module = self._native is not None

    @classmethod
    def of_module(cls, module: Any, name: str, load: Load | None = None) -> "LanguageModel":
        """The module must be in evaluation mode; `load` loads the same module again."""
        traits = _hf().traits_of(module)
        model = cls(name, traits, HfModule(traits, load, module))
        if model._native is None:
            model.run_by_module()
        return model

    @classmethod
    def of_weights(cls, traits: Traits, name: str, load: Load | None = None) -> "LanguageModel":
        """The weights are read without a Hugging Face module; `load` loads the module."""
        return cls(name, traits, HfModule(traits, load))

    @classmethod
    def of_forward(
        cls, traits: Traits, name: str, forward: Forward, *, computed_by: str, precision: str, keeps_states: bool
    ) -> "LanguageModel":
        """A model whose passes the external library `computed_by` computes; it has no Hugging Face module."""
        model = cls(name, traits, HfModule(traits))
        model.run_by(forward)
        model.computed_by, model.precision, model._keeps_states = computed_by, precision, keeps_states
        return model

    @property
    def keeps_states(self) -> bool:
        """Whether the model is in memory and has layers with states, from which no mask can remove a token."""
        return self._keeps_states or self.hf.keeps_states

    @property
    def judgeable(self) -> bool:
        """Whether `decoder.forward.near_tie` can check near ties in the model's text."""
        return bool(self.computed_by) or self.hf.available

    def slim(self) -> None:
        """Drops the Hugging Face module if passes do not need it and it can be loaded again."""
        if self.runs_without_module:
            self.hf.drop()

    def drop_forward(self) -> None:
        """Frees the memory of the forward form; the next pass loads the module unless another form is set."""
        self.runs_by, self.runs_without_module = OnDemand(self.hf), False

    def run_by(self, forward: Forward) -> None:
        """Sets a forward form that does not need the Hugging Face module."""
        self.runs_by, self.runs_without_module = forward, True

    def run_by_module(self) -> None:
        """Sets the module's form; drops the current form before the module is loaded."""
        self.drop_forward()
        self.runs_by = self.hf.forward_form()

    def by_paths(self) -> "LanguageModel":
        """A copy of this model whose module computes draft trees as whole paths."""
        twin = copy.copy(self)
        twin.hf = copy.copy(self.hf)
        twin.hf.choose_paths()
        twin.run_by_module()
        return twin

    def run_by_paths(self) -> None:
        """From now on, the module computes draft trees as whole paths, which is slower."""
        self.hf.choose_paths()
        self.run_by_module()

    def new_cache(self, capacity: int) -> KvCache:
        return self.runs_by.new_cache(capacity)

    def forward(self, cache: KvCache, tokens: Ints, positions: Ints, visible: Mask) -> Float[Tensor, "N V"]:
        """Logits of N new rows, which are appended to the cache. `visible`, of shape (N, M), is the attention mask of
        the last M rows, including the new rows; all earlier rows are visible. Siblings have the same position.
        """
        return self.runs_by.forward(cache, tokens, positions, visible)

    def read(self, cache: KvCache, tokens: Sequence[int], chunk: int = AT_ONCE) -> Float[Tensor, "V"]:
        last = max(0, len(tokens) - 1) // chunk * chunk
        for start in range(0, last, chunk):
            self.runs_by.read(cache, tokens[start : start + chunk])
        return self.runs_by.read(cache, tokens[last:])

    def best(self, cache: KvCache, tokens: Ints, positions: Ints, visible: Mask, ranking: Ranking) -> Best:
        """The best next tokens of each row, by the logits of `forward`."""
        if isinstance(self.runs_by, CompiledModel) and not ranking.needs_logits:
            return self.runs_by.best(cache, tokens, positions, visible, ranking)
        return ranked(self.forward(cache, tokens, positions, visible), ranking)

    def best_after(self, cache: KvCache, tokens: Sequence[int], ranking: Ranking) -> Best:
        """The best next tokens by the logits of `read`, as a result with one row."""
        if isinstance(self.runs_by, CompiledModel) and not ranking.needs_logits and len(tokens) <= AT_ONCE:
            return self.runs_by.best_after(cache, tokens, ranking)
        return ranked(self.read(cache, tokens)[None], ranking)

    def tree_grower(self, reserve: Callable[[int], None]) -> TreeGrower | None:
        """Grows draft trees of one text in the compiled library; `reserve` enlarges the text's cache. None if the model
        is not compiled, has attention windows, or writes its layer inputs to a `LayerStates`.
        """
        form = self.runs_by
        if isinstance(form, CompiledModel) and not form.windows.sizes and not form.notes:
            return TreeGrower(form, reserve)
        return None

    def has_room(self, rows: int) -> bool:
        """Whether `rows` rows can be computed together after a text as long as the context."""
        # Native models store nothing whose size limits the text length.
        return self.runs_without_module or self.hf.has_room(self.context, rows)

    def with_forward(self, forward: Forward) -> "LanguageModel":
        twin = copy.copy(self)
        twin.runs_by = forward
        return twin

    def exact(self) -> "LanguageModel":
        """The same model with a batch-invariant form; raises PairError if it has none."""
        if own := self._own_cache:
            raise PairError(
                f"{self.name} {own}, whose bits depend on the number of rows in each pass; leave out --exact, or "
                "choose models whose layers all attend to cached keys and values"
            )
        if isinstance(self._native, CompiledModel):
            return self.with_forward(self._native)
        if self.runs_without_module:
            # Memory may not suffice for the current form and the module together, so the current form is dropped first.
            self.run_by_module()
        by = imported("decoder.forward.exact_attention")
        return self.with_forward(exactly(by.ExactModule(self.hf.module), self.width, cuda=self.device.type == "cuda"))

    def inexact(self) -> "LanguageModel":
        return self.with_forward(self._native or self.hf.forward_form())

    def observed(self) -> "LanguageModel":
        """The same model; if a native form on a CPU computes its passes, they also keep the `hidden` rows."""
        native = self._native
        return self.with_forward(Observed(native)) if native is not None and self.runs_by is native else self

    def tapped(self, states: LayerStates) -> "LanguageModel":
        """The same model, whose passes also write layer inputs to `states`; raises PairError if its form cannot."""
        return self.with_forward(tapped(self.runs_by, states))

    def streaming(self, sinks: int, window: int) -> "LanguageModel":
        """The same model, in which each token attends only to a text's first `sinks` and latest `window` tokens. Raises
        PairError if positions are not rotary, or if the model caches states or whole paths in place of rows.
        """
        if own := self._own_cache:
            raise PairError(
                f"{self.name} {own}, from which streaming cannot drop tokens; leave out streaming, or choose "
                "models whose layers all attend to cached keys and values"
            )
        frequencies = self._frequencies
        rotation = None if frequencies is None else key_rotation(self.runs_by, frequencies, self.context, self.dtype)
        if rotation is None:
            raise PairError(
                f"the positions of {self.name} are not rotary, so streaming cannot move its attention sinks; leave out "
                "streaming, or choose models of another family"
            )
        return self.with_forward(Streaming(self.runs_by, rotation, sinks, window))

    @property
    def _own_cache(self) -> str:
        """Words for error messages if the model caches states or whole paths in place of rows; else empty."""
        if self.hf.by_paths:
            return "computes whole paths in caches of its own"
        return "keeps states" if self.keeps_states else ""

    @property
    def embedding(self) -> Float[Tensor, "V X"]:
        return self._native.embedding if self._native else self.hf.embedding

    @property
    def output_head(self) -> Float[Tensor, "V X"]:
        """Weights of the output head, read from a file if the module is not in memory."""
        tied = self.architecture is not None and self.architecture.tie_word_embeddings
        return self.embedding if tied else self.hf.output_head

    @property
    def by_torch_threads(self) -> bool:
        """Whether torch's CPU threads compute the passes."""
        compiled = isinstance(self._native, CompiledModel) and self.runs_without_module
        return self.device.type == "cpu" and not compiled and not self.computed_by

    @property
    def saved_bytes(self) -> int:
        """Bytes of the model's matrices in its dtype, minus the bytes that a compiled model reads in place of them."""
        native = self._native if isinstance(self._native, CompiledModel) else None
        return native.weights * self.dtype.itemsize - native.weight_bytes if native else 0

    @property
    def _frequencies(self) -> Float[Tensor, "R"] | None:
        """RoPE frequencies, in radians per position; None if the model's positions are not rotary."""
        if self._rotary is not None:
            return self._rotary
        loaded, frequencies = self.hf.loaded, self.hf.frequencies
        if loaded is None:
            self.slim()  # the frequencies were read from the module, which is dropped unless passes need it
        return frequencies

    @property
    def hidden(self) -> Float[Tensor, "N X"] | None:
        """Hidden rows of the latest pass, after all layers; None if the model does not keep them."""
        return self.runs_by.latest if isinstance(self.runs_by, Observed) else None

    @property
    def hidden_width(self) -> int:
        return self.runs_by.width if isinstance(self.runs_by, Observed) else 0


def native_on_cpu(traits: Traits) -> NativeModel | CompiledModel | None:
    """A compiled model if the library exists and the dtype is not float64, else a native one; None if neither works."""
    source = traits.source if traits.device.type == "cpu" else None
    if source is None:
        return None
    if traits.dtype is not torch.float64 and (found := library()):
        return compiled_model(source, found)
    if only_compiled(source.architecture):
        return None
    # A CPU's arithmetic in half precision takes more time than the smaller weights save.
    dtype = torch.float32 if traits.dtype in HALF else traits.dtype
    return native_model(source, dtype, traits.context)


_hf = functools.partial(imported, "decoder.forward.hf")


NEVER = -1e4
"""Logit of tokens that a draft cannot predict: their probability is 0, but recorded log-probabilities stay finite."""


@dataclass(frozen=True)
class Fit:
    known: int
    width: int
    instead: int
    """The id that the draft reads in place of an id that it lacks."""

    def read(self, tokens: Sequence[int]) -> Sequence[int]:
        return [token if token < self.known else self.instead for token in tokens]

    def read_on_device(self, tokens: Int[Tensor, "N"]) -> Int[Tensor, "N"]:
        """`read` for a tensor; does not synchronise host and device."""
        return tokens if self.known >= self.width else tokens.masked_fill(tokens >= self.known, self.instead)

    def logits(self, own: Float[Tensor, "*N W"]) -> Float[Tensor, "*N V"]:
        """The draft's logits over the target's ids."""
        lacking = self.width - own.shape[-1]
        return own[..., : self.width] if lacking <= 0 else functional.pad(own, (0, lacking), value=NEVER)


def fit(model: LanguageModel, width: int) -> Fit | None:
    """The conversion of a model to `width` token ids; None if the model has this number."""
    return None if model.width == width else Fit(model.width, width, _read_instead(model))


def fitted(model: LanguageModel, width: int) -> "LanguageModel | _Fitted":
    conversion = fit(model, width)
    return _Fitted(model, conversion) if conversion else model


def _read_instead(model: LanguageModel) -> int:
    """Id that the draft reads in place of an id that it lacks: its first end-of-text token, or 0 without one. Most
    tokens that are added to a vocabulary also end a part of a text.
    """
    named = model.eos if isinstance(model.eos, list) else [model.eos]
    return next((token for token in named if isinstance(token, int) and 0 <= token < model.width), 0)


@dataclass(eq=False)
class _Fitted(Forward):
    model: LanguageModel
    conversion: Fit

    def new_cache(self, capacity: int) -> KvCache:
        return self.model.new_cache(capacity)

    def forward(self, cache: KvCache, tokens: Ints, positions: Ints, visible: Mask) -> Float[Tensor, "N V"]:
        return self.conversion.logits(self.model.forward(cache, self.conversion.read(tokens), positions, visible))

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        return self.conversion.logits(self.model.read(cache, self.conversion.read(tokens)))

    def best(self, cache: KvCache, tokens: Ints, positions: Ints, visible: Mask, ranking: Ranking) -> Best:
        return ranked(self.forward(cache, tokens, positions, visible), ranking)

    def best_after(self, cache: KvCache, tokens: Sequence[int], ranking: Ranking) -> Best:
        return ranked(self.read(cache, tokens)[None], ranking)
