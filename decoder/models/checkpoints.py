"""Reads models from a folder or the Hugging Face hub: configuration, weights and tokenizer.

Models of the native families are read without transformers, whose import takes longer than torch's; transformers reads
all other models. Each model is read alone: whether two models make a pair is decided elsewhere.
"""

import functools
from pathlib import Path
from typing import Any

import torch

from decoder.errors import DeviceError, ModelError, shortened
from decoder.forward.families.architecture import Source, Traits
from decoder.forward.hf_module import Load
from decoder.forward.language_model import LanguageModel
from decoder.forward.windows import longest_text
from decoder.models.adapters import adapter_of, base_of
from decoder.models.config_ranges import check_ranges
from decoder.models.gguf.file import gguf_file, is_gguf
from decoder.models.known_checkpoint import check_texts, content_of, known_architecture, known_ends, known_weights
from decoder.models.load_progress import Tell, downloading
from decoder.models.names import repository
from decoder.models.tokenizer import TextTokenizer, known_tokenizer
from decoder.system.deferred import imported

EMBEDDED = Path(__file__).parents[1] / "pretrained"
EMBEDDED_TARGET = EMBEDDED / "books-16m"
EMBEDDED_DRAFT = EMBEDDED / "books-1m"


def display_name(name: str) -> str:
    """Name of a model for display: a hub id unchanged, or the last part of a folder's path."""
    return Path(name).name if Path(name).exists() else name


def looks_like_a_path(name: str) -> bool:
    """Whether a model's name can only be a path. This is so if the name ends with .gguf, begins like a path, contains a
    backslash, or contains several slashes; a hub id has at most one slash before its revision, after the owner.
    """
    return is_gguf(name) or name.startswith((".", "/", "~")) or repository(name).count("/") > 1 or "\\" in name


def load_config(name: str) -> Any:
    """Configuration of a model. For a hub id or folder, it is an `Architecture` or a configuration object of
    transformers; for a GGUF file, it is a `GgufFile`.

    Raises:
        PairError: A number in the configuration is beyond its range.
        ConfigError: The GGUF file is missing or broken.
        ModelError: There is no configuration, it cannot be read, or it is an adapter's without a base model or peft.
    """
    if is_gguf(name):
        return gguf_file(name)
    if looks_like_a_path(name) and not Path(name).is_dir():
        raise ModelError(
            f"there is no folder {shortened(name)}; give an existing folder or a hub id such as owner/model"
        )
    base = base_of(name)
    check_texts(base)
    check_ranges(display_name(name), content_of(base, "config.json") or b"")
    return known_architecture(base) or _hf().load_config(base)


def load_model(
    name: str,
    device: torch.device,
    dtype: torch.dtype,
    tell: Tell = lambda _: None,
    *,
    gpu_layers: int | None = None,
) -> LanguageModel:
    """Loads the model of a hub id, folder or GGUF file, in its fastest form on the device.

    Args:
        name: Hub id, folder or GGUF file.
        device: Device of the passes; for a GGUF file, the device that logits are moved to.
        dtype: Dtype of the weights; without effect on a GGUF file, whose weights stay as they are.
        tell: Function that is called with the progress, in words.
        gpu_layers: Number of layers of a GGUF file that llama.cpp keeps on a GPU; None: as many as llama.cpp chooses.

    Raises:
        ModelError: The model cannot be found, downloaded or read.
        DeviceError: The model does not fit in the device's memory.
    """
    if is_gguf(name):
        from decoder.models.gguf.model import load_gguf  # noqa: PLC0415 - few runs need it

        return load_gguf(name, device, gpu_layers)

    def load(place: torch.device) -> Any:
        return _hf().load_module(name, dtype, place)

    with downloading(base_of(name), tell):
        traits = known_traits(name, device, dtype, tell)
        if traits is None:
            return LanguageModel.of_module(_hf().load_module(name, dtype, device, tell), display_name(name), load)
        return model_of(traits, display_name(name), load)


def model_of(traits: Traits, name: str, load: Load) -> LanguageModel:
    """A model of a native family, in its fastest form on the device; `load` loads its module.

    Raises:
        DeviceError: The model does not fit in the device's memory.
    """
    try:
        model = LanguageModel.of_weights(traits, name, load)
        if not model.runs_without_module:
            _run_on_device(model)
    except torch.OutOfMemoryError as error:
        raise DeviceError(
            f"{shortened(name)} does not fit in the memory of {traits.device}; choose a smaller model or dtype"
        ) from error
    return model


def known_traits(name: str, device: torch.device, dtype: torch.dtype, tell: Tell) -> Traits | None:
    """Traits of a checkpoint, read without transformers; None if the checkpoint has any unknown part."""
    arch = known_architecture(name)
    if arch is None:
        return None
    ends, weights = known_ends(name), known_weights(name, arch, dtype, device, tell)
    if ends is None or weights is None:
        return None
    return Traits(
        layers=arch.num_hidden_layers,
        width=arch.vocab_size,
        context=longest_text(arch),
        device=device,
        dtype=dtype,
        eos=ends.eos_token_id,
        skeleton=lambda: _hf().skeleton(name, dtype),
        source=Source(arch, weights, arch.frequencies.to(device)),
    )


def load_tokenizer(name: str) -> TextTokenizer:
    """The tokenizer of a hub id, folder or GGUF file."""
    if is_gguf(name):
        from decoder.models.gguf.limits import check_gguf  # noqa: PLC0415 - few runs need it
        from decoder.models.gguf.tokenizer import GgufTokenizer  # noqa: PLC0415 - as above

        check_gguf(display_name(name), file := gguf_file(name))
        return GgufTokenizer(file)
    check_texts(name)
    adapter = adapter_of(name)
    place = adapter.base if adapter and not adapter.has_tokenizer else name
    arch = known_architecture(place) if Path(place).is_dir() else None
    tokenizer: TextTokenizer = (arch and known_tokenizer(Path(place), arch.model_type)) or _hf().load_tokenizer(place)
    return tokenizer


def _run_on_device(model: LanguageModel) -> None:
    """Runs the model in the form for CUDA graphs, or by its module if memory is too small to load that form."""
    from decoder.forward.static.static_forward import static_in_place  # noqa: PLC0415 - runs on a CPU do not need it

    static_in_place(model)
    if not model.runs_without_module:
        model.run_by_module()


_hf = functools.partial(imported, "decoder.models.hf_checkpoints")
"""Imports `hf_checkpoints`, which reads checkpoints of all families that are not native."""
