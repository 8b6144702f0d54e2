"""Refuses models that the engine cannot decode exactly, each with one sentence, before any text depends on them.

A configuration or two tokenizers tell most of it. The rest is tried: a few tokens go through a model as a tree and as
plain text, so that attention which does not follow a tree mask is noticed here and not later. What a family does beyond
some size that its configuration names, a window for example, is tried with that size made small.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decoder.deferred import imported
from decoder.errors import DeviceError, PairError, quoted
from decoder.forward.families.architecture import Architecture, longest_text
from decoder.forward.language_model import LanguageModel
from decoder.knobs import MOST
from decoder.models.checkpoints import load_tokenizer
from decoder.models.tokenizer import TextTokenizer

REMEDY = "choose a decoder-only model with full multi-head or grouped-query attention"
LIMITED = {
    "sliding_attention": ("sliding_window", "a sliding window"),
    "chunked_attention": ("attention_chunk_size", "chunks"),
}
"""Layers that attend to a part of the text: the field that says how large it is, and what it is called."""
CHOSEN = "keep_window_size"
"""Field of how many tokens are attended to, chosen by their values: not seen in short texts."""

SAMPLE = "The quick brown fox, naïve as ever, jumped over 12 lazy dogs.\n\tdef f(x): return x"
"""Text that tokenizers of one vocabulary may still cut differently."""
LARGEST = {
    "num_hidden_layers": 1024,
    "num_attention_heads": 4096,
    "num_key_value_heads": 4096,
    "head_dim": 4096,
    "hidden_size": 2**18,
    "intermediate_size": 2**20,
    "vocab_size": 2**24,
    "max_position_embeddings": 2**31,
}
"""Of each size in a configuration: several times what the largest models have."""
NO_TEXT = "it reads no text that is given as tokens alone"
SIBLINGS = 32
"""In the probe's tree. A model that counts rows where it should go by positions is off by as many, which shows in half
precision too; off by one would pass for rounding."""
TEXT, FIRST, SECOND, THIRD = (1, 2, 3), 4, 5, 6
PATHS = (FIRST,), (SECOND,), (FIRST, THIRD)
"""Tokens of the probe: a text, and the paths of its tree."""
PASSED = 2
"""Tokens. The shortest text of the probe has more, so a family whose window is so small computes it as a long text."""


def check_config(name: str, config: Any) -> None:
    """Raises PairError for a checkpoint that holds no language model, or none that the engine can decode."""
    if isinstance(config, Architecture):
        check_architecture(name, config)
        return
    encodes = getattr(config, "is_encoder_decoder", False)
    if not encodes and not imported("decoder.models.hf_checkpoints").writes_text(config):
        raise PairError(f"{name} is a model of type {config.model_type}, which writes no text by itself; {REMEDY}")
    check_architecture(name, config.get_text_config())


def check_architecture(name: str, config: Any) -> None:
    """Raises PairError for what is no plain decoder with full attention, within the longest text that it can hold."""
    _check_sizes(name, config)
    if getattr(config, "is_encoder_decoder", False):
        raise PairError(f"{name} is an encoder-decoder; {REMEDY}")
    for what, window in _windows(config):
        if not isinstance(window, int) or window < longest_text(config):
            raise PairError(f"{name} attends to {what} of {quoted(window)} tokens, not to its whole text; {REMEDY}")
    layers = set(getattr(config, "layer_types", None) or ())
    if other := sorted(layers - {"full_attention", *LIMITED}):
        raise PairError(f"{name} has layers of type {', '.join(other)}; {REMEDY}")
    if not any(by_layers(config, "num_attention_heads")):
        raise PairError(f"{name} has no attention heads (a recurrent model?); {REMEDY}")


def _windows(config: Any) -> Iterator[tuple[str, int]]:
    """What some layer's attention is limited to, and to how many tokens."""
    layers = getattr(config, "layer_types", None)
    for kind, (field, what) in LIMITED.items():
        if kind in (layers or ()):
            yield from ((what, window or 0) for window in by_layers(config, field))
    if "local" in (getattr(config, "attention_layers", None) or ()):
        yield "local windows", getattr(config, "window_size", None) or 0
    if layers is None and getattr(config, "use_sliding_window", True):
        yield from (("a sliding window", window) for window in by_layers(config, "sliding_window") if window)
    yield from (("a choice", window) for window in by_layers(config, CHOSEN) if window)


