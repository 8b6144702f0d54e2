"""The Hugging Face module of a model: loaded on first use, and dropped from memory if it can be loaded again.

Models of native families run without the module; for them, only transformers' own methods and the judge of near ties
need it.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.forward.families.architecture import Source, Traits
from decoder.forward.families.registry import HEAD
from decoder.forward.kv_cache import KvCache
from decoder.forward.layer_kinds import keeps_states, takes_paths
from decoder.forward.output_head import widen
from decoder.forward.protocol import Forward
from decoder.system.deferred import imported

Load = Callable[[torch.device], Any]
"""Loads a Hugging Face module on a device."""


class HfModule:
    """A Hugging Face module in evaluation mode, its weights, and the settings of the module's `generate`."""

    def __init__(self, traits: Traits, load: Load | None = None, module: Any = None) -> None:
        """Stores the module, or the traits of a model whose module is loaded on first use.

        Args:
            traits: Traits of the model. Their `source` is kept only if there is no module, since a module's source
                would keep the module's weights in memory.
            load: Function that loads the module; None if the module cannot be loaded again.
            module: The module, if it is already loaded.
        """
        self._device = traits.device
        self._skeleton = traits.skeleton
        self._source = traits.source if module is None else None
        self._load = load
        self._module = module
        if module is not None:
            widen(module)
        self._settings: Any = None
        self._tried_by_paths = False

    @property
    def module(self) -> Any:
        """The module, loaded on first use."""
        if self._module is None:
            self._module = self.load(self._device)
        return self._module

    @property
    def loaded(self) -> Any:
        """The module if it is in memory, else None."""
        return self._module

    @property
    def available(self) -> bool:
        """Whether the complete module is in memory or can be loaded."""
        return self._module is not None or self.reloadable

    @property
    def reloadable(self) -> bool:
        """Whether the module can be loaded again."""
        return self._load is not None

    def load(self, device: torch.device) -> Any:
        """Loads a new copy of the module; raises DeviceError if the device's memory is too small."""
        assert self._load is not None, "a module that cannot be loaded again stays in memory"  # noqa: S101 - a programmer's mistake
        module = self._load(device)
        widen(module)
        if self._settings is not None:
            module.generation_config = self.generation
        return module

    def drop(self) -> None:
        """Frees the module's memory if it can be loaded again."""
        if self.reloadable:
            self._module = None

    def release(self) -> Any:
        """Returns the module to a caller that will modify it; the next use of this object loads another copy."""
        module, self._module = self.module, None
        return module

    @property
    def keeps_states(self) -> bool:
        """Whether the module is in memory and has layers with states (recurrences, for example). No native form
        computes such layers.
        """
        return self._module is not None and keeps_states(self._module.config)

    @property
    def quantised(self) -> bool:
        """Whether the module is in memory and computes with quantised weights."""
        return self._module is not None and bool(_hf().is_quantised(self._module))

    @property
    def by_paths(self) -> bool:
        """Whether draft trees are computed as whole paths, because the module's family is known to need this or because
        a trial has shown it.
        """
        return self._tried_by_paths or (self._module is not None and takes_paths(self._module.config.get_text_config()))

    def choose_paths(self) -> None:
        """Makes `forward_form` return, from now on, forms that compute draft trees as whole paths."""
        self._tried_by_paths = True

    @property
    def skeleton(self) -> Any:
        """The module if it is in memory, else a module of the same structure without weights."""
        return self._skeleton() if self._module is None else self._module

    @property
    def source(self) -> Source | None:
        """The weights, read from a file or from the module; None if the model's family is not native."""
        return self._source or _hf().source_of(self.module)

    @property
    def frequencies(self) -> Float[Tensor, "R"] | None:
        """Rotary frequencies; None if positions are not rotary, or if layers have different frequencies."""
        return self._source.frequencies if self._source else _hf().frequencies_of(self.module)

    @property
    def embedding(self) -> Float[Tensor, "V X"]:
        """Input embedding: one row per token id."""
        weight: Tensor = self.module.get_input_embeddings().weight
        return weight.detach()

    @property
    def output_head(self) -> Float[Tensor, "V X"]:
        """Weight of the output head: one row per token id."""
        if self._module is None and self._source:
            return self._source.weights[HEAD]
        weight: Tensor = self.module.get_output_embeddings().weight
        return weight.detach()

    @property
    def generation(self) -> Any:
        """Generation settings for transformers' own methods."""
        if self._settings is None:
            return self.module.generation_config
        if isinstance(self._settings, tuple):
            self._settings = _hf().settings(*self._settings)
        return self._settings

    def end_with(self, eos: Any, pad: int | None) -> None:
        """Sets end-of-text and padding tokens for transformers' own methods; resets all other settings to defaults."""
        self._settings = eos, pad
        if self._module is not None:
            self._module.generation_config = self.generation

    def has_room(self, text: int, rows: int) -> bool:
        """Whether the module can compute `rows` rows together after a text of `text` tokens."""
        return bool(_hf().has_room(self.module, text, rows))

    def forward_form(self) -> Forward:
        """The module as a `Forward`; loads the module."""
        module = self.module
        form: Forward
        if self.by_paths:
            form = _whole_paths().PathForward(module)
        elif keeps_states(module.config):
            form = _recurrent().RecurrentForward(module)
        else:
            form = _hf().ModuleForward(module)
        return form


class OnDemand:
    """A `Forward` that runs a Hugging Face module; the module is loaded at the first pass."""

    def __init__(self, hf: HfModule) -> None:
        self._hf = hf

    @functools.cached_property
    def _form(self) -> Forward:
        return self._hf.forward_form()

    def new_cache(self, capacity: int) -> KvCache:
        return self._form.new_cache(capacity)

    def forward(
        self, cache: KvCache, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Float[Tensor, "N V"]:
        return self._form.forward(cache, tokens, positions, visible)

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        return self._form.read(cache, tokens)


_hf = functools.partial(imported, "decoder.forward.hf")
"""Imports the module `decoder.forward.hf`, which needs transformers."""
_recurrent = functools.partial(imported, "decoder.forward.recurrent.forward")
"""Imports the module `decoder.forward.recurrent.forward`, which needs transformers too."""
_whole_paths = functools.partial(imported, "decoder.forward.whole_paths")
"""Imports the module `decoder.forward.whole_paths`, which needs transformers too."""
