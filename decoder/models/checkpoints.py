"""Models as they lie in a folder or on the Hugging Face hub: their configuration, weights and tokenizer.

Weights come from safetensors only and no remote code is run. Knows nothing of pairs.
"""

import functools
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from decoder.errors import DeviceError, ModelError, first_line, shortened
from decoder.forward.language_model import LanguageModel

EMBEDDED = Path(__file__).parents[1] / "pretrained"
EMBEDDED_TARGET = EMBEDDED / "books-16m"
EMBEDDED_DRAFT = EMBEDDED / "books-1m"
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
_OF_A_WRONG_KIND = (AttributeError, TypeError, ArithmeticError, LookupError)
"""What fails with these has found a file, but in it something that it had not expected."""


def display_name(name: str) -> str:
    """A hub id as it is, a folder by its last part."""
    return Path(name).name if Path(name).exists() else name


def load_config(name: str) -> Any:
    """The model's configuration, fetched from the hub when it is no folder.

    Raises:
        ModelError: It cannot be had.
    """
    if looks_like_a_path(name) and not Path(name).is_dir():
        raise ModelError(
            f"there is no folder {shortened(name)}; give an existing folder or a hub id such as owner/model"
        )
    return _from_hub(name, "configuration", lambda: AutoConfig.from_pretrained(name, trust_remote_code=False))


def looks_like_a_path(name: str) -> bool:
    """Whether a name can only be meant as a folder: hub ids have at most one slash, inside."""
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name


def load_model(name: str, device: torch.device, dtype: torch.dtype) -> LanguageModel:
    """A model in the form in which it runs fastest here."""
    load = functools.partial(load_module, name, dtype)
    return LanguageModel(load(device), display_name(name), load)


def load_module(name: str, dtype: torch.dtype, device: torch.device) -> Any:
    """Weights in safetensors, in evaluation mode; refuses those that are not what the configuration says."""
    module, info = _from_hub(
        name,
        "weights",
        lambda: AutoModelForCausalLM.from_pretrained(
            name,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # or a traceback refers to a report that nobody is shown
        ),
    )
    if missing := sorted(info["missing_keys"]):
        raise ModelError(
            f"{shortened(name)}: the checkpoint lacks {len(missing)} weights, {missing[0]} first; download it again"
        )
    if strange := sorted(key for key, *_ in info["mismatched_keys"]):
        raise ModelError(
            f"{shortened(name)}: {len(strange)} weights have not the size that the configuration says, {strange[0]} "
            "first; download it again"
        )
    if left := _of_further_layers(info["unexpected_keys"], module.state_dict()):
        raise ModelError(
            f"{shortened(name)}: the checkpoint has weights of more layers than the configuration says, {left[0]} "
            "first; download it again"
        )
    try:
        return module.eval().to(device)
    except torch.OutOfMemoryError as error:
        raise DeviceError(
            f"{shortened(name)} does not fit in the memory of {device}; choose a smaller model or dtype"
        ) from error


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a hub id or folder."""
    tokenizer: PreTrainedTokenizerBase = _from_hub(
        name, "tokenizer", lambda: AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    )
    return tokenizer


def _of_further_layers(unexpected: Iterable[str], known: Iterable[str]) -> list[str]:
    """Names that only the number of a layer tells from those of the model."""
    forms = {_NUMBER.sub("#", name) for name in known}
    return sorted(name for name in unexpected if _NUMBER.sub("#", name) in forms)


def _from_hub(name: str, part: str, load: Callable[[], Any]) -> Any:
    """Runs a loader and says in one line why it could not."""
    try:
        return load()
    except Exception as error:  # each family checks its fields in its own way, and some only by failing
        kind = "a value of a wrong kind: " if isinstance(error, _OF_A_WRONG_KIND) else ""
        raise ModelError(
            f"cannot load the {part} of {shortened(name)}: {kind}{first_line(error)}; give a hub id, or a folder with "
            "config.json, tokenizer and safetensors weights"
        ) from error
