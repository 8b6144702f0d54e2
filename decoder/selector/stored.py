"""File format of a trained selector: weights, feature scaling, and a description of the model pair and the training.

A file is written whole or not at all. A selector that was trained for another pair is refused. This module is
independent of training.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save

from decoder.draft.delayed_shape import ACTIONS
from decoder.errors import ConfigError, first_line, shortened
from decoder.models.pair import Pair
from decoder.selector.policy import SCALARS, Policy
from decoder.system.whole_files import write_whole

FORMAT = "dynatui selector 1"
MAKE_ONE = "make one with dynatui selector collect and dynatui selector train"


class Fingerprint(msgspec.Struct, frozen=True):
    """Properties of a pair on which a selector depends."""

    target: str
    draft: str
    vocabulary: int
    hidden: tuple[int, ...]
    """Widths of the hidden rows; empty if the pair exposes no hidden rows."""


class SelectorInfo(msgspec.Struct, frozen=True):
    pair: Fingerprint
    verifier: str
    temperatures: tuple[float, ...]
    top_ps: tuple[float, ...]
    roots: int
    """Number of roots in training."""
    gain: float
    """Tokens per second on validation prompts, divided by those of the best fixed shape for each sampling setting."""
    actions: int = len(ACTIONS)
    scalars: int = len(SCALARS)


def fingerprint(pair: Pair) -> Fingerprint:
    """Properties of a pair; includes the widths of hidden rows only if the pair is from `Pair.observed`."""
    widths = pair.target.hidden_width, pair.draft_model.hidden_width
    hidden = (widths[0], widths[1], widths[1]) if all(widths) else ()
    return Fingerprint(pair.target_name, pair.draft_name, pair.vocabulary, hidden)


def write_selector(path: Path, policy: Policy, trained: SelectorInfo) -> None:
    """Writes matrices in half precision. Raises ConfigError if the file cannot be written."""
    weights = {
        name: value.half().contiguous() if value.ndim > 1 else value.contiguous()
        for name, value in policy.state_dict().items()
    }
    metadata = {"format": FORMAT, "trained": msgspec.json.encode(trained).decode()}
    write_whole(path, save(weights, metadata))


def read_selector(path: Path) -> tuple[Policy, SelectorInfo]:
    """Raises ConfigError if the file does not exist, is damaged, or has another format version."""
    trained = read_info(path)
    try:
        weights = load_file(path)
        policy = Policy(trained.pair.hidden)
        policy.load_state_dict({name: value.float() for name, value in weights.items()})
    except (SafetensorError, OSError, RuntimeError) as error:
        raise ConfigError(f"{shortened(path)} is a damaged selector: {first_line(error)}; {MAKE_ONE}") from None
    return policy.eval().requires_grad_(requires_grad=False), trained


def read_info(path: Path) -> SelectorInfo:
    """Raises ConfigError as `read_selector` does."""
    if not path.is_file():
        raise ConfigError(f"there is no selector {shortened(path)}; {MAKE_ONE}")
    try:
        file: Any
        with safe_open(path, framework="pt") as file:
            metadata: Mapping[str, str] = file.metadata() or {}
        if metadata.get("format") == FORMAT:
            return msgspec.json.decode(metadata["trained"], type=SelectorInfo)
        reason = "it is a file of another kind or version"
    except (SafetensorError, OSError, ValueError, KeyError, msgspec.DecodeError) as error:
        reason = first_line(error)
    raise ConfigError(f"{shortened(path)} is not a selector that can be read: {reason}; {MAKE_ONE}")


def fits(trained_for: Fingerprint, pair: Fingerprint) -> bool:
    """Whether a selector fits a pair; a selector that reads no hidden rows also fits a pair that exposes them."""
    return trained_for in (pair, msgspec.structs.replace(pair, hidden=()))


def require_fits(path: Path, trained: SelectorInfo, pair: Pair) -> None:
    """Raises ConfigError for a selector of another pair."""
    actual, expected = fingerprint(pair), trained.pair
    if fits(expected, actual):
        return
    raise ConfigError(
        f"the selector {shortened(path.name)} was trained for {_described(expected)}, but this pair is "
        f"{_described(actual)}; {MAKE_ONE}, or choose --drafting delayed"
    )


def _described(pair: Fingerprint) -> str:
    widths = " and ".join(map(str, pair.hidden[:2]))
    states = f"hidden rows of widths {widths}" if widths else "no hidden rows"
    return f"{pair.target} with {pair.draft} ({pair.vocabulary} tokens, {states})"
