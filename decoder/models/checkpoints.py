"""Reads models from a folder or the Hugging Face hub: configuration, weights and tokenizer.

transformers reads all models except GGUF files and the embedded pair. Other modules check whether two models form a
pair.
"""

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors import safe_open
from tokenizers import Tokenizer
from torch import Tensor

from decoder.errors import DeviceError, ModelError, shortened
from decoder.forward.families.architecture import Architecture, ModelWeights, Traits
from decoder.forward.families.registry import FAMILIES, HEAD, shapes
from decoder.forward.hf_module import HfModule, Load
from decoder.forward.language_model import LanguageModel
from decoder.forward.layer_kinds import longest_text
from decoder.models.adapters import base_of
from decoder.models.checkpoint_files import CONFIG, check_ranges, check_texts, content_of, file_of
from decoder.models.gguf_file import gguf_file, is_gguf
from decoder.models.load_progress import Share, Tell, downloading
from decoder.models.names import repository
from decoder.models.tokenizer import Encoded, TextTokenizer
from decoder.system.device import DTYPES
from decoder.system.libraries import imported

EMBEDDED = Path(__file__).parents[1] / "pretrained"
EMBEDDED_TARGET = EMBEDDED / "books-16m"
EMBEDDED_DRAFT = EMBEDDED / "books-1m"


def is_embedded(name: str) -> bool:
    return name in (str(EMBEDDED_TARGET), str(EMBEDDED_DRAFT))


def display_name(name: str) -> str:
    """Name of a model for display: a hub id unchanged, or the last part of a folder's path."""
    return Path(name).name if Path(name).exists() else name


def looks_like_a_path(name: str) -> bool:
    """Whether a name can only be a path: a hub id has at most one slash before its revision, after the owner."""
    return is_gguf(name) or name.startswith((".", "/", "~")) or repository(name).count("/") > 1 or "\\" in name


def load_config(name: str) -> Any:
    """Configuration of a model: transformers' for a hub id or folder, an `Architecture` for the embedded pair, and a
    `GgufFile` for a GGUF file.

    Raises:
        PairError: A number in the configuration is beyond its range.
        ConfigError: The GGUF file is missing or broken.
        ModelError: There is no readable configuration, or an adapter lacks its base model or the package peft.
    """
    if is_gguf(name):
        return gguf_file(name)
    if looks_like_a_path(name) and not Path(name).is_dir():
        raise ModelError(
            f"there is no folder {shortened(name)}; give an existing folder or a hub id such as owner/model"
        )
    if is_embedded(name):
        return architecture_in(name)
    base = base_of(name)
    check_texts(base)
    check_ranges(display_name(name), content_of(base, CONFIG) or b"")
    return _hf().load_config(base)


def load_model(
    name: str,
    device: torch.device,
    dtype: torch.dtype,
    tell: Tell = lambda _: None,
    *,
    gpu_layers: int | None = None,
) -> LanguageModel:
    """Loads the model of a hub id, folder or GGUF file, in its fastest form on the device.

    `dtype` does not affect the weights of a GGUF file. `tell` is called with the progress, in words.

    Raises:
        ModelError: The model cannot be found, downloaded or read.
        DeviceError: The model does not fit in the device's memory.
    """
    if is_gguf(name):
        from decoder.models.gguf_model import load_gguf  # noqa: PLC0415 - few runs need it

        return load_gguf(name, device, gpu_layers)

    def load(place: torch.device, tell: Tell = lambda _: None) -> Any:
        return _hf().load_module(name, dtype, place, tell)

    if is_embedded(name):
        return model_of(embedded_traits(name, device, dtype, tell), display_name(name), load)
    with _fitting(name, device), downloading(base_of(name), tell):
        module = load(device, tell)
        native = _native_on_cpu(module, display_name(name), load)
        model = native or LanguageModel.of_module(module, display_name(name), load)
    return _on_device(model)


def _native_on_cpu(module: Any, name: str, load: Load) -> LanguageModel | None:
    """The native model of a module on a CPU; None if there is no native form. Each layer of the module is freed once it
    has been read, so that at most one layer is in memory twice.
    """

    def free(layer: str) -> None:
        for weight in module.get_submodule(layer).parameters():
            weight.data = weight.new_empty(0)

    traits = imported("decoder.forward.hf").traits_of(module)
    if traits.source is None or traits.device.type != "cpu":
        return None
    once = replace(traits, source=replace(traits.source, done=free))
    model = LanguageModel(name, once, HfModule(replace(traits, source=None), load))
    return model if model.runs_without_module else None


