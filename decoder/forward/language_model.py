"""A language model as the engine sees it. Knows neither where models come from nor whether they fit (see
`decoder.models`), and nothing of drafting.
"""

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.deferred import imported
from decoder.errors import PairError
from decoder.forward.batch_invariant.pass_sizes import exactly
from decoder.forward.families.architecture import Source, Traits
from decoder.forward.families.registry import Arithmetic, native_model
from decoder.forward.kv_cache import KvCache
from decoder.forward.layer_states import LayerStates
from decoder.forward.observed import Observed
from decoder.forward.protocol import Forward, TensorParallelGroup
from decoder.forward.streaming import Streaming, key_turn
from decoder.forward.tapped import tapped

Load = Callable[[torch.device], Any]
"""Loads a Hugging Face module."""


class LanguageModel:
    """A causal language model: rows in, logits out, keys and values appended to a cache.

    Fast families run through `decoder.forward.families` on a CPU, and on CUDA through what `decoder.forward.static`
    makes of them. Their Hugging Face module is then needed only by transformers' own methods and to judge near ties,
    and is loaded when one of these asks for it.
    """

    def __init__(self, given: Any, name: str, load: Load | None = None) -> None:
        """Takes a loaded module, or what is known of a model that runs without one.

        Args:
            given: A Hugging Face module in evaluation mode; or the `Traits` of a model whose weights can be read, which
                elsewhere than on a CPU runs by its module until it is given another forward form.
            name: Hub id or folder name.
            load: Loads the module, on a device; None: it must be held.
        """
        self.name = name
        self._module: Any = None if isinstance(given, Traits) else given
        traits = given if isinstance(given, Traits) else _hf().traits_of(given)
        self.layers: int = traits.layers
        self.width: int = traits.width
        self.context: int = traits.context
        self.device: torch.device = traits.device
        self.dtype: torch.dtype = traits.dtype
        self.eos: Any = traits.eos
        self.ranks: TensorParallelGroup | None = None
        """The processes that run it together; None: this one does alone."""
        self._skeleton = traits.skeleton
        # The source of a module is not kept: it would hold the weights.
        self._source = traits.source if self._module is None else None
        self._load = load
        self._settings: Any = None
        on_cpu = traits.source if self.device.type == "cpu" else None
        self._native = native_model(on_cpu, Arithmetic.of(self.dtype)) if on_cpu else None
        self.runs_without_module = self._native is not None
        """Whether passes run without the module."""
        by_module = None if self._module is None else _hf().ModuleForward(self._module)
        self.runs_by: Forward | None = self._native or by_module
        """The forward form that it runs by; None: its module, loaded by the first pass."""

    @property
    def module(self) -> Any:
        """The Hugging Face module, which is loaded and held from now on if it is not yet."""
        if self._module is None:
            self._module = self.loaded(self.device)
        return self._module

    @property
    def held(self) -> Any:
        """The Hugging Face module; None where it was not loaded, or let go of."""
        return self._module

    @property
    def has_module(self) -> bool:
        """Whether the whole module is held or can be."""
        return self._module is not None or self.can_load

    @property
    def can_load(self) -> bool:
        """Whether the module can be loaded again."""
        return self._load is not None

    def loaded(self, device: torch.device) -> Any:
        """The module once more, held by nobody else; raises DeviceError where the device's memory is too small."""
        assert self._load is not None, "a module that cannot be loaded again is held"  # noqa: S101 - a programmer's mistake
        module = self._load(device)
        if self._settings is not None:
            module.generation_config = self.generation
        return module

    @property
    def skeleton(self) -> Any:
        """The module, or one without weights that has the same parts and shapes."""
        return self._skeleton() if self._module is None else self._module

    @property
    def source(self) -> Source | None:
        """Its weights, in a file or in the module; None where it is of no family that runs without the module."""
        return self._source or _hf().source_of(self.module)

    def slim(self) -> None:
        """Lets go of weights that are held twice, where they can be loaded again."""
        if self.runs_without_module and self._load:
            self._module = None

    def release_module(self) -> Any:
        """The module, for one who takes it apart; a pass loads it again unless another forward form was given."""
        module, self._module = self.module, None
        self.drop_forward()
        return module

    def drop_forward(self) -> None:
        """Drops the forward form that it runs by; the next pass loads the module unless another one was given."""
        self.runs_by, self.runs_without_module = None, False

    def run_by(self, forward: Forward) -> None:
        """Runs by this from now on, which needs no module."""
        self.runs_by, self.runs_without_module = forward, True

    def run_by_module(self) -> None:
        """Runs by the Hugging Face module from now on."""
        self.drop_forward()
        self.runs_by = _hf().ModuleForward(self.module)

    @property
    def _forward(self) -> Forward:
        if self.runs_by is None:
            self.run_by_module()
        return cast("Forward", self.runs_by)

    @property
    def generation(self) -> Any:
        """Generation settings of transformers' own methods."""
        if self._settings is None:
            return self.module.generation_config
        if isinstance(self._settings, tuple):
            self._settings = _hf().settings(*self._settings)
        return self._settings

    def end_with(self, eos: Any, pad: int | None) -> None:
        """Lets transformers' own methods go by these tokens and by nothing else."""
        self._settings = eos, pad
        if self._module is not None:
            self._module.generation_config = self.generation

    def new_cache(self, capacity: int) -> KvCache:
        """An empty cache of `capacity` rows."""
        return self._forward.new_cache(capacity)

    def forward(
        self, cache: KvCache, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Float[Tensor, "N V"]:
        """Logits of N new rows, which are appended to the cache.

        Args:
            cache: All its committed rows are visible to every new row.
            tokens: Token ids of the new rows, N of them.
            positions: Their positions in the text, which siblings share.
            visible: Shape (N, M): which of the last M rows, drafted and new, each new row attends to.
        """
        return self._forward.forward(cache, tokens, positions, visible)

    def read(self, cache: KvCache, tokens: Sequence[int], chunk: int = 512) -> Float[Tensor, "V"]:
        """Appends and commits plain text, and returns the logits after its last token."""
        last = max(0, len(tokens) - 1) // chunk * chunk
        for start in range(0, last, chunk):
            self._forward.read(cache, tokens[start : start + chunk])
        return self._forward.read(cache, tokens[last:])

    def has_room(self, rows: int) -> bool:
        """Whether so many rows can be computed together after the longest text."""
        # Native models hold nothing that is as long as a text.
        return self.runs_without_module or bool(_hf().has_room(self.module, self.context, rows))

    def exact(self) -> "LanguageModel":
        """The same weights, batch-invariant: a row has the same bits whatever is computed beside it.

        Raises:
            PairError: This model cannot be run so.
        """
        if self._native is None and self.runs_without_module:
            # What it ran by until now must be gone before the module comes.
            self.run_by_module()
        by = imported("decoder.forward.batch_invariant.attention")
        forward = by.exact_native(self._native, self.dtype) if self._native else by.ExactModule(self.module)
        return self._run_by(exactly(forward, self.width, cuda=self.device.type == "cuda"))

    def inexact(self) -> "LanguageModel":
        """The same weights, run as fast as possible."""
        return self._run_by(self._native or _hf().ModuleForward(self.module))

    def observed(self) -> "LanguageModel":
        """The same weights, with `hidden` rows where it runs natively and as fast as possible; else itself."""
        native = self._native
        return self._run_by(Observed(native)) if native is not None and self._forward is native else self

    def tapped(self, states: LayerStates) -> "LanguageModel":
        """The same weights and bits, whose passes leave there what enters some layers.

        Raises:
            PairError: It runs in a form that does not show it.
        """
        return self._run_by(tapped(self._forward, states))

    def streaming(self, sinks: int, window: int) -> "LanguageModel":
        """The same weights, each token of which sees `sinks` first tokens of a text and `window` latest ones.

        Raises:
            PairError: Its positions are not rotary.
        """
        frequencies = self._frequencies
        turn = None if frequencies is None else key_turn(self._forward, frequencies, self.context, self.dtype)
        if turn is None:
            raise PairError(
                f"the positions of {self.name} are not rotary, so streaming cannot move its attention sinks; leave out "
                "streaming, or choose models of another family"
            )
        return self._run_by(Streaming(self._forward, turn, sinks, window))

    @property
    def embedding(self) -> Float[Tensor, "V X"]:
        """The rows that tokens enter its first layer as."""
        if self._native:
            return self._native.embedding
        found: Tensor = self.module.get_input_embeddings().weight.detach()
        return found

    @property
    def _frequencies(self) -> Float[Tensor, "R"] | None:
        """Frequencies of its rotary positions, if it has any."""
        if self._native:
            return self._native.rotation.frequencies
        if self._source:
            return self._source.frequencies
        found: Tensor | None = _hf().frequencies_of(self.module)
        self.slim()  # where passes run without the module, it was loaded for this alone
        return found

    @property
    def hidden(self) -> Float[Tensor, "N X"] | None:
        """Rows after all layers, of its latest pass; None of a model that is not observed."""
        return self._forward.latest if isinstance(self._forward, Observed) else None

    @property
    def hidden_width(self) -> int:
        """Width of a hidden row; 0 for a model that is not observed."""
        return self._forward.width if isinstance(self._forward, Observed) else 0

    def _run_by(self, forward: Forward) -> "LanguageModel":
        twin = copy.copy(self)
        twin.runs_by = forward
        return twin


_hf = functools.partial(imported, "decoder.forward.hf")
"""The module that needs transformers."""
