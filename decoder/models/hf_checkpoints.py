"""Reads checkpoints and tokenizers with transformers, which this module imports.

Weights are read only from safetensors, and no remote code is run.
"""

import logging
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from decoder.errors import DeviceError, ModelError, first_line, shortened
from decoder.forward import hf
from decoder.models.adapters import adapter_of
from decoder.models.checkpoint_files import config_fault, weight_files, weight_shapes, weights_fault
from decoder.models.hub import folder_with, tokenizer_fault
from decoder.models.load_progress import Share, Tell
from decoder.models.quantisation import device_map, quantisation_of, settings_on
from decoder.system.libraries import imported

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
_SCALE = re.compile(r"\.weight_scale(_inv|_2)?$")
MISSHAPEN = "{} weights differ in shape from the configuration"
MOST_TIMES = 4
"""Largest ratio of a module's weights to the weights in its files; weights that two parts share count twice."""
_WITHOUT_ADAPTER = {"subfolder": "no adapter"}
"""Hides an adapter from transformers, which would load the adapter without merging it into the weights."""
_MTP = "eh_proj.weight"
_OF_A_WRONG_KIND = (AttributeError, TypeError, ArithmeticError, LookupError)


def load_config(name: str) -> Any:
    place = folder_with(name, "configuration")
    return _read(
        name,
        "configuration",
        lambda: AutoConfig.from_pretrained(place, trust_remote_code=False, local_files_only=True),
        lambda: config_fault(Path(place)),
    )


def writes_text(config: Any) -> bool:
    return type(config) in MODEL_FOR_CAUSAL_LM_MAPPING


def load_module(
    name: str, dtype: torch.dtype, device: torch.device, tell: Tell = lambda _: None, ranks: int = 1
) -> Any:
    """The module of a hub id or folder in evaluation mode, with its adapter merged into the weights; with several
    ranks, the part of this process. `tell` is called with the share of weights read so far.

    Raises:
        ConfigError: The weights are quantised in a way that this machine cannot load.
        ModelError: There are no weights in safetensors, or weights that do not fit the configuration.
        DeviceError: The module does not fit in the device's memory.
    """
    adapter = adapter_of(name)
    base = adapter.base if adapter else name
    config = load_config(base)
    quantised = quantisation_of(shortened(name), config, device)
    options: dict[str, Any] = _spread(ranks) if ranks > 1 else {}
    if not quantised:
        _check_shapes(base, config, dtype)
    if adapter:
        options["adapter_kwargs"] = _WITHOUT_ADAPTER
    if quantised:
        logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # else it logs a line for each matrix of each pass
        config.quantization_config = settings_on(config, device)
        if not quantised.converted:
            options["device_map"] = device_map(device)
    try:
        with _counting(tell):
            module = _complete_module(base, dtype, config=config, **options).eval()
        if module.device.type != device.type or not hf.is_quantised(module):
            module = module.to(device)
    except torch.OutOfMemoryError as error:
        raise DeviceError(
            f"{shortened(name)} does not fit in the memory of {device}; choose a smaller model or dtype"
        ) from error
    if adapter:
        module = imported("decoder.models.merged_adapter").merged(module, adapter)
    if quantised:
        setattr(module, hf.PRECISION, quantised.precision(hf.dtype_of(module)))
    return _in_memory(module, device)


def _in_memory(module: Any, device: torch.device) -> Any:
    """Returns the module. On a CPU, weights that a native form will use are copied out of the memory-mapped file:
    there, unaligned addresses make sums slower, and another process may change the weights.
    """
    for weight in module.parameters() if device.type == "cpu" and hf.source_of(module) else ():
        weight.data = weight.data.clone()
    return module


def _check_shapes(name: str, config: Any, dtype: torch.dtype) -> None:
    """Refuses a configuration whose weights differ from those in the files, before memory for the weights is allocated.

    Weights that transformers renames or joins during loading are compared after loading.
    """
    stored = weight_shapes(name)
    if not stored:
        return
    module = _read(name, "configuration", lambda: hf.skeleton(config, dtype))
    described = {key: tuple(weight.shape) for key, weight in module.state_dict().items()}
    if wrong := [key for key, shape in stored.items() if described.get(key, shape) != shape]:
        raise _unlike(name, MISSHAPEN, wrong)
    numbers, held = (sum(map(math.prod, shapes.values())) for shapes in (described, stored))
    if numbers > MOST_TIMES * held:
        raise ModelError(
            f"the configuration of {shortened(name)} describes {numbers:,} weights, but its files hold {held:,}; "
            "download the model again"
        )


def _unlike(name: str, fault: str, keys: Collection[str]) -> ModelError:
    """`fault` is a message with {} in place of the number of weights."""
    return ModelError(
        f"{shortened(name)}: {fault.format(len(keys))}, for example {shortened(min(keys))}; download the model again"
    )