def model_of(traits: Traits, name: str, load: Load) -> LanguageModel:
    """A model of a native family, in its fastest form on the device; `load` loads its module."""
    with _fitting(name, traits.device):
        model = LanguageModel.of_weights(traits, name, load)
    return _on_device(model)


def embedded_traits(folder: str, device: torch.device, dtype: torch.dtype, tell: Tell = lambda _: None) -> Traits:
    arch = architecture_in(folder)
    return Traits(
        layers=arch.num_hidden_layers,
        width=arch.vocab_size,
        context=longest_text(arch),
        device=device,
        dtype=dtype,
        eos=_content(folder, "generation_config.json")["eos_token_id"],
        skeleton=lambda: _hf().skeleton(folder, dtype),
        source=ModelWeights(arch, EmbeddedWeights(folder, arch, dtype, device, tell), arch.frequencies.to(device)),
    )


def load_tokenizer(name: str) -> TextTokenizer:
    if is_gguf(name):
        from decoder.models.gguf_file import check_gguf  # noqa: PLC0415 - few runs need it
        from decoder.models.gguf_model import GgufTokenizer  # noqa: PLC0415 - as above

        check_gguf(display_name(name), file := gguf_file(name))
        return GgufTokenizer(file)
    if is_embedded(name):
        return PlainTokenizer(name)
    check_texts(name)
    # A tokenizer that an adapter has replaces the base model's.
    own = any(file_of(name, part) for part in ("tokenizer.json", "tokenizer_config.json"))
    tokenizer: TextTokenizer = _hf().load_tokenizer(name if own else base_of(name))
    return tokenizer


def _on_device(model: LanguageModel) -> LanguageModel:
    """The model; on a GPU, in the form for CUDA graphs if its family has such a form and the form fits in memory."""
    if model.architecture and not model.runs_without_module:
        from decoder.forward.static_forward import static_in_place  # noqa: PLC0415 - not needed on a CPU

        with _fitting(model.name, model.device):
            static_in_place(model)
            if not model.runs_without_module:
                model.run_by_module()
    return model


@contextmanager
def _fitting(name: str, device: torch.device) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise DeviceError(
            f"{shortened(name)} does not fit in the memory of {device}; choose a smaller model or dtype"
        ) from error


# The folders of the embedded pair have a known layout: GPT-NeoX in one file, with or without a tied output head, and a
# plain BPE tokenizer. They are read without transformers, which takes longer to import than torch.

_HEAD = "embed_out.weight"


def architecture_in(folder: str) -> Architecture:
    config = _content(folder, "config.json")
    return Architecture.of(SimpleNamespace(**config | {"dtype": DTYPES[config["dtype"]]}))


class EmbeddedWeights(Mapping[str, Tensor]):
    """The weights in a folder by name; each is read from the file when it is accessed."""

    def __init__(self, folder: str, arch: Architecture, dtype: torch.dtype, device: torch.device, tell: Tell) -> None:
        self._path, self._dtype, self._device = Path(folder, "model.safetensors"), dtype, device
        head = f"{FAMILIES[arch.model_type].embedding}.weight" if arch.tie_word_embeddings else _HEAD
        self._names = {name: name for name in shapes(arch)} | {HEAD: head}
        self._read, self._share = set[str](), Share(len(set(self._names.values())), tell)

    def __getitem__(self, name: str) -> Tensor:
        self._share.reached(len(self._read))
        self._read.add(self._names[name])
        with safe_open(self._path, "pt") as file:
            # Copied, since the tensor is a memory map of the file, which another process may change.
            weight: Tensor = file.get_tensor(self._names[name]).to(self._dtype, copy=True)
        return weight.to(self._device)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class PlainTokenizer:
    """A `TextTokenizer` that the tokenizer.json of a folder describes completely."""

    chat_template: Any = None

    def __init__(self, folder: str) -> None:
        self._inner = Tokenizer.from_file(str(Path(folder, "tokenizer.json")))

    def __call__(self, text: str, *, add_special_tokens: bool = True, **_settings: Any) -> Encoded:
        (encoded,) = self._inner.encode_batch([text], add_special_tokens=add_special_tokens)
        return Encoded(encoded.ids)

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = False, **_settings: Any) -> str:  # noqa: FBT001, FBT002 - as transformers has it
        return self._inner.decode(token_ids, skip_special_tokens=skip_special_tokens)

    def get_vocab(self) -> dict[str, int]:
        return self._inner.get_vocab(with_added_tokens=True)

    def convert_tokens_to_ids(self, tokens: Sequence[str]) -> list[int | None]:
        return [self._inner.token_to_id(token) for token in tokens]


def _content(folder: str, part: str) -> Any:
    return json.loads(Path(folder, part).read_bytes())


_hf = functools.partial(imported, "decoder.models.hf_checkpoints")
