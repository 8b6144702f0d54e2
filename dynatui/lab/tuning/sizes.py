"""Sizes of models in the checkpoint's dtype, as a server would load them; computed from configurations."""

from pathlib import Path

import torch

from decoder.heads.dflash import BlockHead
from decoder.heads.eagle3 import Head
from decoder.heads.mtp import MtpHead
from decoder.heads.parts import HeadModule, StatesReader
from decoder.models.checkpoint_files import weight_files
from decoder.models.checkpoints import display_name, load_config
from decoder.models.gguf.file import GgufFile
from decoder.models.gguf.words import row_bytes
from decoder.models.hub import cached_folder, is_hub_id
from decoder.models.names import MTP
from decoder.models.quantisation import memory_of, quantisation_of
from decoder.run.expected import work_of_config
from dynatui.servers.profile_file import ModelSize

_KV_ROWS = 1024


def model_size(name: str, device: torch.device) -> ModelSize:
    """Size of the model with this hub id, folder or GGUF file."""
    config = load_config(name)
    dtype: torch.dtype = getattr(config, "dtype", None) or torch.float32
    quantised = None if isinstance(config, GgufFile) else quantisation_of(display_name(name), config, device)
    work = work_of_config(config, dtype, quantised)
    shown = display_name(name)
    if isinstance(config, GgufFile):
        weights_bytes, row, precision = sum(config.tensors.values()), row_bytes(config), "GGUF"
    else:
        memory = memory_of(config, dtype, quantised)
        weights_bytes, row = memory.weights_bytes, memory.token_bytes
        precision = quantised.precision(dtype) if quantised else str(dtype).removeprefix("torch.")
    return ModelSize(
        name=shown,
        revision=_revision(name),
        dtype=precision,
        weights_bytes=weights_bytes,
        pass_bytes=work.weights_bytes if work else None,
        weights=work.weights if work else None,
        kv_bytes_per_token=row,
    )


def head_size(name: str, head: StatesReader, target: ModelSize, layers: int) -> ModelSize:
    """Size of a drafting head in the target's dtype. An MTP layer caches as much per token as one target layer."""
    output, body = _weights(head)
    width = getattr(torch, target.dtype, head.dtype).itemsize
    row = (target.kv_bytes_per_token or 0) / layers
    if isinstance(head, Head | BlockHead):
        one, two = (head.new_cache(count * _KV_ROWS).nbytes for count in (1, 2))
        row = (two - one) / head.dtype.itemsize * width / _KV_ROWS
    files = [] if name == MTP else weight_files(name)
    stored = sum(path.stat().st_size for path in files)
    return ModelSize(
        name=display_name(name),
        revision=_revision(name),
        dtype=target.dtype,
        weights_bytes=stored or body * width,
        pass_bytes=(output + body) * width,
        weights=output + body,
        kv_bytes_per_token=row or None,
    )


def _weights(head: StatesReader) -> tuple[int, int]:
    """Numbers of weights that a pass reads: in the output head (which may be the target's), and in all other layers."""
    if isinstance(head, HeadModule):
        tables = sum(weight.numel() for weight in head.embed_tokens.parameters())
        output = sum(weight.numel() for weight in head.lm_head.parameters())
        return output, sum(weight.numel() for weight in head.parameters()) - tables - output
    assert isinstance(head, MtpHead), "all other heads are modules"  # noqa: S101 - for mypy
    return head.output.weight.numel(), head.projection.numel() + head.layer.weights


def _revision(name: str) -> str:
    """Commit of a hub id in the cache; empty for a folder or a file."""
    folder = cached_folder(name) if is_hub_id(name) and not Path(name).exists() else None
    return folder.name if folder else ""