def _complete_module(name: str, dtype: torch.dtype, **options: Any) -> Any:
    weight_files(name)  # downloads files that the cache lacks
    place = folder_with(name, "weights")
    module, info = _read(
        name,
        "weights",
        lambda: AutoModelForCausalLM.from_pretrained(
            place,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported below, since transformers' own error does not name the weights
            **options,
        ),
        lambda: weights_fault(Path(place)),
    )
    mismatched = [key for key, *_ in info["mismatched_keys"]]
    known = module.state_dict()
    for keys, fault in (
        (info["missing_keys"], "the checkpoint lacks {} weights"),
        (mismatched, MISSHAPEN),
        (
            _of_further_layers(info["unexpected_keys"], known),
            "the checkpoint has weights of more layers than the configuration says",
        ),
        (
            _scales(info["unexpected_keys"], known),
            "the checkpoint has scales of {} weights, but its configuration does not mention any quantisation",
        ),
    ):
        if keys:
            raise _unlike(name, fault, keys)
    return module


def load_body(module: Any, config: Any, weights: dict[str, Tensor], dtype: torch.dtype) -> tuple[Any, str]:
    """A new body (a model without output head) of the class of `module`'s body, with this configuration and these
    weights, named as in a checkpoint of the body. Also returns the fault of a weight that does not fit, or "".
    """
    embedding = torch.zeros(config.vocab_size, config.hidden_size)
    body, info = _read(
        type(module).__name__,
        "weights",
        lambda: type(module.base_model).from_pretrained(
            None,
            config=config,
            state_dict={"embed_tokens.weight": embedding, **weights},
            dtype=dtype,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # mismatches are reported below
        ),
    )
    faults = {
        "is missing": info["missing_keys"],
        "is unknown": info["unexpected_keys"],
        "has another shape": [key for key, *_ in info["mismatched_keys"]],
    }
    return body.eval(), next((f"{min(keys)} {fault}" for fault, keys in faults.items() if keys), "")


def _spread(ranks: int) -> dict[str, Any]:
    from transformers.distributed.configuration_utils import DistributedConfig  # noqa: PLC0415 - only in newer releases

    return {"distributed_config": DistributedConfig(tp_size=ranks)}


def skeleton(name: str, dtype: torch.dtype) -> Any:
    return hf.skeleton(load_config(name), dtype)


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    place = folder_with(name, "tokenizer")
    tokenizer: PreTrainedTokenizerBase = _read(
        name,
        "tokenizer",
        lambda: AutoTokenizer.from_pretrained(place, trust_remote_code=False, local_files_only=True),
        lambda: tokenizer_fault(Path(place)),
    )
    # transformers also makes a tokenizer if there are no tokenizer files.
    if not tokenizer("a", add_special_tokens=False).input_ids and (fault := tokenizer_fault(Path(place))):
        raise ModelError(f"cannot load the tokenizer of {shortened(name)}: {fault}")
    return tokenizer


def _of_further_layers(unexpected: Iterable[str], known: Iterable[str]) -> list[str]:
    """Unexpected names that differ from a known name only in the layer number, without the names of MTP weights."""
    forms, names = {_NUMBER.sub("#", name) for name in known}, list(unexpected)
    of_mtp = tuple(name.removesuffix(_MTP) for name in names if name.endswith(_MTP))
    return [name for name in names if _NUMBER.sub("#", name) in forms and not name.startswith(of_mtp)]


def _scales(unexpected: Iterable[str], known: Collection[str]) -> list[str]:
    return [name for name in unexpected if _SCALE.search(name) and _SCALE.sub(".weight", name) in known]


def _read(name: str, part: str, load: Callable[[], Any], fault: Callable[[], str] = str) -> Any:
    """Result of `load`, which calls a loader of transformers; the loader's output to the terminal is suppressed.

    Raises:
        ModelError: The loader fails. The message has one line: the result of `fault`, which looks for the cause in the
            files, or if that is empty, the message of the loader's own error.
    """
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        return load()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # each model family checks its configuration differently, and may raise any error
        if found := fault():
            raise ModelError(f"cannot load the {part} of {shortened(name)}: {found}") from error
        if "trust_remote_code" in str(error) or "custom code" in str(error):
            raise ModelError(
                f"the {part} of {shortened(name)} needs custom code of the model, and dynatui runs no code of models; "
                "choose a model that transformers supports by itself"
            ) from error
        kind = "a value has the wrong type: " if isinstance(error, _OF_A_WRONG_KIND) else ""
        raise ModelError(
            f"cannot load the {part} of {shortened(name)}: {kind}{first_line(error)}; give a hub id, or a folder with "
            "config.json, tokenizer and safetensors weights"
        ) from error


@contextmanager
def _counting(tell: Tell) -> Iterator[None]:
    """Calls `tell` with the share of weights read so far while a module is loaded."""

    def counted(bar: Callable[..., Any], given: tuple[Any, ...], options: dict[str, Any]) -> Any:
        items, *others = given or (None,)
        return bar(_shares(items, tell) if isinstance(items, Sized) else items, *others, **options)

    before = transformers_logging.set_tqdm_hook(counted)
    try:
        yield
    finally:
        transformers_logging.set_tqdm_hook(before)


def _shares(items: Any, tell: Tell) -> Iterator[Any]:
    share = Share(len(items), tell)
    for number, item in enumerate(items):
        share.reached(number)
        yield item
