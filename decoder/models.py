"""Loads a pair of Hugging Face models, checks that both fit, and runs them behind one small `forward`.

Knows nothing of drafting. Weights come from safetensors only and no remote code is run. Before a model is accepted, a
few tokens go through it as a tree and as plain text: a model whose attention does not follow a tree mask is refused
here, not noticed later.
"""

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from decoder.calibration import Calibration
from decoder.costs import Costs
from decoder.device import choose_device, choose_dtype
from decoder.errors import ConfigError, DeviceError, ModelError, PairError
from decoder.exact.attention import ExactModule, exact_lean
from decoder.exact.trial import exactly, refuse_float64
from decoder.forward import Forward, ModuleForward, Rows
from decoder.lean import lean
from decoder.lean.half import bfloat16_pays
from decoder.resident.seat import Seats
from decoder.threads import choose_threads

EMBEDDED = Path(__file__).parent / "pretrained"
EMBEDDED_TARGET = EMBEDDED / "books-16m"
EMBEDDED_DRAFT = EMBEDDED / "books-1m"
NO_LIMIT = 1 << 20
SAMPLE = "The quick brown fox, naïve as ever, jumped over 12 lazy dogs.\n\tdef f(x): return x"
Report = Callable[[str], None]


class LanguageModel:
    """A causal language model as the engine sees it: rows in, logits out, keys and values appended to a cache.

    On a CPU, families that `decoder.lean` knows run through it. Their Hugging Face module is then needed only by
    transformers' own methods and to judge near ties, and is loaded when one of these asks for it.
    """

    def __init__(self, module: Any, name: str, load: Callable[[], Any] | None = None) -> None:
        """Prepares a loaded module.

        Args:
            module: A Hugging Face module in evaluation mode.
            name: Hub id or folder name, as it is told.
            load: Loads the module again; None: it must be held.
        """
        self.name = name
        config = module.config.get_text_config()
        self.layers: int = config.num_hidden_layers
        self.width: int = config.vocab_size
        """Width of the logits; may exceed the vocabulary."""
        self.context: int = getattr(config, "max_position_embeddings", None) or NO_LIMIT
        weight = next(module.parameters())
        self.device = weight.device
        self.dtype = weight.dtype
        self.generation: GenerationConfig = module.generation_config
        """What transformers' own methods go by."""
        self._module: Any = module
        self._load = load
        self._lean = lean(module)
        self._forward: Forward = self._lean or ModuleForward(module)

    @property
    def module(self) -> Any:
        """The Hugging Face module."""
        if self._module is None and self._load:
            self._module = self._load()
            self._module.generation_config = self.generation
        return self._module

    def slim(self) -> None:
        """Lets go of weights that are held twice, where they can be loaded again."""
        if self._lean and self._load:
            self._module = None

    def generate_by(self, settings: GenerationConfig) -> None:
        """Gives transformers' own methods other settings."""
        self.generation = settings
        if self._module is not None:
            self._module.generation_config = settings

    def new_cache(self, capacity: int) -> Rows:
        """An empty cache of `capacity` rows."""
        return self._forward.new_cache(capacity)

    def forward(
        self, cache: Rows, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Float[Tensor, "N V"]:
        """Logits of N new rows, which are appended to the cache.

        Args:
            cache: All its committed rows are visible to every new row.
            tokens: Token ids of the new rows, N of them.
            positions: Their positions in the text, which siblings share.
            visible: Shape (N, M): which of the last M rows, drafted and new, each new row attends to.
        """
        return self._forward.forward(cache, tokens, positions, visible)

    def read(self, cache: Rows, tokens: Sequence[int], chunk: int = 512) -> Float[Tensor, "V"]:
        """Appends and commits plain text, and returns the logits after its last token."""
        logits = torch.empty(0)
        for start in range(0, len(tokens), chunk):
            logits = self._forward.read(cache, tokens[start : start + chunk])
        return logits

    def exact(self) -> "LanguageModel":
        """The same weights, run so that a row has the same bits whatever is computed beside it; see `decoder.exact`.

        Raises:
            PairError: This model cannot be run so.
        """
        forward = exact_lean(self._lean, self.dtype) if self._lean else ExactModule(self.module)
        return self._run_by(exactly(forward, self.width, cuda=self.device.type == "cuda"))

    def inexact(self) -> "LanguageModel":
        """The same weights, run as fast as possible."""
        return self._run_by(self._lean or ModuleForward(self.module))

    def _run_by(self, forward: Forward) -> "LanguageModel":
        twin = copy.copy(self)
        twin._forward = forward  # noqa: SLF001 - another of the same class
        return twin

    def module_in_float32(self) -> Any:
        """The same weights in float32, to judge near ties."""
        return copy.deepcopy(self.module).float()


@dataclass(frozen=True)
class Pair:
    """A target and a draft that share one tokenizer."""

    target: LanguageModel
    draft: LanguageModel
    tokenizer: PreTrainedTokenizerBase
    vocabulary: int
    """Ids below this are used: the smaller of the two logits widths."""
    eos: frozenset[int]
    context: int
    """Tokens that both models can hold."""
    exact: bool = False
    """Whether every method writes what `ar` writes, bit for bit: the target's rows do not depend on each other."""
    seats: Seats = field(default_factory=Seats, compare=False, repr=False)
    """Where texts are decoded on an accelerator."""
    costs: dict[int, Costs] = field(default_factory=dict, compare=False, repr=False)
    """What rounds have cost so far, by the length of the text as a power of two; shared by all texts."""
    threads: int = field(default_factory=torch.get_num_threads, compare=False, repr=False)
    """Most that torch may compute with: as many as it was given before any were tried out."""
    calibration: Calibration = field(default_factory=Calibration, compare=False, repr=False)
    """How likely the draft's guesses are right, as far as is known; shared by all texts."""

    @property
    def target_name(self) -> str:
        """Hub id or folder name of the target."""
        return self.target.name

    @property
    def draft_name(self) -> str:
        """Hub id or folder name of the draft."""
        return self.draft.name

    @property
    def device(self) -> str:
        """Where both run, for example cuda:0."""
        return str(self.target.device)

    @property
    def dtype(self) -> str:
        """For example bfloat16."""
        return str(self.target.dtype).removeprefix("torch.")


def load_pair(
    target: str | None = None,
    draft: str | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    exact: bool = False,
    report: Report = lambda _: None,
) -> Pair:
    """Loads two models from hub ids or local folders; with neither, the embedded pair.

    Args:
        target: Hub id or folder.
        draft: Hub id or folder.
        device: auto, cpu, cuda or cuda:N.
        dtype: auto, or a dtype's name.
        exact: Whether every method must write the text of `ar` bit for bit, in half precision too; takes longer.
        report: Told in a few words what is under way.

    Raises:
        ConfigError: Only one model was named, device or dtype is unknown, or the dtype leaves no room to be exact.
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
    configs = {name: load_config(name) for name in (target, draft)}
    for name, config in configs.items():
        check_architecture(name, config.get_text_config())
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
    for model in (pair.target, pair.draft):
        model.slim()
    return pair


def _try_rounds(pair: Pair, report: Report) -> None:
    from decoder.resident.trial import refusal  # noqa: PLC0415 - sessions stand above this module

    report("trying rounds on the device")
    pair.seats.refused = refusal(pair)
    if pair.seats.refused:
        report(f"rounds are driven by the host, which is slower: on the device, {pair.seats.refused}")


def exact_pair(pair: Pair) -> Pair:
    """The same pair with a target whose rows do not depend on each other.

    Raises:
        ConfigError: Its dtype leaves no room to be exact.
        PairError: This target cannot be run so.
    """
    refuse_float64(pair.target.dtype)
    target = pair.target.exact()
    probe(target)
    return replace(pair, target=target, exact=True, seats=Seats(), costs={})


def inexact_pair(pair: Pair) -> Pair:
    """The same pair, as fast as possible."""
    return replace(pair, target=pair.target.inexact(), exact=False, seats=Seats(), costs={})


def settle_threads(pair: Pair) -> None:
    """Chooses the number of threads for this pair, where a CPU computes: as many as are free to compute just now.

    An exact pair keeps those that it was found to be exact with.
    """
    if pair.target.device.type != "cpu" or pair.exact:
        return
    before = torch.get_num_threads()
    if choose_threads(functools.partial(_try_out, pair.target), pair.threads) != before:
        pair.costs.clear()


@torch.inference_mode()
def _try_out(model: LanguageModel, rows: int = 4) -> None:
    """What a verification of a small tree takes."""
    model.forward(model.new_cache(rows), [0] * rows, range(rows), np.tri(rows, dtype=np.bool_))


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


def display_name(name: str) -> str:
    """A hub id as it is, a folder by its last part."""
    return Path(name).name if Path(name).exists() else name


def load_config(name: str) -> Any:
    """The model's configuration, fetched from the hub when it is no folder.

    Raises:
        ModelError: It cannot be had.
    """
    if looks_like_a_path(name) and not Path(name).is_dir():
        raise ModelError(f"there is no folder {name}; give an existing folder or a hub id such as owner/model")
    return _from_hub(name, lambda: AutoConfig.from_pretrained(name, trust_remote_code=False))


def looks_like_a_path(name: str) -> bool:
    """Whether a name can only be meant as a folder: hub ids have at most one slash, inside."""
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name


def load_model(name: str, device: torch.device, dtype: torch.dtype) -> LanguageModel:
    """A model in the form in which it runs fastest here."""
    load = functools.partial(load_module, name, device, dtype)
    return LanguageModel(load(), display_name(name), load)


def load_module(name: str, device: torch.device, dtype: torch.dtype) -> Any:
    """Weights in safetensors, in evaluation mode; refuses a checkpoint that lacks some."""
    module, info = _from_hub(
        name,
        lambda: AutoModelForCausalLM.from_pretrained(
            name, dtype=dtype, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        ),
    )
    if missing := sorted(info["missing_keys"]):
        raise ModelError(f"{name}: the checkpoint lacks {len(missing)} weights, {missing[0]} first; download it again")
    try:
        return module.eval().to(device)
    except torch.OutOfMemoryError as error:
        raise DeviceError(f"{name} does not fit in the memory of {device}; choose a smaller model or dtype") from error


def _from_hub(name: str, load: Callable[[], Any]) -> Any:
    """Runs a loader and says in one line why it could not."""
    try:
        return load()
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError) as error:
        why = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ModelError(
            f"cannot load {name}: {why}; give a hub id, or a folder with config.json, tokenizer and safetensors weights"
        ) from error


def check_architecture(name: str, config: Any) -> None:
    """Refuses what is no plain decoder with full attention.

    Raises:
        PairError: The model is of another kind; the sentence says which.
    """
    remedy = "choose a decoder-only model with full attention"
    if getattr(config, "is_encoder_decoder", False):
        raise PairError(f"{name} is an encoder-decoder; {remedy}")
    layers = set(getattr(config, "layer_types", None) or ())
    if other := sorted(layers - {"full_attention"}):
        raise PairError(f"{name} has layers of type {', '.join(other)}; {remedy}")
    if "local" in (getattr(config, "attention_layers", None) or ()):
        raise PairError(f"{name} has local attention; {remedy}")
    window = getattr(config, "sliding_window", None)
    context = getattr(config, "max_position_embeddings", None) or NO_LIMIT
    if window and getattr(config, "use_sliding_window", True) and window < context:
        raise PairError(f"{name} attends to a sliding window of {window} tokens; {remedy}")
    if not getattr(config, "num_attention_heads", None):
        raise PairError(f"{name} has no attention heads (a recurrent model?); {remedy}")


def common_tokenizer(target: str, draft: str) -> PreTrainedTokenizerBase:
    """The tokenizer that both share.

    Raises:
        PairError: They are not the same.
    """
    first, second = load_tokenizer(target), load_tokenizer(draft)
    if first.get_vocab() != second.get_vocab() or first(SAMPLE).input_ids != second(SAMPLE).input_ids:
        raise PairError(f"{target} and {draft} have different tokenizers; choose two models of one family")
    return first


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a hub id or folder."""
    tokenizer: PreTrainedTokenizerBase = _from_hub(
        name, lambda: AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    )
    return tokenizer


@torch.inference_mode()
def probe(model: LanguageModel) -> None:
    """Runs a tiny tree and each of its paths as plain text; both must agree.

    Raises:
        PairError: They do not: this model cannot be verified as a tree.
    """
    prefix, first, second, third = [1, 2, 3], 4, 5, 6
    parents = [-1, 0, 0, 1]
    visible = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]], dtype=np.bool_)
    try:
        cache = model.new_cache(8)
        model.read(cache, prefix[:-1])
        as_tree = model.forward(cache, [prefix[-1], first, second, third], [2, 3, 3, 4], visible).float()
        plain = [
            model.module(input_ids=torch.tensor([path], device=model.device)).logits[0, -1].float()
            for path in (prefix, [*prefix, first], [*prefix, second], [*prefix, first, third])
        ]
    except (TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
        why = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise PairError(
            f"{model.name} cannot run a draft tree ({why}); choose a decoder-only model with full attention"
        ) from error
    scale = max(1.0, float(torch.stack(plain).abs().max()))
    tolerance = scale * (1e-3 if model.dtype in (torch.float32, torch.float64) else 0.1)
    worst = max(float((row - path).abs().max()) for row, path in zip(as_tree, plain, strict=True))
    if worst > tolerance:
        raise PairError(
            f"{model.name} computes other logits for a draft tree of {len(parents)} nodes than for plain text "
            f"(by {worst:.2g}); choose a decoder-only model with full attention"
        )
