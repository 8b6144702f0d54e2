"""Loads a pair of models and prepares it for decoding: checks, number of threads, batch-invariant or compiled passes,
self-test of rounds. Imports all decoding code, since the self-test runs it; no decoding code may import this module.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from decoder.engine import Engine
from decoder.errors import ModelError, about, quoted, require
from decoder.forward.batch_invariant import refuse_float64
from decoder.forward.language_model import LanguageModel
from decoder.heads.parts import StatesReader
from decoder.methods import chosen, require_model_free, require_shared_tokens
from decoder.methods.auto import Auto
from decoder.methods.dynatree import PRESETS
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.models import hub
from decoder.models.checkpoints import EMBEDDED_DRAFT, EMBEDDED_TARGET, display_name, load_config, load_model
from decoder.models.compatibility import check_config, probe, tokenizers_of
from decoder.models.head_weights import fitting_layers, sizes_of
from decoder.models.heads import AnyShape, head_shape, load_head
from decoder.models.inflated import Inflated, inflated_pair, require_memory
from decoder.models.mtp import MtpShape, mtp_layout
from decoder.models.names import LOOKUP, require_both
from decoder.models.pair import Pair, Translation
from decoder.models.quantisation import quantisation_of
from decoder.models.tokenizer import TextTokenizer
from decoder.run.config import RunConfig
from decoder.run.decoding_path import STATIC, bfloat16_pays, decoding_path
from decoder.run.gguf_options import (
    gguf_roles,
    require_dtypes_of_torch,
    require_gpu_layers,
    require_weights_of_torch,
)
from decoder.system.device import (
    choose_device,
    choose_draft_dtype,
    choose_dtype,
    device_count,
    has_graphs,
    require_compilable,
    set_up,
)
from decoder.tensor_parallel.check import rank_device, require_partial_target, require_partial_weights
from decoder.tensor_parallel.ranks import Ranks, ranks_here
from decoder.tensor_parallel.target import load_over, serve
from decoder.tree_rules import Rules, tree_rule

if TYPE_CHECKING:
    from decoder.session.cuda_graph.static_shapes import Passes

Report = Callable[[str], None]
ON_CPU = (
    "the embedded pair is too small for a GPU and runs on the CPU; for the GPU, give --target and --draft, or "
    "--inflate 2.8B"
)
TRIED: Sequence[Rules | None] = (None, Linear(2), Fixed(depth=2, branching=2), *PRESETS.values(), Auto())
"""Rules of the rounds that the self-test on an accelerator runs; None stands for rounds without a draft."""


def load_pair(
    target: str | None = None,
    draft: str | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    draft_dtype: str = "auto",
    inflate: str | None = None,
    exact: bool = False,
    compiled: bool = False,
    kernels: bool = True,
    kernels_later: bool = False,
    gpu_layers: int | None = None,
    run: RunConfig | None = None,
    passes: "Passes | None" = None,
    report: Report = lambda _: None,
    progress: Report = lambda _: None,
) -> Engine:
    """Loads two models from hub ids or local folders and prepares them for decoding. If no model is named, loads the
    embedded pair. If only a target is named, the draft is suffix lookup.

    In processes that torchrun has started, the target is spread over all of them (`docs/tensor-parallel.md`): the call
    returns only in the first process, and the other processes serve it until it ends.

    Args:
        target: Hub id, folder or GGUF file.
        draft: Hub id, folder or GGUF file of a draft model; hub id or folder of a drafting head for the target; "mtp"
            for the MTP layer in the target's checkpoint; or "lookup" for suffix lookup. If the draft is "lookup" and no
            target is named, the embedded target is loaded.
        device: auto, cpu, cuda or cuda:N. The embedded target runs on the CPU if the device is auto, unless it is
            inflated.
        dtype: auto, or a dtype's name. On CUDA, auto means the checkpoint's dtype, and float32 for the embedded target
            unless it is inflated.
        draft_dtype: Dtype of the draft; auto: the target's dtype. Whatever the draft's dtype, the target decides every
            token.
        inflate: Number of parameters, such as 2.8B or 500M, of a larger target: the embedded pair writes its own texts
            at the cost of that target (`decoder.models.inflated`). None: models are loaded as they are.
        exact: Whether every method must write exactly the text of `ar`, even in half precision; this is slower.
        compiled: Whether torch.compile is tried on the passes of both models, and used where it is faster; CUDA only.
        kernels: Whether Triton kernels for small parts of rounds are tried, and used where they give the same results
            as the plain functions and are faster; CUDA only.
        kernels_later: Whether the first start of a pair tries kernels in the caller's idle time, by `Engine.prepare`,
            and not during loading. With `compiled`, they are tried during loading.
        gpu_layers: Number of layers of each GGUF file that llama.cpp keeps on a GPU; None: llama.cpp chooses.
        run: Run whose methods are checked, and whose passes are compiled; None: `RunConfig()`.
        passes: Passes to compile; None: the passes of `run`.
        report: Called at each step of loading, with a name of the step in a few words.
        progress: Called with the progress of long steps.

    Raises:
        ConfigError: A draft was named without a target, a method of the run needs a draft model but the pair has none,
            the device or dtype is unknown, `exact` is set with float64, nothing can be compiled, processes cannot share
            the target, the target's checkpoint has no supported MTP layer, or `inflate` is not a size or is set beside
            other models or processes.
        DeviceError: The device does not exist, its memory is full or too small for `inflate`, or it has failed.
        ModelError: A model cannot be loaded.
        PairError: Target and draft do not fit each other, or the engine cannot decode with one of them.
    """
    hub.tell.set(report)
    names = _names(target, draft)
    ranks = _leading(names["target"], device)
    inflated = inflated_pair(inflate, names, report) if inflate is not None else {}
    shape = head_shape(names["draft"]) if "draft" in names else None
    if shape or "draft" not in names:
        _require_no_draft_model(run, shape, draft_dtype, compiled=compiled)
    require_weights_of_torch(names, run or RunConfig(), exact=exact, compiled=compiled, head=bool(shape))
    require_dtypes_of_torch(names, device=device, dtype=dtype, draft_dtype=draft_dtype)
    require_gpu_layers(names, gpu_layers)
    if ranks:
        require_partial_weights(
            exact=exact, compile=compiled, inflate=bool(inflated), head=bool(shape), gguf=bool(gguf_roles(names))
        )
        require_partial_target(chosen((run or RunConfig()).methods))
    small = names["target"] == str(EMBEDDED_TARGET) and not inflated
    chosen_device = _device(names, device, ranks, small=small, report=report)
    if compiled:
        require_compilable(chosen_device, exact=exact)
    whole = {"target": names["target"]} if shape else names
    configs = {}
    for role, name in whole.items():
        with about(role):
            configs[role] = _checked_config(name, chosen_device, inflated.get(role))
    _check_head(names, configs["target"], shape)
    chosen_dtype = choose_dtype(
        dtype,
        chosen_device,
        # The small embedded target computes in float32, so that passes of any size choose the same tokens.
        torch.float32 if small else getattr(configs["target"], "dtype", None),
        partial(bfloat16_pays, configs["target"]),
    )
    chosen_draft_dtype = choose_draft_dtype(draft_dtype, chosen_dtype)
    dtypes = {"target": chosen_dtype, "draft": chosen_draft_dtype}
    for model_dtype in dtypes.values():
        if exact:
            refuse_float64(model_dtype)
        set_up(chosen_device, model_dtype)
    with about(*whole):
        tokenizer, of_draft = _tokenizers(whole, run, compiled=compiled)
    require_memory(inflated, dtypes, chosen_device)
    models = {}
    for role, name in whole.items():
        report(f"loading {role} {inflated[role].name if role in inflated else display_name(name)}")
        with about(role):
            load = _load_of(role, name, inflated, ranks, gpu_layers)
            models[role] = load(chosen_device, dtypes[role], progress)
    head = _head_for(models["target"], names, shape, chosen_draft_dtype) if shape else None
    pair = make_pair(models["target"], head or models.get("draft"), tokenizer, of_draft)
    later = kernels_later and not compiled
    engine = make_engine(pair, exact=exact, kernels=kernels, kernels_later=later, report=report)
    if compiled:
        compile_rounds(engine, report, passes, run)
    for model in engine.pair.models.values():
        model.slim()
    return engine


def _leading(target: str, device: str) -> Ranks | None:
    """Ranks if this process leads others; None if it runs alone. In any other rank, the function does not return."""
    ranks = ranks_here()
    if ranks and not ranks.leads:
        serve(ranks, target, device)
    return ranks


def _require_no_draft_model(run: RunConfig | None, shape: AnyShape | None, draft_dtype: str, *, compiled: bool) -> None:
    require_model_free(run.methods if run else ())
    require(
        not compiled, "--compile needs a draft model, whose passes are compiled too; leave --compile out", "compile"
    )
    takes_dtype = shape is not None or draft_dtype == "auto"
    require(takes_dtype, "--draft-dtype has no effect without a draft model; leave --draft-dtype out")


def _device(names: Mapping[str, str], device: str, ranks: Ranks | None, *, small: bool, report: Report) -> torch.device:
    """Device of the target. For the embedded target, which is too small to be faster on a GPU, `auto` means the CPU."""
    if small and device == "auto":
        if device_count():
            report(ON_CPU)
        device = "cpu"
    if ranks:
        return rank_device(ranks, device)
    return choose_device("cpu" if "target" in gguf_roles(names) else device)


def _load_of(
    role: str, name: str, inflated: Mapping[str, Inflated], ranks: Ranks | None, gpu_layers: int | None
) -> Callable[[torch.device, torch.dtype, Report], LanguageModel]:
    if role in inflated:
        return inflated[role].load
    if role == "target" and ranks:
        return partial(load_over, ranks, name)
    return partial(load_model, name, gpu_layers=gpu_layers)


def _tokenizers(
    models: Mapping[str, str], run: RunConfig | None, *, compiled: bool
) -> tuple[TextTokenizer, TextTokenizer | None]:
    """Tokenizers of the pair; raises ConfigError if an option or method forbids a draft with its own tokenizer."""
    tokenizer, of_draft = tokenizers_of(*models.values())
    if of_draft:
        draft = display_name(models["draft"])
        require_shared_tokens(run.methods if run else (), draft)
        require(
            not compiled,
            f"--compile needs a draft with the target's tokenizer, but {draft} has a tokenizer of its own; leave "
            "--compile out",
            "compile",
        )
    return tokenizer, of_draft


def _checked_config(name: str, device: torch.device, inflated: Inflated | None = None) -> Any:
    """Configuration of a model. Raises PairError if the engine cannot decode with it, ConfigError for quantised weights
    that this machine cannot load.
    """
    config = inflated.architecture if inflated else load_config(name)
    check_config(display_name(name), config)
    quantisation_of(display_name(name), config, device)
    return config


def _check_head(names: Mapping[str, str], config: Any, shape: AnyShape | None) -> None:
    """Raises PairError if a head was made for another target, ConfigError for an MTP layer that the target's checkpoint
    lacks.
    """
    if isinstance(shape, MtpShape):
        mtp_layout(names["target"], config)
    elif shape:
        fitting_layers(display_name(names["draft"]), shape, sizes_of(display_name(names["target"]), config))


def _head_for(target: LanguageModel, names: Mapping[str, str], shape: AnyShape, dtype: torch.dtype) -> StatesReader:
    """Loads a head, after choosing a form of the target that outputs the layer states that the head reads."""
    if target.device.type != "cpu" and not _captures(target.device, shape):
        target.run_by_module()
    return load_head(names["target" if isinstance(shape, MtpShape) else "draft"], shape, target, dtype)


def _captures(device: torch.device, shape: AnyShape) -> bool:
    """Whether rounds with such a head are tried in CUDA graphs; the self-test then chooses the target's form."""
    if not has_graphs(device):
        return False
    from decoder.heads.eagle3 import has_static_form

    return has_static_form(shape)


