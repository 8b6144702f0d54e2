"""Refuses models with which the engine cannot decode losslessly; the error is raised before any decoding.

Most incompatibilities show in the configuration or in the two tokenizers. A probe finds all other incompatibilities: it
computes a few tokens as a tree and as plain text, and compares the logits, which differ if attention ignores the tree
mask. Some incompatibilities show only in a text that is longer than a size in the configuration, for example an
attention window. The probe finds them by reducing the size to 2 tokens.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decoder.errors import DeviceError, PairError, first_line, quoted
from decoder.forward.families.architecture import Architecture
from decoder.forward.kv_cache import KvCache
from decoder.forward.language_model import LanguageModel
from decoder.forward.layer_kinds import (
    FULL,
    LIMITS,
    NO_MEMORY,
    STATES,
    attention_types,
    by_layers,
    longest_text,
    takes_paths,
    window_sizes,
)
from decoder.knobs import MOST
from decoder.models.checkpoint_files import LARGEST
from decoder.models.checkpoints import load_tokenizer
from decoder.models.gguf_file import GgufFile, check_gguf
from decoder.models.tokenizer import TextTokenizer
from decoder.system.libraries import imported

REMEDY = "choose a decoder-only language model of another family"
KINDS = {FULL, "indexed_attention", *LIMITS, *STATES, *NO_MEMORY}
"""Supported layer types: full, indexed or windowed attention, layers with a state, and layers without memory."""
CHOSEN = "keep_window_size"
"""Configuration field: number of tokens that sparse attention selects; in a shorter text, it selects all tokens."""

SAMPLE = "The quick brown fox, naïve as ever, jumped over 12 lazy dogs.\n\tdef f(x): return x"
"""Text that two tokenizers with equal vocabularies may still split into different tokens."""
HALF_BYTES = 2
NO_TEXT = "it does not run on token ids alone"
NO_TREE = "it does not accept the attention mask or the positions of a tree"
NO_CACHE = "it keeps no cache of a text"
SIBLINGS = 32
"""Number of siblings in the probe's tree. If a model uses row numbers as positions, its positions are wrong by this
number, and this error is visible even in half precision.
"""
AS_TREE = f"for a draft tree of {SIBLINGS + 2} nodes than for plain text"
GIVEN = "with the positions 0, 1, 2, ..., as transformers' generate gives them, than with the model's own positions"
TEXT, FIRST, SECOND, THIRD, FOURTH = (1, 2, 3), 4, 5, 6, 7
PATHS = (FIRST,), (SECOND,), (FIRST, THIRD), (FIRST, THIRD, FOURTH)
"""Probe paths after `TEXT`: three paths of a tree, and the third path with one more token, read after the tree."""
LATER = (FIRST, THIRD), (FIRST, THIRD, FIRST), (FIRST, THIRD, SECOND), (FIRST, THIRD, FIRST, FOURTH)
"""Paths through a second tree, which follows the path (FIRST,) of the first tree: three paths of the second tree, and
the path (FIRST, THIRD, FIRST) with one more token, read after the second tree.
"""
PASSED = 2
"""Number of tokens to which the probe reduces each size, one at a time; every text of the probe is longer."""


def check_config(name: str, config: Any) -> None:
    """Raises PairError for a checkpoint without a language model, or with a model that the engine cannot run."""
    if isinstance(config, GgufFile):
        check_gguf(name, config)
        return
    if isinstance(config, Architecture):
        check_architecture(name, config)
        return
    encodes = getattr(config, "is_encoder_decoder", False)
    if not encodes and not imported("decoder.models.hf_checkpoints").writes_text(config):
        raise PairError(f"{name} is a model of type {config.model_type}, which does not generate text; {REMEDY}")
    try:
        of_text = config.get_text_config()
    except ValueError:  # transformers raises it for a model with several language models
        raise PairError(f"{name} contains several language models, but only one is supported; {REMEDY}") from None
    check_architecture(name, of_text)


def check_architecture(name: str, config: Any) -> None:
    """Raises PairError unless the model is a decoder with a KV cache or states, or computes whole paths."""
    if getattr(config, "is_encoder_decoder", False):
        raise PairError(f"{name} is an encoder-decoder; {REMEDY}")
    if getattr(config, "attn_type", None) == "bi":
        raise PairError(f"{name} reads a text in both directions; {REMEDY}")
    _check_sizes(name, config)
    if takes_paths(config):
        return  # The module makes its own masks and caches, so windows and layer types need no check.
    _check_windows(name, config)
    layers = set(getattr(config, "layer_types", None) or ())
    if other := sorted(layers - KINDS):
        raise PairError(f"{name} has layers of type {', '.join(other)}, which are not supported; {REMEDY}")
    if not any(by_layers(config, "num_attention_heads")) and not STATES.intersection(layers):
        raise PairError(f"{name} has no attention heads, and no layers whose state is of a known kind; {REMEDY}")


def _check_windows(name: str, config: Any) -> None:
    """Refuses attention limits that a mask by position cannot express, or whose size is not a positive integer."""
    for kind, limit in LIMITS.items():
        sizes = window_sizes(config, kind) if kind in attention_types(config) else set()
        if wrong := [size for size in sizes if not (isinstance(size, int) and size >= 1)]:
            raise PairError(
                f"{name} attends to {limit.name} of {quoted(wrong[0])} tokens, which is not a valid size; {REMEDY}"
            )
        if len({min(size, longest_text(config)) for size in sizes}) > 1:
            listed = ", ".join(map(str, sorted(sizes)))
            raise PairError(
                f"{name} attends to {limit.name} of different sizes ({listed} tokens), which is not supported; {REMEDY}"
            )
    for what, size in _unknown_limits(config):
        if size < longest_text(config):
            raise PairError(f"{name} attends to {what} of {quoted(size)} tokens, not to the whole text; {REMEDY}")


def _unknown_limits(config: Any) -> Iterator[tuple[str, int]]:
    """Yields attention limits that a module applies by itself, each as (name for messages, number of tokens)."""
    if "local" in (getattr(config, "attention_layers", None) or ()):
        yield "local windows", getattr(config, "window_size", None) or 0
    yield from (("a choice", size) for size in by_layers(config, CHOSEN) if size)


def _check_sizes(name: str, config: Any) -> None:
    """Refuses implausible sizes, since allocating memory for them would take hours or fail."""
    for key, most in LARGEST.items():
        for size in by_layers(config, key):
            if size is not None and not (isinstance(size, int) and 1 <= size <= most):
                raise PairError(
                    f"the configuration of {name} says that {key} is {quoted(size)}, but it must be 1 to {most}; "
                    "download the model again"
                )


def tokenizers_of(target: str, draft: str | None = None) -> tuple[TextTokenizer, TextTokenizer | None]:
    """Tokenizers of target and draft; the second is None if it equals the first, or if there is no draft."""
    first = load_tokenizer(target)
    if draft is None:
        return first, None
    second = load_tokenizer(draft)
    same = first.get_vocab() == second.get_vocab() and first(SAMPLE).input_ids == second(SAMPLE).input_ids
    return first, None if same else second


@torch.inference_mode()
def probe(model: LanguageModel, plain: LanguageModel | None = None) -> None:
    """Compares the logits of a small tree with the logits of its paths as plain text. For a loaded module, repeats the
    comparison with each size in the configuration reduced to `PASSED`. A model whose logits agree only if it computes
    whole paths is set to compute whole paths, which is slower.

    `plain` has the same weights in another form, which computes the plain text if no module is loaded.

    Raises:
        PairError: This model cannot compute a draft tree; the message says why.
        DeviceError: The device's memory is full.
    """
    try:
        _check(model, plain)
    except PairError:
        if plain is not None or model.ranks or model.hf.loaded is None or not _computes_paths(model):
            raise
        model.run_by_paths()


def _computes_paths(model: LanguageModel) -> bool:
    """Whether the probe succeeds if the model computes whole paths; False if it computes whole paths already."""
    if model.hf.by_paths:
        return False
    try:
        _check(model.by_paths())
    except PairError:
        _check_counting(model)
        return False
    return True


def _check_counting(model: LanguageModel) -> None:
    if not imported("decoder.forward.hf").takes_positions(model.hf.module):
        return
    places = torch.arange(len(TEXT), device=model.device)[None]
    given = _tried(model, lambda: _by_module(model, TEXT, position_ids=places), NO_TEXT)
    _agree(model, given, _tried(model, lambda: _by_module(model, TEXT), NO_TEXT), GIVEN)


def _check(model: LanguageModel, plain: LanguageModel | None = None) -> None:
    _check_trees(model, _text(model, plain))
    if model.hf.loaded is not None:
        _check_ends(model)
        _check_beyond_sizes(model)


def _check_trees(model: LanguageModel, text: Tensor) -> None:
    """Refuses a model whose logits for trees and plain text differ; `text`: plain-text logits for the first tree."""
    _agree(model, _tree(model), text)
    if model.keeps_states or model.hf.by_paths:
        after = _after_by_form if model.computed_by else _after
        _agree(model, _second_tree(model), _tried(model, lambda: after(model, LATER), NO_TEXT))


def _tree(model: LanguageModel) -> Tensor:
    """Logits after the probe's text and after each of `PATHS`, computed as a tree; shape (5, V)."""

    def as_tree() -> Tensor:
        cache, drafted = _first_tree(model)
        cache.keep([cache.length + node for node in (0, 1, SIBLINGS + 1)])
        return torch.cat((drafted, model.read(cache, [FOURTH])[None])).float()

    module = model.hf.loaded
    continues = module is None or imported("decoder.forward.hf").takes_cache(module)
    return _tried(model, as_tree, NO_TREE if continues else NO_CACHE)


