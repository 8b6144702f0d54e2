"""Pairs of models with random weights or with a draft that guesses at random."""

import copy
import json
from dataclasses import replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from tokenizers import Tokenizer, models
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.engine import Engine
from decoder.errors import ConfigError, DeviceError, quoted, require, shortened
from decoder.forward.hf_module import Load
from decoder.forward.language_model import LanguageModel
from decoder.models.compatibility import check_architecture
from decoder.models.gguf_file import is_gguf
from decoder.models.heads import require_whole_draft
from decoder.models.pair import Pair
from decoder.run.decoding_path import bfloat16_pays
from decoder.run.loading import Report, compile_rounds, load_pair, make_engine, make_pair, try_rounds
from decoder.session.cuda_graph.static_shapes import Passes
from decoder.system.device import (
    choose_device,
    choose_draft_dtype,
    choose_dtype,
    memory_is_full,
    require_compilable,
    set_up,
)
from decoder.tensor_parallel.check import require_partial_weights
from decoder.tensor_parallel.ranks import ranks_here

SEED = 0
CERTAINTY = 40.0
"""Standard deviation of the draft's logits; it is so large that one token nearly always has a probability near 1."""
BIAS = 0.02
"""Standard deviation of biases; the other weights have the same standard deviation."""


def names() -> list[str]:
    return sorted(entry.name.removesuffix(".json") for entry in _folder().iterdir() if entry.name.endswith(".json"))


def random_pair(
    target: str,
    draft: str,
    *,
    device: str,
    dtype: str,
    draft_dtype: str = "auto",
    exact: bool = False,
    compiled: bool = False,
    kernels: bool = True,
    passes: Passes | None = None,
    report: Report = lambda _: None,
) -> Engine:
    """Engine of two models with random weights, each given by the name of a shape or by the path of a config.json.

    Further arguments are those of `load_pair`, but dtype "auto" is float16 on CUDA. Raises DecoderError if a shape or
    an option is invalid, or the engine or the device cannot run the models.
    """
    transformers_logging.set_verbosity_error()
    where = choose_device(device)
    if compiled:
        require_compilable(where, exact=exact)
    configs = [_config(name) for name in (target, draft)]
    kind = choose_dtype(dtype, where, None, partial(bfloat16_pays, configs[0]))
    draft_kind = choose_draft_dtype(draft_dtype, kind)
    for each in (kind, draft_kind):
        set_up(where, each)
    report(f"making {target} and {draft} with random weights")

    def made(name: str, make: Load) -> LanguageModel:
        load = _made_on(where, make)
        return LanguageModel.of_module(load(where), Path(name).name, load)

    of_target = made(target, partial(_random_module, target, configs[0], kind, 0))
    of_draft = made(draft, partial(_random_module, draft, configs[1], draft_kind, 1, certain=True))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()))
    engine = make_engine(make_pair(of_target, of_draft, tokenizer), exact=exact, kernels=kernels, report=report)
    if compiled:
        compile_rounds(engine, report, passes)
    return engine


def loaded_pair(
    target: str | None,
    draft: str | None,
    *,
    device: str,
    exact: bool = False,
    compiled: bool = False,
    passes: Passes | None = None,
    report: Report = lambda _: None,
    **further: Any,
) -> Engine:
    """Engine of the pair that `load_pair` loads, with a draft that guesses at random; `further` are arguments of
    `load_pair`. If `compiled` is set, passes are compiled after the draft has become random.
    """
    require_whole_draft("a draft that guesses at random", target, draft)
    in_torch = not any(is_gguf(name) for name in (target, draft) if name)
    require(
        in_torch,
        "a draft that guesses at random needs models in torch, but one model is a GGUF file; give other models",
    )
    if ranks_here():
        require_partial_weights(exact=exact, compile=compiled)
    if compiled:
        require_compilable(choose_device(device), exact=exact)
    engine = with_random_draft(load_pair(target, draft, device=device, exact=exact, report=report, **further))
    if not exact:
        try_rounds(engine, report)
    if compiled:
        compile_rounds(engine, report, passes)
    return engine