def _names(target: str | None, draft: str | None) -> dict[str, str]:
    """Names of the models by role, without `draft` if the draft is suffix lookup."""
    if target is None and draft is None:
        return {"target": str(EMBEDDED_TARGET), "draft": str(EMBEDDED_DRAFT)}
    require_both(target, draft or LOOKUP)
    alone = {"target": target or str(EMBEDDED_TARGET)}
    return alone if draft in (None, LOOKUP) else {**alone, "draft": str(draft)}


def with_draft(engine: Engine, target: str, draft: str, *, draft_dtype: str = "auto", report: Report) -> Engine:
    """A second engine with the target of `engine`, which must not be exact, and a new draft; both engines stay usable.
    Raises the errors of `load_pair`.
    """
    hub.tell.set(report)
    names, loaded, shape = {"target": target, "draft": draft}, engine.pair.target, head_shape(draft)
    own, of_target, of_draft = loaded.dtype, engine.pair.tokenizer, None
    if shape:
        require_weights_of_torch(names, RunConfig(), exact=False, compiled=False, head=True)
        _check_head(names, load_config(target), shape)
        if not _captures(loaded.device, shape):
            # The target is copied, since a head may need a forward form of the target that other drafts do not need.
            loaded = copy.copy(loaded)
    else:
        config = _checked_config(draft, loaded.device)
        of_target, of_draft = tokenizers_of(target, draft)
        if loaded.computed_by:
            own = choose_dtype("auto", loaded.device, None, partial(bfloat16_pays, config))
    dtype = choose_draft_dtype(draft_dtype, own)
    set_up(loaded.device, dtype)
    report(f"loading draft {display_name(draft)}")
    drafting = _head_for(loaded, names, shape, dtype) if shape else load_model(draft, loaded.device, dtype, report)
    kernels = bool(engine.slots and engine.slots.kernels)
    added = make_engine(make_pair(loaded, drafting, of_target, of_draft), kernels=kernels, report=report)
    if added.pair.draft:
        added.pair.draft.slim()
    return added


