"""Checks before a target is loaded over several processes; every error has a message of one sentence."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import torch

from decoder.errors import ConfigError, require
from decoder.forward.layer_kinds import by_layers, keeps_states, takes_paths
from decoder.methods.method import Method
from decoder.models.adapters import adapter_of
from decoder.models.checkpoints import display_name
from decoder.models.quantisation import quantisation_of
from decoder.system.device import choose_device, device_count
from decoder.tensor_parallel.ranks import Ranks

ALONE = "start one process, without torchrun"
_WHOLE = {
    "exact": "--exact computes with",
    "compile": "--compile compiles",
    "inflate": "--inflate makes",
    "head": "a drafting head reads the layers of",
    "gguf": "llama.cpp computes with",
}


def require_partial_weights(**wanted: bool) -> None:
    """Raises ConfigError for a wanted feature (a key of `_WHOLE`) that needs the whole target in one process."""
    for name in (each for each in wanted if wanted[each]):
        option = name if name in ("exact", "compile", "inflate") else "draft" if name == "head" else "target"
        raise ConfigError(
            f"{_WHOLE[name]} the whole target, which torchrun spreads over processes; leave it out, or {ALONE}", option
        )


def require_partial_target(methods: Sequence[Method]) -> None:
    if whole := [method.name for method in methods if method.whole_target]:
        names = ", ".join(whole)
        raise ConfigError(
            f"{names} {'needs' if len(whole) == 1 else 'need'} the whole target in one process, but torchrun spreads "
            f"it over several; leave {names} out of --methods",
            "methods",
        )


def require_spreadable(name: str, config: Any, ranks: Ranks, device: torch.device) -> None:
    """Raises ConfigError for a target that transformers cannot divide among the ranks."""
    shown, text = display_name(name), config.get_text_config()
    require(
        find_spec("accelerate") is not None,
        "several processes of a target need the package accelerate, with which transformers loads a model onto several "
        "devices; install dynatui[tensor-parallel]",
    )
    require(
        adapter_of(name) is None,
        f"{shown} has an adapter, which each process would merge into its own part of the weights; "
        f"merge the adapter with peft, or {ALONE}",
        "target",
    )
    own = "states" if keeps_states(text) else "a cache of its own" if takes_paths(text) else ""
    require(
        not own,
        f"{shown} keeps {own}, which several processes cannot share; {ALONE}, or choose a model whose layers all "
        "attend to cached keys and values",
    )
    require(
        bool(getattr(text, "base_model_tp_plan", None)),
        f"{shown} is of the family {text.model_type}, for which transformers has no tensor-parallel plan; {ALONE}, or "
        "choose a model of a family such as llama, qwen3 or gpt_neox",
    )
    for what, field in (("attention heads", "num_attention_heads"), ("key and value heads", "num_key_value_heads")):
        for number in by_layers(text, field):
            require(
                number is None or number % ranks.count == 0,
                f"{shown} has {number} {what}, which {ranks.count} processes cannot share equally; give torchrun a "
                f"divisor of {number}",
            )
    quantised = quantisation_of(shown, config, device)  # transformers divides weights, but not their scales
    require(
        quantised is None,
        f"{shown} has quantised weights ({quantised and quantised.words}), which several processes cannot divide; "
        f"{ALONE}, or name the unquantised model",
    )


def rank_device(ranks: Ranks, name: str) -> torch.device:
    """Device of this rank; `name` is auto, cpu or cuda.

    Raises:
        ConfigError: `name` is another word, this machine has fewer devices than ranks, or the device is the CPU but
            torch has an accelerator, on which transformers would place the target.
        DeviceError: There is no such device.
    """
    require(
        not name.startswith("cuda:"),
        f"--device {name} is a single device, but each process of the target needs one; give --device cuda",
        "device",
    )
    kind = choose_device(name).type
    if kind == "cpu":
        require(
            not torch.accelerator.is_available(),
            "--device cpu has no effect under torchrun, since transformers uses the devices that torch sees; to use "
            "the CPU, set CUDA_VISIBLE_DEVICES to an empty value",
        )
        return torch.device(kind)
    require(
        ranks.local_count <= (present := device_count()),
        f"{ranks.local_count} processes of the target run on this machine, which has only {present} CUDA devices; "
        "start at most one process per device",
    )
    return torch.device(kind, ranks.local)
