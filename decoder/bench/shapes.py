"""Pairs of known shapes with random weights, and trees of given depth and size: what speed needs, without a download.

The configurations in `shapes/` are those that the models' authors have published. A random draft is made so sure of
itself that its most probable path never ends early: a tree then has exactly the levels and nodes that are asked for.
Random models agree on nothing, so a round commits one token here, and tokens a second follow from tokens a round.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import torch
from tokenizers import Tokenizer, models
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from decoder.bench.contenders import BASELINE, Contender, own
from decoder.bench.statistics import Estimate, estimate
from decoder.bench.summary import Bandwidth, Measure, Samples, per_round
from decoder.config import DynaTree, Fixed, RunConfig
from decoder.device import choose_device, choose_dtype
from decoder.errors import ConfigError, DeviceError
from decoder.events import Figures
from decoder.metrics import figures
from decoder.models import LanguageModel, Pair, make_pair, settle_threads

SEED = 0
CERTAINTY = 40.0
"""Standard deviation of the draft's logits: the best of thousands then nearly always has probability 1."""
OVERALL = 1e-9
"""Paths that are this improbable still grow."""
LENGTHS = (1.0, 2.0, 3.0, 4.0, 6.0, 7.08)
"""Tokens a round for which tokens a second are told; the last is the paper's best."""


@dataclass(frozen=True)
class Size:
    """A tree of `depth` drafted levels, verified in `rows` rows: its root and all drafted nodes."""

    depth: int
    rows: int


class Rounds(msgspec.Struct, frozen=True, kw_only=True):
    """What rounds with a tree of one size cost; medians over repeats of the mean round."""

    name: str
    rows: float
    """Rows that were verified a round, on average."""
    levels: float
    """Forward passes of the draft a round."""
    round_ms: Estimate
    draft_ms: float
    level_ms: float | None
    verify_ms: float
    commit_ms: float
    host_ms: float
    bandwidth_share: float | None
    tokens_per_second: dict[float, float]
    """By tokens a round, as far as such a tree can bring them."""
    peak_bytes: int


def names() -> list[str]:
    """The shapes that are kept here."""
    return sorted(entry.name.removesuffix(".json") for entry in _folder().iterdir() if entry.name.endswith(".json"))


def random_pair(target: str, draft: str, *, device: str, dtype: str) -> Pair:
    """Two models of these shapes with random weights.

    Args:
        target: The name of a shape, or a Hugging Face config.json.
        draft: The same.
        device: As for `load_pair`.
        dtype: As for `load_pair`; auto is float16 on CUDA, Pythia's own.

    Raises:
        ConfigError: There is no such shape, device or dtype.
        DeviceError: There is no such device, or its memory is full.
        PairError: The engine cannot run one.
    """
    transformers_logging.set_verbosity_error()
    where = choose_device(device)
    kind = choose_dtype(dtype, where, None)
    modules = [_random_module(name, where, kind, seed) for seed, name in enumerate((target, draft))]
    _be_certain(modules[1])  # before the engine takes the weights over
    made = [LanguageModel(module, Path(name).name) for module, name in zip(modules, (target, draft), strict=True)]
    pair = make_pair(made[0], made[1], PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE())))
    settle_threads(pair)
    return pair


def random_prompt(pair: Pair, length: int, max_new_tokens: int) -> list[int]:
    """Random token ids.

    Raises:
        ConfigError: They and the new ones do not fit.
    """
    if length + max_new_tokens > pair.context:
        raise ConfigError(
            f"{length} random tokens and {max_new_tokens} new ones exceed the context of {pair.context}; give fewer"
        )
    ids: list[int] = torch.randint(pair.vocabulary, (length,), generator=torch.Generator().manual_seed(SEED)).tolist()
    return ids


def contenders(config: RunConfig, sizes: Sequence[Size]) -> list[Contender]:
    """ar, and rounds with a tree of each size."""
    return [
        own(BASELINE, BASELINE, BASELINE, config),
        *(own(f"{size.depth}x{size.rows}", "tree", *_rules(size, config)) for size in sizes),
    ]


