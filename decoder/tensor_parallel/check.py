"""Checks before a tensor-parallel target is loaded; every error has a message of one sentence."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import torch

from decoder.errors import ConfigError, require
from decoder.forward.layer_kinds import keeps_states, takes_paths
from decoder.forward.windows import by_layers
from decoder.methods.method import Method
from decoder.models.adapters import adapter_of
from decoder.models.checkpoints import display_name
from decoder.models.quantisation import quantisation_of
from decoder.system.device import device_count
from decoder.tensor_parallel.ranks import Ranks


def require_packages() -> None:
    """Raises ConfigError if the package that transformers needs for tensor parallelism is missing."""
    require(
        find_spec("accelerate") is not None,
        "--tensor-parallel needs the package accelerate, with which transformers loads a model onto several devices; "
        "install dynatui[tensor-parallel]",
    )


def require_partial_weights(*, exact: bool, compiled: bool) -> None:
    """Refuses settings that need all weights of the target in one process."""
    for name, enabled, what in (("exact", exact, "computes with"), ("compile", compiled, "compiles")):
        require(
            not enabled,
            f"--{name} {what} the whole target, which --tensor-parallel spreads over processes; leave out --{name} or "
            "--tensor-parallel",
            name,
        )


def require_partial_target(methods: Sequence[Method]) -> None:
    """Refuses methods that need the whole target in one process."""
    if whole := [method.name for method in methods if method.whole_target]:
        names = ", ".join(whole)
        raise ConfigError(
            f"{names} {'needs' if len(whole) == 1 else 'need'} the whole target in one process, but --tensor-parallel "
            f"spreads it over several processes; leave {names} out of --methods",
            "methods",
        )


def require_no_adapter(name: str) -> None:
    """Refuses a target with an adapter, since each process would merge the adapter into weights that it has in part."""
    require(
        adapter_of(name) is None,
        f"{display_name(name)} has an adapter, which --tensor-parallel does not support; merge it into the weights "
        "with peft, or leave out --tensor-parallel",
        "target",
    )


def require_plan(name: str, config: Any, count: int) -> None:
    """Refuses a target that transformers cannot divide among this number of processes.

    Args:
        name: Name of the target.
        config: transformers' configuration.
        count: Number of processes.

    Raises:
        ConfigError: The target keeps states or computes whole paths, its family has no tensor-parallel plan, or its
            numbers of heads are not divisible by `count`.
    """
    config = config.get_text_config()
    own = "states" if keeps_states(config) else "a cache of its own" if takes_paths(config) else ""
    if own:
        raise ConfigError(
            f"{name} keeps {own}, which --tensor-parallel does not support; leave out --tensor-parallel, or "
            "choose a model whose layers all attend to cached keys and values"
        )
    if not getattr(config, "base_model_tp_plan", None):
        raise ConfigError(
            f"{name} is of the family {config.model_type}, for which transformers has no tensor-parallel plan; leave "
            "out --tensor-parallel, or choose a model of a family such as llama, qwen3 or gpt_neox"
        )
    for what, field in (("attention heads", "num_attention_heads"), ("key and value heads", "num_key_value_heads")):
        for number in by_layers(config, field):
            require(
                number is None or number % count == 0,
                f"{name} has {number} {what}, which {count} processes cannot share equally; give --tensor-parallel a "
                f"divisor of {number}",
            )


def require_plain_weights(name: str, config: Any, device: torch.device) -> None:
    """Refuses a target with quantised weights, even if they would be converted, since transformers divides weights but
    not their scales.

    Raises:
        ConfigError: The weights of the checkpoint are quantised.
    """
    quantised = quantisation_of(name, config, device)
    require(
        quantised is None,
        f"{name} has quantised weights ({quantised and quantised.words}), which --tensor-parallel cannot divide; leave "
        "out --tensor-parallel, or name the unquantised model",
    )


def require_devices(kind: str, ranks: Ranks) -> None:
    """On CUDA, refuses to run if this machine has more processes than CUDA devices; on a CPU, refuses to run if torch
    sees an accelerator.

    transformers places a tensor-parallel target on the accelerators that torch sees, even if the user chose the CPU.
    """
    if kind == "cpu":
        require(
            not torch.accelerator.is_available(),
            "--device cpu has no effect with --tensor-parallel, since transformers uses the devices that torch sees; "
            "to use the CPU, set CUDA_VISIBLE_DEVICES to an empty value",
        )
        return
    present = device_count()
    require(
        ranks.local_count <= present,
        f"{ranks.local_count} processes of --tensor-parallel run on this machine, which has only {present} CUDA "
        "devices; start at most one process per device",
    )
