"""The Hugging Face module of a model: it is loaded on first use, and can be dropped from memory if it can be loaded
again. For models of native families, only transformers' own generation methods and the near-tie check need it.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.forward.families.architecture import ModelWeights, Traits
from decoder.forward.families.registry import HEAD
from decoder.forward.layer_kinds import keeps_states, takes_paths
from decoder.forward.linear import widen
from decoder.forward.protocol import Forward, Wrapped
from decoder.system.libraries import imported

Load = Callable[[torch.device], Any]


class HfModule:
    def __init__(self, traits: Traits, load: Load | None = None, module: Any = None) -> None:
        """`load` is None if the module cannot be loaded again."""
        self._device = traits.device
        self._skeleton = traits.skeleton
        # A source that was made from a module would keep the module's weights in memory.
        self._source = traits.source if module is None else None
        self._load = load
        self._module = module
        if module is not None:
            widen(module)
        self._settings: Any = None
        self._tried_by_paths = False

    @property
    def module(self) -> Any:
        if self._module is None:
            self._module = self.load(self._device)
        return self._module

    @property
    def loaded(self) -> Any:
        return self._module

    @property
    def available(self) -> bool:
        return self._module is not None or self.reloadable

    @property
    def reloadable(self) -> bool:
        return self._load is not None

    def load(self, device: torch.device) -> Any:
        """Raises DeviceError if the device's memory is too small."""
        assert self._load is not None, "a module that cannot be loaded again stays in memory"  # noqa: S101 - a programmer's mistake
        module = self._load(device)
        widen(module)
        if self._settings is not None:
            module.generation_config = self.generation
        return module

    def drop(self) -> None:
        if self.reloadable:
            self._module = None

    def release(self) -> Any:
        """Returns the module to a caller that will modify it; the next use of this object loads another copy."""
        module, self._module = self.module, None
        return module

    @property
    def keeps_states(self) -> bool:
        """Whether the module is in memory and has layers with states. No native form computes such layers."""
        return self._module is not None and keeps_states(self._module.config)

    @property
    def quantised(self) -> bool:
        """Whether the module is in memory and computes with quantised weights."""
        return self._module is not None and bool(_hf().is_quantised(self._module))

    @property
    def by_paths(self) -> bool:
        """Whether the module computes draft trees as root-to-leaf paths, because its family or a probe requires it."""
        return self._tried_by_paths or (self._module is not None and takes_paths(self._module.config.get_text_config()))

    def choose_paths(self) -> None:
        self._tried_by_paths = True

    @property
    def skeleton(self) -> Any:
        """The module if it is in memory, else a module without weights."""
        return self._skeleton() if self._module is None else self._module

    @property
    def source(self) -> ModelWeights | None:
        """Weights for a native model, read from a file or from the module; None if the family is not native."""
        return self._source or _hf().source_of(self.module)

    @property
    def frequencies(self) -> Float[Tensor, "R"] | None:
        return self._source.frequencies if self._source else _hf().frequencies_of(self.module)

    @property
    def embedding(self) -> Float[Tensor, "V X"]:
        weight: Tensor = self.module.get_input_embeddings().weight
        return weight.detach()

    @property
    def output_head(self) -> Float[Tensor, "V X"]:
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
        return bool(_hf().has_room(self.module, text, rows))

    def forward_form(self) -> Forward:
        module = self.module
        form: Forward
        if self.by_paths:
            form = _whole_paths().PathForward(module)
        elif keeps_states(module.config):
            form = _recurrent().RecurrentForward(module)
        else:
            form = _hf().ModuleForward(module)
        return form


class OnDemand(Wrapped):
    def __init__(self, hf: HfModule) -> None:
        self._hf = hf

    @functools.cached_property
    def inner(self) -> Forward:  # type: ignore[override]  # set by itself, at the first pass
        return self._hf.forward_form()


# These modules import transformers, so they are imported on first use.
_hf = functools.partial(imported, "decoder.forward.hf")
_recurrent = functools.partial(imported, "decoder.forward.recurrent.forward")
_whole_paths = functools.partial(imported, "decoder.forward.whole_paths")