def make_engine(
    pair: Pair,
    *,
    exact: bool = False,
    kernels: bool = True,
    kernels_later: bool = False,
    report: Report = lambda _: None,
) -> Engine:
    """Makes an engine with a suitable number of threads; batch-invariant if `exact`, else self-tested on CUDA."""
    slots = None
    by_torch = not any(model.computed_by for model in pair.models.values())
    if by_torch and not pair.translation and has_graphs(pair.target.device) and not pair.target.ranks:
        from decoder.heads.eagle3 import only_on_host
        from decoder.session.cuda_graph.slots import GraphSlots

        slots = None if only_on_host(pair.head) else GraphSlots(kernels=kernels, kernels_later=kernels_later)
    engine = Engine(pair, slots=slots)
    engine.settle_threads()
    if exact:
        report("finding pass sizes that give bit-identical results")
        return engine.batch_invariant()
    try_rounds(engine, report)
    return engine


def try_rounds(engine: Engine, report: Report) -> None:
    """Tests rounds in CUDA graphs, if the device has them; `slots.refused` records why a test fails."""
    slots = engine.slots
    if slots is None or slots.refused:
        return
    from decoder.session.cuda_graph.operators import verdicts_folder
    from decoder.session.cuda_graph.self_test import prepare_rounds

    report("testing rounds on the device")
    slots.refused = prepare_rounds(engine.pair, slots, TRIED, report, verdicts_folder())
    path = decoding_path(engine)
    if slots.refused:
        report(f"rounds are driven by the host, which is slower; rounds on the device failed: {slots.refused}")
    elif path.name == STATIC:
        report(f"CUDA graphs run a Hugging Face module, which is slower: {path.reason}")


