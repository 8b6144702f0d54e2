"""The decoding path of a pair's rounds and the reason for it, in words; `decoder.run.loading` chooses the path. Some
methods of a run may have another path: methods whose trees may exceed the fixed shapes of CUDA graphs, `auto` without a
draft model (its tree sizes depend on costs), `streaming` and `hf`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from decoder.engine import Engine
from decoder.events import TRANSLATED
from decoder.forward.compiled.library import library
from decoder.forward.families.architecture import Architecture
from decoder.forward.families.registry import FAMILIES, only_compiled
from decoder.forward.language_model import LanguageModel
from decoder.forward.layer_kinds import HOST_ROUNDS, SHAPED, UNCAPTURED, keeps_states, takes_paths, windows_of
from decoder.forward.linear import HALF, products_pay_in_bfloat16
from decoder.models.gguf_file import BY_PATHS, GgufFile
from decoder.models.quantisation import quantisation_of
from decoder.system.device import has_graphs
from decoder.system.libraries import imported

GRAPHS: Literal["cuda graphs"] = "cuda graphs"
STATIC: Literal["static module"] = "static module"
HOST: Literal["host"] = "host"
EXACT = "--exact runs passes that are not captured as CUDA graphs"
NATIVE, MODULE = "native CPU kernels", "Hugging Face module"
PATHS = f"{MODULE}, with a batch of whole paths in each pass (slower)"
UNCAPTURED_HEAD = "of drafting heads, only those of EAGLE-3 are captured as CUDA graphs"
UNLIKE = ("kv_lora_rank", "num_kv_shared_layers")
"""Configuration fields of models whose keys and values have different shapes."""


@dataclass(frozen=True)
class DecodingPath:
    name: Literal["cuda graphs", "static module", "host"]
    """The name "static module" means CUDA graphs in which at least one model runs as a Hugging Face module."""
    reason: str
    """Why no faster path is possible; for the fastest path, the form in which the models run. With CUDA graphs, also
    the kernels that small parts of rounds use (`Operators`).
    """


def decoding_path(engine: Engine) -> DecodingPath:
    pair = engine.pair
    models = pair.models
    other = any(model.computed_by for model in models.values())
    if other or pair.target.ranks or not has_graphs(pair.target.device):
        kinds = {role: _computing(model) for role, model in models.items()}
        forms = _together(kinds | ({"draft": pair.head.kind} if pair.head else {}))
        return DecodingPath(HOST, f"{forms}; {TRANSLATED}" if pair.translation else forms)
    if pair.translation:
        return DecodingPath(HOST, TRANSLATED)
    from decoder.heads.eagle3 import only_on_host, static_head

    if only_on_host(pair.head):
        return DecodingPath(HOST, UNCAPTURED_HEAD)
    if engine.exact:
        return DecodingPath(HOST, EXACT)
    if engine.slots is None or engine.slots.refused:
        return DecodingPath(HOST, engine.slots.refused or "" if engine.slots else "not tried yet")
    static: dict[str, Any] = {role: engine.slots.forms.get(model) for role, model in models.items()}
    path = _on_device(static | ({"draft": static_head(pair.head)} if pair.head else {}))
    operators = str(engine.slots.operators)
    return replace(path, reason=f"{path.reason}; {operators}") if operators else path


def _computing(model: LanguageModel) -> str:
    if model.computed_by:
        form = f"{model.computed_by}, {model.precision}"
        return f"{form}, {BY_PATHS}" if model.keeps_states else form
    if model.ranks:
        return f"{MODULE} over {len(model.ranks.devices)} processes"
    native = NATIVE if model.device.type == "cpu" else "native model"
    by_module = PATHS if model.hf.by_paths else MODULE
    return native if model.runs_without_module else by_module


def _on_device(forms: Mapping[str, Any]) -> DecodingPath:
    from decoder.forward.families.native import NativeModel
    from decoder.heads.eagle3 import StaticHead
    from decoder.session.cuda_graph.compiled import Compiled

    kinds = {role: "compiled" if isinstance(form, Compiled) else "native model" for role, form in forms.items()}
    plain: dict[str, Any] = {role: form.plain if isinstance(form, Compiled) else form for role, form in forms.items()}
    fast = NativeModel | StaticHead
    slow = [f"{role}: {form.reason}" for role, form in plain.items() if form and not isinstance(form, fast)]
    if slow:
        return DecodingPath(STATIC, "; ".join(slow))
    return DecodingPath(GRAPHS, _together(kinds) if all(forms.values()) else "not tried yet")


def expected_path(
    configs: Mapping[str, Any],
    device: torch.device,
    *,
    exact: bool,
    head: object = None,
) -> DecodingPath:
    """The path that a pair will probably have if its memory suffices, determined without reading weights. Raises
    ConfigError for quantised weights that this machine cannot load.
    """
    if any(isinstance(config, GgufFile) for config in configs.values()) or not has_graphs(device):
        return DecodingPath(HOST, _together({role: _expected(config, device) for role, config in configs.items()}))
    from decoder.heads.eagle3 import UNTAPPED, has_static_form

    if head is not None and not has_static_form(head):
        return DecodingPath(HOST, UNCAPTURED_HEAD)
    archs = {role: _architecture(config, device) for role, config in configs.items()}
    unknown = {role: arch if isinstance(arch, str) else "" for role, arch in archs.items()}
    texts = [_text_of(config) if unknown[role] else archs[role] for role, config in configs.items()]
    if reason := EXACT if exact else _uncaptured(texts):
        return DecodingPath(HOST, reason)
    slow = [f"{role}: {name} has no native implementation" for role, name in unknown.items() if name]
    if slow:
        return DecodingPath(STATIC, "; ".join(slow)) if head is None else DecodingPath(HOST, UNTAPPED)
    return DecodingPath(GRAPHS, "native model")


def bfloat16_pays(config: Any) -> bool:
    """Whether bfloat16 is faster than float32 on this CPU; False for native models, see `arithmetic_dtype`."""
    return _expected(config, torch.device("cpu")) != NATIVE and products_pay_in_bfloat16()


def arithmetic_dtype(config: Any, device: torch.device, dtype: torch.dtype) -> torch.dtype:
    """Dtype of arithmetic, keys and values: on a CPU, native models compute half precision in float32."""
    native = device.type == "cpu" and _expected(config, device) == NATIVE
    return torch.float32 if native and dtype in HALF else dtype


def stored_dtype(config: Any, device: torch.device, dtype: torch.dtype) -> torch.dtype:
    """Dtype in which a model's matrices are stored. This is the dtype of its arithmetic, except for compiled passes:
    they store weights in the narrowest dtype that holds them exactly, `dtype` or the checkpoint's narrower dtype.
    """
    own: torch.dtype = getattr(config, "dtype", None) or dtype
    possible = device.type == "cpu" and dtype is not torch.float64 and library() is not None
    if possible and _expected(config, device) == NATIVE:
        return own if own.itemsize < dtype.itemsize else dtype
    return arithmetic_dtype(config, device, dtype)


def _uncaptured(configs: Sequence[Any]) -> str:
    """Why models with these configurations cannot run in CUDA graphs; empty if no obstacle is found."""
    from decoder.session.cuda_graph.static_shapes import uncaptured

    modules = [config for config in configs if not isinstance(config, Architecture)]
    if any(map(takes_paths, modules)):
        return UNCAPTURED
    if any(map(keeps_states, modules)):
        return HOST_ROUNDS
    if reason := next(filter(None, (uncaptured(windows_of(config)) for config in configs)), ""):
        return reason
    return SHAPED if any(getattr(config, field, None) for config in configs for field in UNLIKE) else ""


def _expected(config: Any, device: torch.device) -> str:
    if isinstance(config, GgufFile):
        form = f"llama.cpp, GGUF {config.quantisation}"
        return f"{form}, {BY_PATHS}" if config.keeps_states else form
    if not isinstance(_architecture(config, device), str):
        return NATIVE
    return PATHS if takes_paths(_text_of(config)) else MODULE


def _architecture(config: Any, device: torch.device) -> Architecture | str:
    """Architecture of a model that has a native form; for any other model, the type of its module in words."""
    architecture: Architecture | str
    if isinstance(config, Architecture):
        architecture = config
    else:
        quantised = quantisation_of(config.model_type, config, device)
        if quantised and not quantised.converted:
            return f"{config.model_type} with quantised weights"
        architecture = imported("decoder.forward.hf").architecture_of(config)
    if isinstance(architecture, Architecture) and only_compiled(architecture):
        compiled = library() is not None and not has_graphs(device)
        return architecture if compiled else FAMILIES[architecture.model_type].name
    return architecture


def _text_of(config: Any) -> Any:
    return config if isinstance(config, Architecture) else config.get_text_config()


def _together(kinds: Mapping[str, str]) -> str:
    if len(set(kinds.values())) == 1:
        return next(iter(kinds.values()))
    return "; ".join(f"{role}: {kind}" for role, kind in kinds.items())