def _second_tree(model: LanguageModel) -> Tensor:
    """Logits after the paths `LATER` of a second tree, which follows a kept path of the first; shape (4, V)."""

    def as_tree() -> Tensor:
        cache, _ = _first_tree(model)
        cache.keep([cache.length, cache.length + 1])
        fork = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1]], dtype=np.bool_)
        drafted = model.forward(cache, [THIRD, FIRST, SECOND], [4, 5, 5], fork)
        cache.keep([cache.length, cache.length + 1])
        return torch.cat((drafted, model.read(cache, [FOURTH])[None])).float()

    return _tried(model, as_tree, NO_TREE)


def _first_tree(model: LanguageModel) -> tuple[KvCache, Tensor]:
    """The cache after the probe's first tree, and the logits after its text and after each path."""
    tokens = [TEXT[-1], *[FIRST] * (SIBLINGS - 1), SECOND, THIRD]
    positions = [2, *[3] * SIBLINGS, 4]
    visible = np.eye(len(tokens), dtype=np.bool_)
    visible[:, 0] = visible[-1, 1] = True
    cache = model.new_cache(len(TEXT) + len(tokens))
    model.read(cache, TEXT[:-1])
    return cache, model.forward(cache, tokens, positions, visible)[[0, 1, SIBLINGS, SIBLINGS + 1]]


