"""Loads a pair of models and makes it ready: checked, with as many threads as pay, exact or compiled where asked,
rounds tried.

Stands above all that decodes, because it tries it; nothing that decodes may import it.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from decoder.config import PRESETS, Auto, Fixed, Linear, Rules, RunConfig, tree_rule
from decoder.decoding_path import STATIC, decoding_path
from decoder.device import choose_device, choose_draft_dtype, choose_dtype, has_graphs, require_compilable, set_up
from decoder.engine import Engine
from decoder.errors import ModelError, about, quoted, require
from decoder.forward.batch_invariant.pass_sizes import refuse_float64
from decoder.forward.cpu.packed import bfloat16_pays
from decoder.forward.eagle3.head import Head
from decoder.forward.eagle3.shape import HeadShape
from decoder.forward.language_model import LanguageModel
from decoder.methods import chosen, require_model_free
from decoder.models.checkpoints import EMBEDDED_DRAFT, EMBEDDED_TARGET, display_name, load_config, load_model
from decoder.models.compatibility import check_config, common_tokenizer, probe
from decoder.models.eagle3.checkpoint import fitting_layers, load_head, sizes_of
from decoder.models.eagle3.config import head_shape
from decoder.models.names import LOOKUP, require_both
from decoder.models.pair import Pair
from decoder.models.tokenizer import TextTokenizer
from decoder.tensor_parallel.check import require_packages, require_partial_target, require_partial_weights
from decoder.tensor_parallel.ranks import Ranks, ranks_of
from decoder.tensor_parallel.target import load_over, rank_device

if TYPE_CHECKING:
    from decoder.session.cuda_graph.static_shapes import Passes

Report = Callable[[str], None]
SPREAD_HEAD = (
    "an EAGLE-3 head reads what enters some layers of the target, which --tensor-parallel does not hand out; give a "
    "draft model or --draft lookup, or leave out --tensor-parallel"
)
TRIED: Sequence[Rules | None] = (None, Linear(2), Fixed(depth=2, branching=2), *PRESETS.values(), Auto())
"""Parameters of the self-test's rounds on a device."""


