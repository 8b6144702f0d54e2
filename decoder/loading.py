"""Loads a pair of models and makes it ready: checked, with as many threads as pay, exact or compiled where asked,
rounds tried.

Stands above all that decodes, because it tries it; nothing that decodes may import it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from decoder.config import RunConfig
from decoder.cpu_threads import settle_threads
from decoder.decoding_path import STATIC, decoding_path
from decoder.device import choose_device, choose_dtype, has_graphs, set_up
from decoder.errors import ConfigError, ModelError, quoted
from decoder.exact_pair import exact_pair
from decoder.forward.batch_invariant.size_search import refuse_float64
from decoder.forward.cpu.bfloat16_trial import bfloat16_pays
from decoder.forward.language_model import LanguageModel
from decoder.models.checkpoints import EMBEDDED_DRAFT, EMBEDDED_TARGET, display_name, load_config, load_model
from decoder.models.compatibility import check_config, common_tokenizer, probe
from decoder.models.pair import Pair
from decoder.models.tokenizer import TextTokenizer

if TYPE_CHECKING:
    from decoder.session.cuda_graph.pass_sizes import Passes

Report = Callable[[str], None]


def load_pair(
    target: str | None = None,
    draft: str | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    exact: bool = False,
    compiled: bool = False,
    passes: "Passes | None" = None,
    report: Report = lambda _: None,
    progress: Report = lambda _: None,
) -> Pair:
    """Loads two models from hub ids or local folders; with neither, the embedded pair.

    Args:
        target: Hub id or folder.
        draft: Hub id or folder.
        device: auto, cpu, cuda or cuda:N.
        dtype: auto, or a dtype's name.
        exact: Whether every method must write the text of `ar` bit for bit, in half precision too; takes longer.
        compiled: Whether torch.compile is tried on the passes of both, and kept where it is faster; for CUDA.
        passes: What is compiled; None: what `RunConfig()` decodes by.
        report: Told in a few words what is under way.
        progress: Told how far that has come, where it takes long.

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
    chosen_device = choose_device(device)
    if compiled:
        from decoder.session.cuda_graph.compiled import require_compilable  # noqa: PLC0415 - not for a run on a CPU

        require_compilable(chosen_device, exact=exact)
    configs = {name: load_config(name) for name in (target, draft)}
    for name, config in configs.items():
        check_config(display_name(name), config)
    chosen_dtype = choose_dtype(dtype, chosen_device, getattr(configs[target], "dtype", None), bfloat16_pays)
    if exact:
        refuse_float64(chosen_dtype)
    set_up(chosen_device, chosen_dtype)
    tokenizer = common_tokenizer(target, draft)
    models = []
    for role, name in (("target", target), ("draft", draft)):
        report(f"loading {role} {display_name(name)}")
        models.append(load_model(name, chosen_device, chosen_dtype, progress))
    pair = make_pair(models[0], models[1], tokenizer)
    settle_threads(pair)
    if exact:
        report("finding passes that agree bit for bit")
        pair = exact_pair(pair)
    elif has_graphs(chosen_device):
        try_rounds(pair, report)
    if compiled:
        compile_rounds(pair, report, passes)
    for model in (pair.target, pair.draft):
        model.slim()
    return pair


def try_rounds(pair: Pair, report: Report) -> None:
    """Finds out whether rounds run on the pair's accelerator, and says why if they do not."""
    from decoder.session.cuda_graph.self_test import prepare_rounds  # noqa: PLC0415 - not for a run on a CPU

    report("trying rounds on the device")
    pair.seats.refused = prepare_rounds(pair)
    path = decoding_path(pair)
    if pair.seats.refused:
        report(f"rounds are driven by the host, which is slower: on the device, {pair.seats.refused}")
    elif path.name == STATIC:
        report(f"graphs run through a Hugging Face module, which is slower: {path.reason}")


def compile_rounds(pair: Pair, report: Report, passes: "Passes | None" = None) -> None:
    """Compiles the passes of rounds on the device, where there are such rounds and that is faster."""
    from decoder.session.cuda_graph.compile_trial import compile_pair  # noqa: PLC0415 - not for a run on a CPU
    from decoder.session.cuda_graph.pass_sizes import of_run  # noqa: PLC0415 - as above

    if pair.seats.refused is None:
        compile_pair(pair, report, passes or of_run(RunConfig()))


def make_pair(target: LanguageModel, draft: LanguageModel, tokenizer: TextTokenizer) -> Pair:
    """A pair of two loaded models, after the tree probe of both."""
    for model in (target, draft):
        probe(model)
    ids = _ends(target)
    for model in (target, draft):
        # Penalties, bans and sampling settings that a checkpoint brings along are off for every method.
        model.end_with(target.eos if ids else None, pad=ids[0] if ids else None)
    return Pair(
        target=target,
        draft=draft,
        tokenizer=tokenizer,
        vocabulary=min(target.width, draft.width),
        eos=frozenset(ids),
        context=min(target.context, draft.context),
    )


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