def by_layers(config: Any, field: str) -> list[Any]:
    """The values of a field over all layers; a single one where all have the same."""
    try:
        return [getattr(config, field, None)]
    except RuntimeError:  # which transformers raises where layers differ in it
        return [getattr(layer, field, None) for layer in config.per_layer_config]


def _check_sizes(name: str, config: Any) -> None:
    """Refuses numbers that no model has, before hours go into making it, or a memory that nobody has."""
    for key, most in LARGEST.items():
        for found in by_layers(config, key):
            if found is not None and not (isinstance(found, int) and 1 <= found <= most):
                raise PairError(
                    f"the configuration of {name} says that {key} is {quoted(found)}, where 1 to {most} is possible; "
                    "download it again"
                )


def common_tokenizer(target: str, draft: str | None = None) -> TextTokenizer:
    """The tokenizer that both share, the target's where it is alone; raises PairError where they share none."""
    first = load_tokenizer(target)
    if draft is None:
        return first
    second = load_tokenizer(draft)
    if first.get_vocab() != second.get_vocab() or first(SAMPLE).input_ids != second(SAMPLE).input_ids:
        raise PairError(f"{target} and {draft} have different tokenizers; choose two models of one family")
    return first


@torch.inference_mode()
def probe(model: LanguageModel, plain: LanguageModel | None = None) -> None:
    """Runs a small tree and some of its paths as plain text, which must agree; then tries how far both can go.

    Args:
        model: What is tried.
        plain: The same weights in another form, which reads plain text where there is no module; None: `model` does.

    Raises:
        PairError: This model cannot be verified as a tree; the sentence says why.
        DeviceError: The device's memory is full.
    """
    text = _text(model, plain)
    _agree(model, _tree(model), text)
    if model.hf.loaded is not None:
        _check_ends(model)
        _check_beyond_sizes(model)


def _tree(model: LanguageModel) -> Tensor:
    """Logits after a text and each of its continuations, read as a tree; shape (4, V)."""
    tokens = [TEXT[-1], *[FIRST] * (SIBLINGS - 1), SECOND, THIRD]
    positions = [2, *[3] * SIBLINGS, 4]
    visible = np.eye(len(tokens), dtype=np.bool_)
    visible[:, 0] = visible[-1, 1] = True

    def as_tree() -> Tensor:
        cache = model.new_cache(len(TEXT) + len(tokens))
        model.read(cache, TEXT[:-1])
        return model.forward(cache, tokens, positions, visible)[[0, 1, SIBLINGS, SIBLINGS + 1]].float()

    return _tried(model, as_tree, "it does not take the attention mask, or the positions, that a tree needs")


def _text(model: LanguageModel, plain: LanguageModel | None = None) -> Tensor:
    """The same, read as plain text; see `probe`."""
    return _text_of_form(plain or model) if model.hf.loaded is None else _text_of_module(model)


def _text_of_form(model: LanguageModel) -> Tensor:
    """By the form that it runs by, each read into a cache of its own."""

    def after(tokens: Sequence[int]) -> Tensor:
        return model.read(model.new_cache(len(tokens)), tokens).float()

    return _tried(model, lambda: torch.stack([after([*TEXT, *path]) for path in ((), *PATHS)]), NO_TEXT)