def compile_rounds(
    engine: Engine, report: Report, listed: "Passes | None" = None, run: RunConfig | None = None
) -> None:
    """Compiles the passes of rounds on the device (`listed`, or those of the run's methods), and uses compiled passes
    where they are faster.
    """
    if engine.slots is None or engine.slots.refused:
        return
    from decoder.session.cuda_graph.compiled import compile_pair

    compile_pair(engine.pair, engine.slots, TRIED, report, listed or passes_of(run or RunConfig()))


def passes_of(run: RunConfig) -> "Passes":
    """Numbers of rows of the passes that the methods of a run make in CUDA graphs."""
    from decoder.session.cuda_graph.static_shapes import passes

    return passes(tree_rule(run.parameters.get(name)) for name in run.methods)


def make_pair(
    target: LanguageModel,
    draft: LanguageModel | StatesReader | None,
    tokenizer: TextTokenizer,
    of_draft: TextTokenizer | None = None,
) -> Pair:
    """Makes a pair, after `probe` has tested that its models compute trees. `of_draft`: the draft's own tokenizer."""
    draft_model, head = (draft, None) if isinstance(draft, LanguageModel | None) else (None, draft)
    models = [target, draft_model] if draft_model else [target]
    for model in models:
        probe(model)
    ids = _ends(target)
    for model in [target] if of_draft else models:
        # No method may use the penalties, token bans and sampling settings that the checkpoint defines.
        model.hf.end_with(ids[0] if len(ids) == 1 else ids or None, pad=ids[0] if ids else None)
    translation = None
    if draft_model and of_draft:
        known = 1 + max(of_draft.get_vocab().values())
        translation = Translation(of_draft, min(known, draft_model.width), frozenset(_ends(draft_model)))
    alike = [target] if translation else models
    return Pair(
        target=target,
        draft=draft_model,
        tokenizer=tokenizer,
        eos=frozenset(ids),
        context=min(model.context for model in alike),
        head=head,
        translation=translation,
    )


def _ends(target: LanguageModel) -> list[int]:
    """End-of-text tokens of a model, without ids outside its vocabulary; ModelError for anything but token ids."""
    named = target.eos
    ids = named if isinstance(named, list) else [] if named is None else [named]
    if not all(type(token) is int for token in ids):
        raise ModelError(
            f"the configuration of {target.name} says that eos_token_id is {quoted(named)}, which is not a token id; "
            "write a token id or a list of token ids there"
        )
    return [token for token in ids if 0 <= token < target.width]