def load_pair(
    target: str | None = None,
    draft: str | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    draft_dtype: str = "auto",
    exact: bool = False,
    compiled: bool = False,
    tensor_parallel: int = 1,
    run: RunConfig | None = None,
    passes: "Passes | None" = None,
    report: Report = lambda _: None,
    progress: Report = lambda _: None,
) -> Engine:
    """Loads two models from hub ids or local folders, ready to decode; with neither, the embedded pair.

    A target alone is drafted for by lookups in the text's own past.

    Args:
        target: Hub id or folder.
        draft: Hub id or folder, of a model or of an EAGLE-3 head made for the target; or lookup, with no target too:
            that of the embedded pair.
        device: auto, cpu, cuda or cuda:N.
        dtype: auto, or a dtype's name.
        draft_dtype: The draft's; auto: the target's. The target still decides every token.
        exact: Whether every method must write the text of `ar` bit for bit, in half precision too; takes longer.
        compiled: Whether torch.compile is tried on the passes of both, and kept where it is faster; for CUDA.
        tensor_parallel: Processes that the target is spread over, this one, which leads them, among them; see
            `docs/tensor-parallel.md`.
        run: What is going to be decoded by, where that is compiled; None: `RunConfig()`.
        passes: What is compiled; None: what `run` decodes by.
        report: Told in a few words what is under way.
        progress: Told how far that has come, where it takes long.

    Raises:
        ConfigError: A draft was named without a target, a method of the run needs one, device or dtype is unknown,
            the dtype leaves no room to be exact, nothing can be compiled, or the target cannot be spread.
        DeviceError: There is no such device.
        ModelError: A model cannot be loaded.
        PairError: The two do not fit each other, or the engine cannot run one exactly.
    """
    names = _named(target, draft)
    shape = head_shape(names["draft"]) if "draft" in names else None
    if shape or "draft" not in names:
        require_model_free(run.methods if run else ())
        require(
            not compiled, "--compile is for rounds on the device, which only two models have; leave it out", "compile"
        )
        asked = shape or draft_dtype == "auto"
        require(bool(asked), "--draft-dtype has no effect without a draft model; leave it out")
    ranks = _ranks(tensor_parallel, run or RunConfig(), exact=exact, compiled=compiled)
    require(not (ranks and shape), SPREAD_HEAD)
    chosen_device = rank_device(ranks, device) if ranks else choose_device(device)
    if compiled:
        require_compilable(chosen_device, exact=exact)
    whole = {"target": names["target"]} if shape else names
    configs = {}
    for role, name in whole.items():
        with about(role):
            configs[role] = load_config(name)
    _check_configs(names, configs, shape)
    chosen_dtype = choose_dtype(dtype, chosen_device, getattr(configs["target"], "dtype", None), bfloat16_pays)
    chosen_draft_dtype = choose_draft_dtype(draft_dtype, chosen_dtype)
    for each in (chosen_dtype, chosen_draft_dtype):
        if exact:
            refuse_float64(each)
        set_up(chosen_device, each)
    with about(*whole):
        tokenizer = common_tokenizer(*whole.values())
    models = {}
    load_target = partial(load_over, ranks) if ranks else load_model
    for role, load, kind in (("target", load_target, chosen_dtype), ("draft", load_model, chosen_draft_dtype)):
        if role in whole:
            report(f"loading {role} {display_name(whole[role])}")
            with about(role):
                models[role] = load(whole[role], chosen_device, kind, progress)
    head = _head_for(models["target"], names["draft"], shape, chosen_draft_dtype) if shape else None
    pair = make_pair(models["target"], head or models.get("draft"), tokenizer)
    engine = make_engine(pair, exact=exact, report=report)
    if compiled:
        compile_rounds(engine, report, passes, run)
    for model in engine.pair.models.values():
        model.slim()
    return engine


def _check_configs(names: Mapping[str, str], configs: Mapping[str, Any], shape: HeadShape | None) -> None:
    """Raises PairError where a model cannot be decoded, or a head was made for another target."""
    for role, found in configs.items():
        with about(role):
            check_config(display_name(names[role]), found)
    if shape:
        fitting_layers(display_name(names["draft"]), shape, sizes_of(display_name(names["target"]), configs["target"]))


def _head_for(target: LanguageModel, name: str, shape: HeadShape, dtype: torch.dtype) -> Head:
    """An EAGLE-3 head, and its target in a form that shows what enters its layers."""
    if target.device.type != "cpu":
        target.run_by_module()
    return load_head(name, shape, target, dtype)


def _named(target: str | None, draft: str | None) -> dict[str, str]:
    """Names of the models to load, by role; without a draft, lookup drafts."""
    if target is None and draft is None:
        return {"target": str(EMBEDDED_TARGET), "draft": str(EMBEDDED_DRAFT)}
    require_both(target, draft or LOOKUP)
    alone = {"target": target or str(EMBEDDED_TARGET)}
    return alone if draft in (None, LOOKUP) else {**alone, "draft": str(draft)}


def with_draft(engine: Engine, target: str, draft: str, *, draft_dtype: str = "auto", report: Report) -> Engine:
    """The loaded target of another pair with one more draft, ready to decode; both pairs can be used.

    Args:
        engine: The other pair, which is not exact.
        target: Where its target was loaded from.
        draft: Hub id or folder.
        draft_dtype: See `load_pair`.
        report: See `load_pair`.

    Raises:
        DecoderError: As `load_pair`.
    """
    check_config(display_name(draft), load_config(draft))
    loaded = engine.pair.target
    dtype = choose_draft_dtype(draft_dtype, loaded.dtype)
    set_up(loaded.device, dtype)
    tokenizer = common_tokenizer(target, draft)
    report(f"loading draft {display_name(draft)}")
    found = make_engine(make_pair(loaded, load_model(draft, loaded.device, dtype, report), tokenizer), report=report)
    found.pair.draft_model.slim()
    return found