def _text_of_module(model: LanguageModel) -> Tensor:
    """By the Hugging Face module itself, without mask and positions; only the first has a cache."""

    def as_text() -> Tensor:
        return torch.stack([_by_module(model, [*TEXT, *path]) for path in PATHS])

    def as_kept_text() -> Tensor:
        hf = imported("decoder.forward.hf")
        kept = hf.appending(hf.unknown_cache(model.layers, len(TEXT)))
        return _by_module(model, TEXT, use_cache=True, **{hf.cache_argument(model.hf.module): kept})

    text = _tried(model, as_text, NO_TEXT)
    kept = _tried(model, as_kept_text, "it keeps something else than keys and values of one shape for all layers")
    return torch.stack([kept, *text])


def _check_beyond_sizes(model: LanguageModel) -> None:
    """Tries a tree beyond each size that a module's configuration names, which is made smaller than the text for that.

    So windows of any size are passed by a few tokens. Longer texts than the model's own pass none of its sizes.
    """
    if model.runs_without_module:
        return  # Native models hold no more of a configuration than is known.
    hf = imported("decoder.forward.hf")
    for name, size in hf.sizes_of(model.hf.module).items():
        if PASSED < size < model.context and name not in LARGEST:
            module = hf.resized(model.hf.module, name, PASSED)
            if module is not None:
                _check_beyond(
                    LanguageModel.of_module(module, f"{model.name}, in a text longer than its {name} of {size},")
                )


def _check_beyond(model: LanguageModel) -> None:
    """Refuses a model that computes plain text, and otherwise a tree."""
    try:
        text = _text(model)
    except PairError:
        return  # Plain text fails too, so the failure says nothing about trees.
    if text.isfinite().all():
        _agree(model, _tree(model), text)


def _check_ends(model: LanguageModel) -> None:
    """Tries how far a module's positions go, and whether there is room for a tree beside the longest text."""

    def at_the_end() -> Tensor:
        last = [max(0, model.context - 2), model.context - 1]
        return _by_module(model, [4, 5], position_ids=torch.tensor([last], device=model.device))

    _tried(model, at_the_end, f"it has fewer positions than the {model.context} that its configuration names")
    if not model.has_room(1 + MOST):
        raise _no_tree(model, f"it has no room for one beside a text of {model.context} tokens")


def _by_module(model: LanguageModel, tokens: Sequence[int], **given: Any) -> Tensor:
    """Logits after the last of these tokens, by the Hugging Face module itself; shape (V)."""
    logits: Tensor = model.hf.module(input_ids=torch.tensor([tokens], device=model.device), **given).logits
    return logits[0, -1].float()


def _tried(model: LanguageModel, attempt: Callable[[], Tensor], fault: str) -> Tensor:
    """What an attempt gives; where it fails, `fault` says in plain words what the model lacks."""
    try:
        # On the host: a device reports an error only when it is waited for.
        return attempt().cpu()
    except torch.OutOfMemoryError as error:
        raise DeviceError(
            f"the memory of {model.device} is full with {model.name}; choose a smaller model, or --dtype float16"
        ) from error
    except Exception as error:  # each family has its own error for unsupported inputs
        raise _no_tree(model, fault) from error


def _no_tree(model: LanguageModel, fault: str) -> PairError:
    return PairError(f"{model.name} cannot run a draft tree: {fault}; {REMEDY}")


def _agree(model: LanguageModel, as_tree: Tensor, as_text: Tensor) -> None:
    """Refuses a model whose logits, shape (4, V), are others for a tree than for plain text by more than rounding."""
    if not as_text.isfinite().all():
        raise PairError(
            f"{model.name} computes logits in {str(model.dtype).removeprefix('torch.')} that are no finite numbers; "
            "choose another dtype, float32 for example, or another model"
        )
    scale = max(1.0, float(as_text.abs().max()))
    tolerance = scale * (1e-3 if model.dtype in (torch.float32, torch.float64) else 0.1)
    worst = float((as_tree - as_text).abs().max())
    if not worst <= tolerance:  # no number is not within it either
        raise PairError(
            f"{model.name} computes other logits for a draft tree of {SIBLINGS + 2} nodes than for plain text "
            f"(by {worst:.2g}); {REMEDY}"
        )
