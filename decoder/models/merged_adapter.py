"""Merges an adapter into the module of its base model with peft, which this module imports.

In float32 or float64, the merged module must compute the same logits as peft with the unmerged adapter; both are run on
a few tokens. Only safetensors are opened.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import peft
import torch
from safetensors import safe_open
from torch import Tensor

from decoder.errors import ModelError, first_line, shortened
from decoder.forward import hf
from decoder.models.adapters import Adapter
from decoder.models.checkpoint_files import file_of

WEIGHTS = "adapter_model.safetensors"
TWICE = ".modules_to_save"
"""If a weight's name has this part, peft saves the weight also under the name without this part."""
TOKENS = 8
TOLERANCE = 1e-3
"""Largest allowed difference between merged and unmerged logits, as a share of the largest logit."""
AGAIN = "download the adapter again"


def merged(module: Any, adapter: Adapter) -> Any:
    """Merges an adapter into its base model's `module`; ModelError if its weights cannot be read or do not fit."""
    shown = f"the adapter {shortened(adapter.name)} ({shortened(adapter.kind)})"
    weights = file_of(adapter.name, WEIGHTS)
    if weights is None:
        raise ModelError(
            f"{shown} has no {WEIGHTS}, and pickled weights are not opened; save the adapter again with a current peft"
        )
    with _told(f"cannot read the weights of {shown}", AGAIN):
        sizes = _sizes(weights)
    with _told(f"cannot load {shown}", AGAIN):
        config = peft.PeftConfig.from_pretrained(str(weights.parent))
    if config.is_prompt_learning or config.is_adaption_prompt:
        raise ModelError(
            f"{shown} changes prompts or passes, not weights, which is not supported; choose an adapter that changes "
            "weights, such as LoRA"
        )
    with _told(f"cannot load {shown} into {shortened(adapter.base)}", "name the base model that it was made for"):
        _widen(module, sizes)
        beside = peft.PeftModel(module, config).eval()
        found = beside.load_adapter(str(weights.parent), "default", torch_device=str(module.device))
    # peft saves an embedding with added tokens under two names, and reads only one of them.
    unknown = [key for key in found.unexpected_keys if key.replace(TWICE, "") not in sizes.keys() - {key}]
    for fault, keys in (("lacks {} weights", found.missing_keys), ("has {} unknown weights", unknown)):
        if keys:
            raise ModelError(f"{shown} {fault.format(len(keys))}, for example {shortened(min(keys))}; {AGAIN}")
    with _told(f"cannot merge {shown} into the weights of {shortened(adapter.base)}", "merge it with another tool"):
        precise = hf.dtype_of(module) in (torch.float32, torch.float64) and not hf.is_quantised(module)
        wanted = _logits(beside) if precise else None
        _untie(module)
        merged = beside.merge_and_unload().eval()
        if wanted is not None:
            _check_logits(f"{shortened(adapter.base)} with {shown}", _logits(merged), wanted)
    return merged


def _sizes(weights: Path) -> dict[str, list[int]]:
    with safe_open(weights, "pt") as file:
        return {key: file.get_slice(key).get_shape() for key in file.keys()}  # noqa: SIM118 - the file is no mapping


def _widen(module: Any, sizes: dict[str, list[int]]) -> None:
    """Resizes the embedding and output head to the adapter's number of tokens, if the adapter has weights for them."""
    places = {
        f"{place}{own}.weight"
        for place, part in module.named_modules()
        if part in _ends(module)
        for own in ("", ".base_layer")
    }
    rows = [size[0] for key, size in sizes.items() if size and key.endswith(tuple(places))]
    if rows and max(rows) != module.get_input_embeddings().weight.shape[0]:
        module.resize_token_embeddings(max(rows), mean_resizing=False)


def _ends(module: Any) -> list[Any]:
    return [part for part in (module.get_input_embeddings(), module.get_output_embeddings()) if part is not None]


def _untie(module: Any) -> None:
    """Unties the output head from the embedding if the adapter changes either, since merging would change both."""
    inputs, outputs = module.get_input_embeddings(), module.get_output_embeddings()
    own = [getattr(part, "base_layer", getattr(part, "original_module", part)) for part in (inputs, outputs)]
    if own != [inputs, outputs] and own[0].weight is own[1].weight:
        own[1].weight = torch.nn.Parameter(own[1].weight.detach().clone(), requires_grad=False)
        module.config.tie_word_embeddings = module.config.get_text_config().tie_word_embeddings = False


@torch.inference_mode()
def _logits(module: Any) -> Tensor:
    """Logits after a few tokens, on the host; shape (N, V)."""
    tokens = torch.arange(TOKENS, device=module.device) % module.config.get_text_config().vocab_size
    logits: Tensor = module(input_ids=tokens[None]).logits
    return logits[0].float().cpu()


def _check_logits(shown: str, merged: Tensor, beside: Tensor) -> None:
    """Not called in half precision, in which rounding alone may change all logits."""
    if not float((merged - beside).abs().max()) <= TOLERANCE * max(1.0, float(beside.abs().max())):  # NaN differs too
        raise ModelError(
            f"{shown} computes other logits once it is merged into the weights than beside them; merge it with another "
            "tool"
        )


@contextmanager
def _told(what: str, remedy: str) -> Iterator[None]:
    """Turns every error of peft into a ModelError of one sentence."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the comparison of logits finds what peft warns about
            yield
    except (torch.OutOfMemoryError, ModelError):
        raise
    except Exception as error:
        raise ModelError(f"{what}: {first_line(error)}; {remedy}") from error
