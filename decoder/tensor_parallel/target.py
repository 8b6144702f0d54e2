"""Loads a tensor-parallel target: each rank loads its part, according to transformers' plan for the model family."""

import atexit
from dataclasses import replace
from typing import Any

import torch

from decoder.errors import ConfigError
from decoder.forward.hf_module import HfModule
from decoder.forward.language_model import LanguageModel
from decoder.models.checkpoints import display_name
from decoder.models.load_progress import Tell, downloading
from decoder.system.deferred import imported
from decoder.system.device import DTYPES, choose_device, set_up
from decoder.tensor_parallel.channel import Channel
from decoder.tensor_parallel.check import require_devices, require_no_adapter, require_plain_weights, require_plan
from decoder.tensor_parallel.leader import Leader
from decoder.tensor_parallel.messages import Begin, encode
from decoder.tensor_parallel.ranks import Ranks

ON_CPU = -1
"""Device number that means a CPU."""


def rank_device(ranks: Ranks, name: str) -> torch.device:
    """Device of this rank; `name` is auto, cpu or cuda.

    Raises:
        ConfigError: `name` is none of these words, or this machine has fewer devices than ranks.
        DeviceError: There is no such device.
    """
    if name.startswith("cuda:"):
        raise ConfigError(
            f"--device {name} is a single device, but --tensor-parallel needs a device for each process; give --device "
            "cuda",
            "device",
        )
    kind = choose_device(name).type
    require_devices(kind, ranks)
    return torch.device(kind, ranks.local) if kind == "cuda" else torch.device(kind)


def devices_of(channel: Channel, own: torch.device) -> list[str]:
    """Names of all ranks' devices, in the order of the ranks; all ranks must call this function."""
    numbers = channel.gather(ON_CPU if own.index is None else own.index)
    return [own.type if number == ON_CPU else f"{own.type}:{number}" for number in numbers]


def part_of(ranks: Ranks, name: str, device: torch.device, dtype: torch.dtype, tell: Tell = lambda _: None) -> Any:
    """Loads this rank's part of the target's module. A pass in which all ranks take part gives the target's logits.

    Raises:
        ModelError: The target cannot be loaded.
        DeviceError: This part does not fit in the device's memory.
    """
    set_up(device, dtype)
    return imported("decoder.models.hf_checkpoints").load_module(name, dtype, device, tell, ranks=ranks.count)


def load_over(ranks: Ranks, name: str, device: torch.device, dtype: torch.dtype, tell: Tell) -> LanguageModel:
    """Called by the leader: loads the target on all ranks and returns the target; when this process ends, the followers
    end too.

    Raises:
        ConfigError: transformers cannot divide the target among this number of ranks, the weights are quantised, or the
            target has an adapter.
        ModelError: The target cannot be loaded.
        DeviceError: A part does not fit in its device's memory, or the ranks cannot connect.
    """
    require_no_adapter(name)
    config = imported("decoder.models.hf_checkpoints").load_config(name)
    require_plan(display_name(name), config, ranks.count)
    require_plain_weights(display_name(name), config, device)
    channel = Channel(ranks, device)
    atexit.register(channel.release)
    devices = devices_of(channel, device)
    channel.send(encode(Begin(list(DTYPES.values()).index(dtype))))
    hf = imported("decoder.forward.hf")
    with downloading(name, tell):
        module = part_of(ranks, name, device, dtype, tell)
    leader = Leader(hf.ModuleForward(module), channel, devices)
    # `source` is None, so that no other forward form is made from the source's weights: other forms need all weights,
    # and a rank has only a part of them.
    traits = replace(hf.traits_of(module), source=None)
    model = LanguageModel(display_name(name), traits, HfModule(traits))
    model.run_by(leader)
    model.ranks = leader
    return model