def _text(model: LanguageModel, plain: LanguageModel | None = None) -> Tensor:
    """Logits after the probe's text and after each of `PATHS`, read as plain text; shape (5, V)."""
    if model.hf.loaded is not None:
        return _text_of_module(model)
    form = plain or model
    return _tried(form, lambda: _after_by_form(form, ((), *PATHS)), NO_TEXT)


def _text_of_module(model: LanguageModel) -> Tensor:
    """As `_text`, from passes of the module without mask and positions. Raises PairError if the module's cache has more
    than keys and values.
    """

    def as_kept_text() -> Tensor:
        hf = imported("decoder.forward.hf")
        kept = hf.Appending(hf.unknown_cache(model.layers, len(TEXT)))
        return _by_module(model, TEXT, use_cache=True, **{hf.cache_argument(model.hf.module): kept})

    text = _tried(model, lambda: _after(model, PATHS), NO_TEXT)
    if model.hf.keeps_states or model.hf.by_paths:
        return torch.cat([_after(model, ((),)).cpu(), text])
    kept = _tried(model, as_kept_text, "its cache contains something other than keys and values")
    return torch.stack([kept, *text])


def _after(model: LanguageModel, paths: Sequence[Sequence[int]]) -> Tensor:
    """Logits of the module after the probe's text followed by each path; shape (len(paths), V)."""
    return torch.stack([_by_module(model, [*TEXT, *path]) for path in paths])


def _after_by_form(model: LanguageModel, paths: Sequence[Sequence[int]]) -> Tensor:
    """As `_after`, from passes of the model's forward form; a model with states reads the text token by token."""

    def after(tokens: Sequence[int]) -> Tensor:
        cache = model.new_cache(len(tokens))
        if model.keeps_states:
            for token in tokens[:-1]:
                model.read(cache, [token])
            tokens = tokens[-1:]
        return model.read(cache, tokens).float()

    return torch.stack([after([*TEXT, *path]) for path in paths])


