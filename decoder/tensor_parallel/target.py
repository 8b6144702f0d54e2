"""Loads a target over several processes: each loads its part, according to transformers' plan for the model family.

A follower decides nothing and writes nothing.
"""

import atexit
import os
from dataclasses import replace
from typing import Any, NoReturn

import torch

from decoder.errors import LostRankError
from decoder.forward.hf_module import HfModule
from decoder.forward.language_model import LanguageModel
from decoder.models.checkpoints import display_name
from decoder.models.load_progress import Tell, downloading
from decoder.system.deferred import imported
from decoder.system.device import set_up
from decoder.tensor_parallel.channel import Channel, reason
from decoder.tensor_parallel.check import rank_device, require_spreadable
from decoder.tensor_parallel.passes import Leader, replay
from decoder.tensor_parallel.ranks import Ranks


def part_of(ranks: Ranks, name: str, device: torch.device, dtype: torch.dtype, tell: Tell = lambda _: None) -> Any:
    """This rank's part of the target's module. A pass in which all ranks take part gives the target's logits."""
    set_up(device, dtype)
    return imported("decoder.models.hf_checkpoints").load_module(name, dtype, device, tell, ranks=ranks.count)


def load_over(ranks: Ranks, name: str, device: torch.device, dtype: torch.dtype, tell: Tell) -> LanguageModel:
    """Called by the leader: loads the target on all ranks; when this process ends, the followers end too.

    Raises ConfigError if transformers cannot divide the target; also ModelError and DeviceError, as `load_module`.
    """
    require_spreadable(name, imported("decoder.models.hf_checkpoints").load_config(name), ranks, device)
    channel = Channel(ranks, device)
    atexit.register(channel.release)
    devices = channel.gather(str(device))
    channel.send(dtype)
    hf = imported("decoder.forward.hf")
    with downloading(name, tell):
        module = part_of(ranks, name, device, dtype, tell)
    # `source` is None, so that no other forward form is made from the source's weights: other forms need all weights,
    # and a rank has only a part of them.
    traits = replace(hf.traits_of(module), source=None)
    model = LanguageModel(display_name(name), traits, HfModule(traits))
    model.ranks = leader = Leader(hf.ModuleForward(module), channel, devices)
    model.run_by(leader)
    return model


def serve(ranks: Ranks, target: str, device: str) -> NoReturn:
    """Loads this rank's part of the leader's target and replays the leader's passes; ends the process with the leader.

    Raises:
        DecoderError: There is no such device, the target cannot be loaded, or a pass or another process has failed.
    """
    place = rank_device(ranks, device)
    channel = Channel(ranks, place)
    channel.gather(str(place))
    try:
        dtype = channel.receive()
        if isinstance(dtype, torch.dtype):  # else the leader has already ended
            module = part_of(ranks, target, place, dtype)
            replay(channel, imported("decoder.forward.hf").ModuleForward(module), place)
    except RuntimeError as error:
        raise LostRankError(f"process {ranks.rank} of the target cannot go on: {reason(error)}; start again") from error
    os._exit(0)  # Python's usual shutdown would wait for threads that wait for other processes