def with_random_draft(engine: Engine) -> Engine:
    """Engine whose draft has a random output matrix, so that only acceptance changes, and not the time of a pass."""
    pair, slots = engine.pair, engine.slots and engine.slots.anew(engine.pair.target)
    held, name = pair.draft_model, f"{pair.draft_name} (random head)"
    if held.hf.reloadable:
        make = _made_on(held.device, lambda device: _with_random_head(held.hf.load(device)))
        draft = LanguageModel.of_module(make(held.device), name, make)
    else:
        draft = LanguageModel.of_module(_with_random_head(copy.deepcopy(held.hf.module)), name)
    return replace(engine, pair=replace(pair, draft=draft), slots=slots, costs={}, acceptance=AcceptanceModel())


def _made_on(where: torch.device, make: Load) -> Load:
    """Loader that makes the module on `where`, since random numbers differ between devices, and then moves it."""
    return lambda device: make(where).to(device)


def _with_random_head(module: Any) -> Any:
    head = module.get_output_embeddings().weight
    with torch.no_grad():
        head.normal_(generator=torch.Generator(head.device).manual_seed(SEED))
    _be_certain(module)
    return module


def random_prompt(pair: Pair, length: int, more: int) -> list[int]:
    """Random token ids; raises ConfigError if they and `more` further tokens exceed the models' context."""
    if length + more > pair.context:
        raise ConfigError(
            f"{length} random tokens and {more} new and drafted tokens exceed the context of {pair.context} tokens; "
            "lower --context or --max-new-tokens"
        )
    ids: list[int] = torch.randint(pair.vocabulary, (length,), generator=torch.Generator().manual_seed(SEED)).tolist()
    return ids


def _random_module(
    name: str, config: Any, dtype: torch.dtype, seed: int, device: torch.device, *, certain: bool = False
) -> Any:
    torch.manual_seed(seed)
    try:
        with device:
            module: Any = AutoModelForCausalLM.from_config(config, dtype=dtype)
            for part, weight in module.named_parameters():
                if part.endswith("bias"):  # in a new module biases are 0, and passes skip biases of 0
                    torch.nn.init.normal_(weight, std=BIAS)
    except Exception as error:  # the model family's own code checks the config, and can raise any exception
        if not memory_is_full(error):
            raise ConfigError(
                f"{name} is not the configuration of a language model ({_short(error)}); give another config.json"
            ) from error
        raise DeviceError(f"{name} does not fit in the memory of {device}; choose a smaller shape or dtype") from error
    if certain:
        _be_certain(module)
    return module.eval()


def _config(name: str) -> Any:
    path = Path(name)
    if not name.endswith(".json"):
        require(
            name in names(), f"there is no shape {quoted(name)}; give a config.json, or one of {', '.join(names())}"
        )
        path = _folder() / f"{name}.json"
    try:
        config = AutoConfig.for_model(**json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"cannot read {shortened(path)}: {error.strerror}; give a model's config.json") from None
    except Exception as error:  # each model family checks its fields in its own code, which can raise any exception
        raise ConfigError(
            f"{shortened(path)} is not a model's configuration ({_short(error)}); give a model's config.json"
        ) from error
    check_architecture(name, config.get_text_config())
    return config


def _short(error: Exception) -> str:
    """Beginning of an error's text, without the lists of all valid values that follow in some errors."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return shorten(" ".join(lines[:2]).rstrip("."), 160, placeholder=" ...")


def _be_certain(module: Any) -> None:
    """Scales the output matrix so that the standard deviation of the logits is `CERTAINTY`."""
    head = module.get_output_embeddings()
    with torch.no_grad():
        ids = torch.arange(min(8, len(head.weight)), device=head.weight.device)[None]
        spread = float(module(input_ids=ids).logits.float().std())
        head.weight.mul_(CERTAINTY / spread)


def _folder() -> Any:
    return files("dynatui.lab.bench") / "shapes"