def _check_beyond_sizes(model: LanguageModel) -> None:
    """Probes a module with each size in its configuration reduced to `PASSED`, one at a time, so that the few tokens of
    the probe exceed the size. Sizes of at least the context length are left out, since no text exceeds them.
    """
    if model.runs_without_module or takes_paths(model.hf.module.config.get_text_config()):
        # All sizes of these models are known. Besides, a resized RWKV module shares its weights with the model, and
        # would rescale them in place.
        return
    hf = imported("decoder.forward.hf")
    for name, size in hf.sizes_of(model.hf.module).items():
        if PASSED < size < model.context and name not in LARGEST:
            module = hf.resized(model.hf.module, name, PASSED)
            if module is not None:
                smaller = LanguageModel.of_module(module, f"{model.name}, in a text longer than its {name} of {size},")
                _check_beyond(smaller.by_paths() if model.hf.by_paths else smaller)


def _check_beyond(model: LanguageModel) -> None:
    try:
        text = _text(model)
    except PairError:
        return  # Plain text fails too, so the failure says nothing about trees.
    if text.isfinite().all():
        _check_trees(model, text)


def _check_ends(model: LanguageModel) -> None:
    """Runs a module at the last positions of its context, and checks that a tree fits after a text of this length.

    Families known to compute whole paths are not run: they need no rows after the text, and may need the text before a
    position.
    """
    module, by_paths = model.hf.module, model.hf.by_paths
    if takes_paths(module.config.get_text_config()):
        return

    def at_the_end() -> Tensor:
        last = [max(0, model.context - 2), model.context - 1]
        return _by_module(model, [4, 5], position_ids=torch.tensor([last], device=model.device))

    if not by_paths or imported("decoder.forward.hf").takes_positions(module):
        _tried(model, at_the_end, f"it has fewer positions than the {model.context} that its configuration states")
    if not by_paths and not model.has_room(1 + MOST):
        raise _no_tree(model, f"it cannot process a draft tree after a text of {model.context} tokens")


def _by_module(model: LanguageModel, tokens: Sequence[int], **given: Any) -> Tensor:
    """Logits of the module after the last of these tokens; shape (V,)."""
    logits: Tensor = model.hf.module(input_ids=torch.tensor([tokens], device=model.device), **given).logits
    return logits[0, -1].float()


def _tried(model: LanguageModel, attempt: Callable[[], Tensor], fault: str) -> Tensor:
    """Result of an attempt to run the model; raises PairError if it fails. `fault` says what the model cannot do."""
    try:
        # Copied to the host, since a device reports errors only when the host waits for it.
        return attempt().cpu()
    except torch.OutOfMemoryError as error:
        raise DeviceError(
            f"the memory of {model.device} is too small to run {model.name}; choose a smaller model"
            f"{'' if model.dtype.itemsize == HALF_BYTES else ', or --dtype float16'}"
        ) from error
    except Exception as error:  # each family has its own error for unsupported inputs
        if model.hf.quantised and fault == NO_TEXT:
            raise PairError(
                f"{model.name} fails on {model.device} with weights in {model.precision}: {first_line(error)}; "
                "name the unquantised model, or give another --device or --dtype"
            ) from error
        raise _no_tree(model, fault) from error


def _no_tree(model: LanguageModel, fault: str) -> PairError:
    return PairError(f"{model.name} cannot run a draft tree: {fault}; {REMEDY}")


def _agree(model: LanguageModel, computed: Tensor, as_text: Tensor, how: str = AS_TREE) -> None:
    """Refuses a model whose logits differ from those of plain text by more than rounding; `how` says in words how the
    logits `computed` were computed.
    """
    if not as_text.isfinite().all():
        wide = model.dtype in (torch.float32, torch.float64)
        raise PairError(
            f"{model.name} computes logits that are not finite in {str(model.dtype).removeprefix('torch.')}; "
            f"{'its weights may hold such numbers: download the model again' if wide else 'give --dtype float32'}, or "
            "choose another model"
        )
    scale = max(1.0, float(as_text.abs().max()))
    # Products of quantised weights are imprecise: they may be in half precision, or round the activations too.
    precise = model.dtype in (torch.float32, torch.float64) and not model.hf.quantised
    tolerance = scale * (1e-3 if precise else 0.1)
    worst = float((computed - as_text).abs().max())
    if not worst <= tolerance:  # NaN fails too
        raise PairError(f"{model.name} computes different logits {how} (difference {worst:.2g}); {REMEDY}")
