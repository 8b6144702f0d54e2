"""Finds a target's own multi-token prediction (MTP) layer in the target's safetensors, and loads it as the draft.

Transformers does not load these weights with the target. The two known published layouts differ in the names of
weights. If a checkpoint has several MTP layers, the first MTP layer drafts all levels. The decoder layer becomes a
module of the target's family with one layer, so an MTP layer with other weights is refused. No code of a checkpoint is
run.
"""

import copy
import functools
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from decoder.errors import ConfigError, require
from decoder.forward.language_model import LanguageModel
from decoder.forward.layer_kinds import FULL
from decoder.forward.taps import Tappable
from decoder.heads.parts import GuidedHead
from decoder.models.checkpoint_files import weight_files, weight_names
from decoder.models.checkpoints import display_name
from decoder.models.head_weights import weights_in
from decoder.models.names import MTP
from decoder.system.libraries import imported

FAMILIES = frozenset(
    {"deepseek_v3", "glm4_moe", "glm4_moe_lite", "mellum", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next"}
)
"""Model types whose MTP layer is known to contain a decoder layer of the family itself."""
REMEDY = "name a draft model, or give --draft lookup"


@dataclass(frozen=True)
class MtpShape:
    """Marks the target's MTP layer as the draft; the layer has no configuration of its own."""

    kind: ClassVar[str] = "MTP layer"


@dataclass(frozen=True)
class WeightNames:
    """Names of the weights of an MTP layer in a checkpoint."""

    layer: str
    """Prefix of the names of the decoder layer's weights."""
    embedding_norm: str
    state_norm: str
    projection: str
    norm: str
    copies: tuple[str, ...] = ()
    """Names of weights that are not read, since they are copies of the target's weights."""

    def own(self, name: str) -> str | None:
        """Name in a one-layer module for a weight of the decoder layer or the final norm; None for other weights."""
        if name == self.norm:
            return "norm.weight"
        if name in (self.embedding_norm, self.state_norm, self.projection, *self.copies):
            return None
        return f"layers.0.{name.removeprefix(self.layer)}" if name.startswith(self.layer) else None


AFTER_ALL = WeightNames(
    layer="mtp.layers.0.",
    embedding_norm="mtp.pre_fc_norm_embedding.weight",
    state_norm="mtp.pre_fc_norm_hidden.weight",
    projection="mtp.fc.weight",
    norm="mtp.norm.weight",
)
"""Layout of Qwen3-Next, Qwen3.5 and Mellum: MTP weights have the prefix `mtp.`."""


def _as_layer(number: int) -> WeightNames:
    """Layout of DeepSeek-V3, GLM-4.5 and later: weights are named like those of a further layer of the target."""
    layer = f"model.layers.{number}."
    return WeightNames(
        layer=layer,
        embedding_norm=f"{layer}enorm.weight",
        state_norm=f"{layer}hnorm.weight",
        projection=f"{layer}eh_proj.weight",
        norm=f"{layer}shared_head.norm.weight",
        copies=(f"{layer}embed_tokens.weight", f"{layer}shared_head.head.weight"),
    )


def mtp_layout(name: str, config: Any) -> WeightNames:
    """Layout of the MTP layer in a target's checkpoint, found before the target is loaded. Raises ConfigError if the
    checkpoint has no supported MTP layer.
    """
    shown, text = display_name(name), getattr(config, "get_text_config", lambda: config)()
    names = weight_names(name)
    known = [layout for layout in (AFTER_ALL, _as_layer(text.num_hidden_layers)) if layout.projection in names]
    require(
        bool(known),
        f"--draft {MTP} needs an MTP layer in the target's checkpoint, but {shown} has no MTP layer in a known "
        f"layout; {REMEDY}",
        "draft",
    )
    require(
        text.model_type in FAMILIES,
        f"--draft {MTP} is not supported for models of type {text.model_type} such as {shown}; {REMEDY}",
        "draft",
    )
    require(
        not getattr(config, "quantization_config", None),
        f"--draft {MTP} needs weights that are not quantised, but the weights of {shown} are quantised; {REMEDY}",
        "draft",
    )
    return known[0]


def load_mtp(name: str, target: LanguageModel, dtype: torch.dtype) -> GuidedHead:
    """Loads the MTP layer of `target`, whose hub id or folder is `name`, onto the target's device.

    Raises:
        ConfigError: The layer is not of the target's family, or the target's form gives no access to its states.
        ModelError: The weights cannot be read.
    """
    shown = display_name(name)
    if not isinstance(target.runs_by, Tappable):
        raise ConfigError(
            f"--draft {MTP} reads the target's states after the final norm, but the forward pass of {shown} gives no "
            f"access to these states; {REMEDY}",
            "draft",
        )
    module = target.hf.module
    layout = mtp_layout(name, module.config)
    tensors = _read(name, shown, layout)
    weights = {own: tensors[there] for there in tensors if (own := layout.own(there))}
    config = _one_layer(module.config.get_text_config())
    body, fault = _hf().load_body(module, config, weights, dtype)
    width = config.hidden_size
    sizes = {layout.embedding_norm: (width,), layout.state_norm: (width,), layout.projection: (width, 2 * width)}
    faults = [key for key, size in sizes.items() if key not in tensors or tuple(tensors[key].shape) != size]
    if fault or faults:
        raise ConfigError(
            f"the MTP layer of {shown} differs from the {module.config.model_type} layers that transformers "
            f"computes: {fault or f'{faults[0]} is missing or has another shape'}; {REMEDY}",
            "draft",
        )
    body = body.to(target.device)
    form = imported("decoder.forward.hf").ModuleForward(body)
    head: GuidedHead = imported("decoder.heads.mtp").MtpHead(
        name=MTP,
        target_layers=(target.layers,),
        layer=form,
        embed=module.get_input_embeddings(),
        embedding_norm=_norm(body.norm, tensors[layout.embedding_norm]),
        state_norm=_norm(body.norm, tensors[layout.state_norm]),
        projection=tensors[layout.projection].to(target.device, dtype),
        output=module.get_output_embeddings(),
    )
    return head


def _one_layer(config: Any) -> Any:
    """A copy of the configuration with one layer and an embedding of one row, which is never used."""
    kinds = {
        field: [(getattr(config, f"mtp_{field}", None) or [usual(getattr(config, field))])[0]]
        for field, usual in (("layer_types", _attending), ("mlp_layer_types", lambda types: types[-1]))
        if getattr(config, field, None)
    }
    changes = {"num_hidden_layers": 1, "vocab_size": 1, "pad_token_id": None, **kinds}
    # In some families, the number of a layer determines whether the layer is sparse. These settings make the MTP layer,
    # which has number 0, sparse like the target's later layers.
    changes |= {"first_k_dense_replace": 0, "mlp_only_layers": [], "decoder_sparse_step": 1}
    changed = copy.deepcopy(config)
    for field, value in changes.items():
        if hasattr(changed, field):
            setattr(changed, field, value)
    return changed


def _attending(types: list[str]) -> str:
    return FULL if FULL in types else types[-1]


def _norm(like: nn.Module, weight: Tensor) -> nn.Module:
    norm = copy.deepcopy(like)
    own = next(norm.parameters())
    norm.weight = nn.Parameter(weight.to(own), requires_grad=False)
    return norm


def _read(name: str, shown: str, layout: WeightNames) -> dict[str, Tensor]:
    """The weights of the MTP layer by their names in the checkpoint, without copies of the target's weights."""
    around = layout.embedding_norm, layout.state_norm, layout.projection

    def kept(there: str) -> str | None:
        return there if there in around or layout.own(there) else None

    return dict(chain.from_iterable(weights_in(path, shown, kept) for path in weight_files(name)))


_hf = functools.partial(imported, "decoder.models.hf_checkpoints")
