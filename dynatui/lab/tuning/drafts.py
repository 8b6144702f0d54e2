"""Drafts of a profile: their engines, the times of their passes, and their sizes as a server would load them, in the
checkpoint's dtype and computed from configurations.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from decoder.engine import Engine
from decoder.errors import ConfigError, DecoderError, ModelError, PairError, require
from decoder.forward.taps import LayerStates
from decoder.heads.dflash import BlockHead
from decoder.heads.eagle3 import Head
from decoder.heads.mtp import MtpHead
from decoder.heads.parts import HeadModule, StatesReader
from decoder.models.checkpoint_files import weight_files
from decoder.models.checkpoints import display_name, load_config
from decoder.models.compatibility import tokenizers_of
from decoder.models.gguf_file import GgufFile, row_bytes
from decoder.models.heads import is_model_free
from decoder.models.hub import cached_folder, is_hub_id
from decoder.models.names import LOOKUP, MTP
from decoder.models.pair import Pair
from decoder.models.quantisation import memory_of, quantisation_of
from decoder.run.expected import work_of_config
from decoder.run.loading import load_pair, with_draft
from decoder.session.host import passes_of
from dynatui.lab.bench.on_pair import Note
from dynatui.servers.costs import NamedDevice, roofline
from dynatui.servers.profile_file import Costs, ModelSize

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 17, 33, 65)
"""Numbers of rows (tokens of one text) for which a profile has the time of a target pass."""
_KV_ROWS = 1024


@dataclass(frozen=True)
class Drafts:
    target: str
    names: tuple[str, ...]
    device: str = "auto"
    dtype: str = "auto"
    draft_dtype: str = "auto"

    def loaded(self, note: Note) -> tuple[dict[str, Engine], dict[str, str]]:
        """Engines of the usable drafts, and reasons why the other drafts are unusable; raises the first of these if no
        draft is usable.
        """
        require(bool(self.names), "--drafts is empty; give hub ids or folders with commas between them")
        engines: dict[str, Engine] = {}
        refused: dict[str, DecoderError] = {}
        for name in self.names:
            try:
                engines[name] = self._engine(name, next(iter(engines.values()), None), note)
            except (ConfigError, ModelError) as error:
                note(f"{name} is left out: {error}")
                refused[name] = error
        if not engines:
            raise next(iter(refused.values()))
        return engines, {name: str(error) for name, error in refused.items()}

    def _engine(self, draft: str, loaded: Engine | None, note: Note) -> Engine:
        if not is_model_free(draft) and tokenizers_of(self.target, draft)[1]:
            raise PairError(
                f"{draft} does not have the tokenizer of {self.target}, but drafts are compared by how many of the "
                "target's tokens they guess; choose drafts with the target's tokenizer"
            )
        if loaded is None:
            device, dtype, draft_dtype = self.device, self.dtype, self.draft_dtype
            return load_pair(self.target, draft, device=device, dtype=dtype, draft_dtype=draft_dtype, report=note)
        if draft == LOOKUP:
            return replace(loaded, pair=replace(loaded.pair, draft=None, head=None))
        return with_draft(loaded, self.target, draft, draft_dtype=self.draft_dtype, report=note)


def guesses_at_once(pair: Pair) -> int | None:
    """Largest number of levels that the draft computes in one pass; None if each level takes a pass of its own."""
    if pair.head is None:
        return None
    deepest = passes_of(pair.head, 1, LayerStates(pair.head.target_layers)).deepest
    return None if deepest == sys.maxsize else deepest


def pass_s(engine: Engine, context: int) -> float:
    """Seconds of a draft pass of one row after `context` tokens. If the draft computes several levels in one pass, it
    is the pass that reads one token of text.
    """
    costs = engine.costs_of(context)
    return (costs.draft if guesses_at_once(engine.pair) is None else costs.catch_up).seconds(1)


def measured_costs(engines: Mapping[str, Engine], context: int) -> Costs:
    """Times of passes after `context` tokens on this machine."""
    first = next(iter(engines.values()))
    target = first.costs_of(context)
    return Costs(
        source="measured",
        device=first.pair.device,
        context=context,
        target_s={rows: (target.plain if rows == 1 else target.verify).seconds(rows) for rows in ROWS},
        draft_s={name: pass_s(engine, context) for name, engine in engines.items() if not engine.pair.looks_up},
        fixed_s=target.host.seconds(1),
    )


def least_costs(on: NamedDevice, target: ModelSize, drafts: Mapping[str, ModelSize], context: int) -> Costs:
    """Roofline costs with `context` tokens in the KV cache. Raises ConfigError if the size of the target is unknown."""
    cost = roofline(target, on.speed)
    if cost is None:
        raise ConfigError(f"--roofline needs the size of {target.name}, which is unknown; leave --roofline out")
    known = {name: found for name, size in drafts.items() if (found := roofline(size, on.speed))}
    return Costs(
        source="roofline",
        device=on.name,
        context=context,
        target_s={rows: float(cost.seconds(1, rows, context)) for rows in ROWS},
        draft_s={name: float(each.seconds(1, 1, context)) for name, each in known.items()},
        bytes_per_s=on.speed.bytes_per_s,
        flops_per_s=on.speed.flops_per_s,
    )


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
