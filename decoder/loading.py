"""Loads a pair of models and makes it ready: checked, with as many threads as pay, exact or compiled where asked,
rounds tried.

Stands above all that decodes, because it tries it; nothing that decodes may import it.
"""

from collections.abc import Callable

from transformers import GenerationConfig, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from decoder.checkpoints import EMBEDDED_DRAFT, EMBEDDED_TARGET, display_name, load_config, load_model
from decoder.checks import check_config, common_tokenizer, probe
from decoder.device import choose_device, choose_dtype
from decoder.errors import ConfigError
from decoder.exact.pair import exact_pair
from decoder.exact.trial import refuse_float64
from decoder.lean.half import bfloat16_pays
from decoder.models import LanguageModel, Pair
from decoder.resident.compiled import require_compilable
from decoder.resident.contest import compile_pair
from decoder.resident.trial import refusal
from decoder.threads import settle_threads

Report = Callable[[str], None]


def load_pair(
    target: str | None = None,
    draft: str | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    exact: bool = False,
    compiled: bool = False,
    report: Report = lambda _: None,
) -> Pair:
    """Loads two models from hub ids or local folders; with neither, the embedded pair.

    Args:
        target: Hub id or folder.
        draft: Hub id or folder.
        device: auto, cpu, cuda or cuda:N.
        dtype: auto, or a dtype's name.
        exact: Whether every method must write the text of `ar` bit for bit, in half precision too; takes longer.
        compiled: Whether torch.compile is tried on the passes of both, and kept where it is faster; for CUDA.
        report: Told in a few words what is under way.

    Raises:
        ConfigError: Only one model was named, device or dtype is unknown, the dtype leaves no room to be exact,
            or nothing can be compiled.
        DeviceError: There is no such device.
        ModelError: A model cannot be loaded.
        PairError: The two do not fit each other, or the engine cannot run one exactly.
    """
    if (target is None) != (draft is None):
        raise ConfigError("a target needs a draft and a draft a target; give both --target and --draft, or neither")
    target, draft = target or str(EMBEDDED_TARGET), draft or str(EMBEDDED_DRAFT)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    chosen_device = choose_device(device)
    if compiled:
        require_compilable(chosen_device, exact=exact)
    configs = {name: load_config(name) for name in (target, draft)}
    for name, config in configs.items():
        check_config(display_name(name), config)
    chosen_dtype = choose_dtype(dtype, chosen_device, getattr(configs[target], "dtype", None), bfloat16_pays)
    if exact:
        refuse_float64(chosen_dtype)
    tokenizer = common_tokenizer(target, draft)
    models = []
    for role, name in (("target", target), ("draft", draft)):
        report(f"loading {role} {display_name(name)}")
        models.append(load_model(name, chosen_device, chosen_dtype))
    pair = make_pair(models[0], models[1], tokenizer)
    settle_threads(pair)
    if exact:
        report("finding passes that agree bit for bit")
        pair = exact_pair(pair)
    elif chosen_device.type == "cuda":
        _try_rounds(pair, report)
    if compiled:
        compile_rounds(pair, report)
    for model in (pair.target, pair.draft):
        model.slim()
    return pair


def _try_rounds(pair: Pair, report: Report) -> None:
    report("trying rounds on the device")
    pair.seats.refused = refusal(pair)
    if pair.seats.refused:
        report(f"rounds are driven by the host, which is slower: on the device, {pair.seats.refused}")


def compile_rounds(pair: Pair, report: Report) -> None:
    """Compiles the passes of rounds on the device, where there are such rounds and that is faster."""
    if pair.seats.refused is None:
        compile_pair(pair, report)


def make_pair(target: LanguageModel, draft: LanguageModel, tokenizer: PreTrainedTokenizerBase) -> Pair:
    """A pair of two loaded models, after the tree probe of both."""
    for model in (target, draft):
        probe(model)
    eos = target.generation.eos_token_id
    ids = eos if isinstance(eos, list) else [eos]
    for model in (target, draft):
        # Penalties, bans and sampling settings that a checkpoint brings along are off for every method.
        model.generate_by(GenerationConfig(eos_token_id=eos, pad_token_id=ids[0]))
    return Pair(
        target=target,
        draft=draft,
        tokenizer=tokenizer,
        vocabulary=min(target.width, draft.width),
        eos=frozenset(i for i in ids if i is not None),
        context=min(target.context, draft.context),
    )