def make_engine(pair: Pair, *, exact: bool = False, report: Report = lambda _: None) -> Engine:
    """A pair, ready to decode with as many threads as pay, and tried on its accelerator unless it is to be exact."""
    slots = None
    if pair.draft and has_graphs(pair.target.device) and not pair.target.ranks:
        from decoder.session.cuda_graph.slots import GraphSlots

        slots = GraphSlots()
    engine = Engine(pair, slots=slots)
    engine.settle_threads()
    if exact:
        report("finding passes that agree bit for bit")
        return engine.batch_invariant()
    try_rounds(engine, report)
    return engine


def try_rounds(engine: Engine, report: Report) -> None:
    """Finds out whether rounds run on the pair's accelerator, if it has one that repeats work from graphs."""
    slots = engine.slots
    if slots is None or slots.refused:
        return
    from decoder.session.cuda_graph.self_test import prepare_rounds

    report("trying rounds on the device")
    slots.refused = prepare_rounds(engine.pair, slots, TRIED)
    path = decoding_path(engine)
    if slots.refused:
        report(f"rounds are driven by the host, which is slower: on the device, {slots.refused}")
    elif path.name == STATIC:
        report(f"graphs run through a Hugging Face module, which is slower: {path.reason}")


def compile_rounds(
    engine: Engine, report: Report, listed: "Passes | None" = None, run: RunConfig | None = None
) -> None:
    """Compiles the passes of rounds on the device, by default those of a run, where that is faster."""
    if engine.slots is None or engine.slots.refused:
        return
    from decoder.session.cuda_graph.compiled import compile_pair

    compile_pair(engine.pair, engine.slots, TRIED, report, listed or passes_of(run or RunConfig()))


def passes_of(run: RunConfig) -> "Passes":
    """The passes of all methods of a run."""
    from decoder.session.cuda_graph.static_shapes import passes

    return passes(tree_rule(run.parameters.get(name)) for name in run.methods)


def make_pair(target: LanguageModel, draft: LanguageModel | Head | None, tokenizer: TextTokenizer) -> Pair:
    """A pair of a target and what drafts for it, if anything, after the tree probe of all whole models."""
    own, head = (None, draft) if isinstance(draft, Head) else (draft, None)
    models = [target, own] if own else [target]
    for model in models:
        probe(model)
    ids = _ends(target)
    for model in models:
        # Penalties, bans and sampling settings that a checkpoint brings along are off for every method.
        model.end_with(target.eos if ids else None, pad=ids[0] if ids else None)
    return Pair(
        target=target,
        draft=own,
        tokenizer=tokenizer,
        vocabulary=min(model.width for model in models),
        eos=frozenset(ids),
        context=min(model.context for model in models),
        head=head,
    )


def _ranks(asked: int, run: RunConfig, *, exact: bool, compiled: bool) -> Ranks | None:
    """The processes that a target is spread over, if such a run can be; None: this one loads it alone."""
    require(
        asked >= 1, f"tensor_parallel is {asked}, which is no number of processes; give 1 or more", "tensor_parallel"
    )
    if asked == 1:
        return None
    require_packages()
    require_partial_weights(exact=exact, compiled=compiled)
    require_partial_target(chosen(run.methods))
    return ranks_of(asked, os.environ)


def _ends(target: LanguageModel) -> list[int]:
    """The tokens that end a text; none where the model names none."""
    named = target.eos
    ids = named if isinstance(named, list) else [] if named is None else [named]
    if not all(isinstance(token, int) for token in ids):
        raise ModelError(
            f"the configuration of {target.name} says that eos_token_id is {quoted(named)}, which is no token; "
            "write a number or a list of numbers there"
        )
    return ids