def _rules(size: Size, config: RunConfig) -> tuple[str, RunConfig]:
    """The method and parameters whose every tree has this size.

    Raises:
        ConfigError: There is no such tree.
    """
    depth, drafted = size.depth, size.rows - 1
    if not 1 <= depth <= drafted:
        raise ConfigError(
            f"no tree has {depth} levels in {size.rows} rows, its root among them; give DxN with D from 1 to N-1"
        )
    if depth == 1:
        return "fixed", replace(config, fixed=Fixed(depth=1, branching=drafted, tau=0.0, n_max=drafted))
    siblings = -(-drafted // depth)
    rules = DynaTree(
        d0=depth - 1,
        d_max=depth,
        branching=(siblings, siblings, siblings),
        rho_stop=OVERALL,
        rho_deep=OVERALL,
        tau=0.0,
        n_max=drafted,
        selection="best",
        history=False,
    )
    return "dynatree", replace(config, dynatree=rules)


def rounds(samples: Samples, seed: int, bandwidth: Bandwidth | None) -> list[Rounds]:
    """One row a contender, whatever its text: among random tokens near ties are common, and nobody reads them."""
    return [
        _row(name, [figures(turn.tally, None) for turn in samples.turns(name, 0)], seed, bandwidth)
        for name in samples.groups
    ]


def _row(name: str, turns: list[Figures], seed: int, bandwidth: Bandwidth | None) -> Rounds:
    def middle(measure: Measure) -> Estimate:
        found = estimate([[value for turn in turns if (value := measure(turn)) is not None]], seed)
        assert found is not None, "own sessions know all parts of their rounds"  # noqa: S101 - a programmer's mistake
        return found

    first = turns[0]
    levels = (first.draft_forwards or 0) / first.rounds
    draft_ms = 1000 * middle(per_round("draft_s")).median
    round_ms = middle(lambda turn: 1000 * turn.decode_s / turn.rounds)
    return Rounds(
        name=name,
        rows=1 + (first.drafted or 0) / first.rounds,
        levels=levels,
        round_ms=round_ms,
        draft_ms=draft_ms,
        level_ms=draft_ms / levels if levels else None,
        verify_ms=1000 * middle(per_round("verify_s")).median,
        commit_ms=1000 * middle(per_round("commit_s")).median,
        host_ms=1000 * middle(per_round("host_s")).median,
        bandwidth_share=middle(bandwidth.share).median if bandwidth else None,
        tokens_per_second={length: 1000 * length / round_ms.median for length in LENGTHS if length <= levels + 1},
        peak_bytes=max(turn.peak_bytes or 0 for turn in turns),
    )


def _random_module(name: str, device: torch.device, dtype: torch.dtype, seed: int) -> Any:
    config = _config(name)
    torch.manual_seed(seed)
    try:
        with device:
            module: Any = AutoModelForCausalLM.from_config(config, dtype=dtype)
    except torch.OutOfMemoryError as error:
        raise DeviceError(f"{name} does not fit in the memory of {device}; choose a smaller shape or dtype") from error
    return module.eval()


def _config(name: str) -> Any:
    if name.endswith(".json"):
        try:
            fields = json.loads(Path(name).read_text(encoding="utf-8"))
            return AutoConfig.for_model(**fields)
        except OSError as error:
            raise ConfigError(f"cannot read {name}: {error.strerror}; give a model's config.json") from None
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            why = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ConfigError(f"{name} is no model's configuration ({why}); give a model's config.json") from None
    if name not in names():
        raise ConfigError(f"there is no shape {name!r}; give a config.json, or one of {', '.join(names())}")
    return AutoConfig.for_model(**json.loads((_folder() / f"{name}.json").read_text(encoding="utf-8")))


def _be_certain(module: Any) -> None:
    """Scales the output matrix until the logits spread as wide as `CERTAINTY`."""
    head = module.get_output_embeddings()
    with torch.no_grad():
        ids = torch.arange(8, device=head.weight.device)[None]
        spread = float(module(input_ids=ids).logits.float().std())
        head.weight.mul_(CERTAINTY / spread)


def _folder() -> Any:
    return files("decoder.bench") / "shapes"
