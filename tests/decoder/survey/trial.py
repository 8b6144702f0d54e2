"""One family at one temperature: each method's text compared with transformers' `generate`, in a separate process."""

from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import msgspec
import torch
from msgspec.structs import replace
from torch import Tensor
from transformers import LogitsProcessor

from decoder import RunConfig
from decoder.engine import Engine
from decoder.errors import DecoderError, first_line
from decoder.forward.language_model import LanguageModel
from decoder.models.compatibility import check_config, probe
from tests.decoder.any_family import PROMPT, VOCABULARY, decoded, engine_of
from tests.decoder.fixed_tree import largest_difference, plain
from tests.decoder.survey.tiny_models import FACTORS, tiny_config, tiny_kin, tiny_module
from tests.sampled_reference import gumbel

TOKENS, DISTINCT, SEED = 60, 4, 3
METHODS = ("ar", "linear", "dynatree", "auto")
LOOKUP = "lookup"
"""`auto` without a draft model."""


class Trial(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="trial"):
    """Result of a family: `not_built`, `refused`, `ended`, or `exact` and `wrong`."""

    family: str
    temperature: float
    route: str = ""
    """Forward form of the target: native, module, states (a module with states), or paths (whole paths)."""
    not_built: str = ""
    """Reason why the survey has no tiny model or no reference text."""
    refused: str = ""
    """The engine's error message."""
    ended: str = ""
    """Error, or exit of the process, that prevented a result."""
    exact: tuple[str, ...] = ()
    """Methods that wrote the reference's text."""
    wrong: dict[str, str] = {}
    """Other methods, each with the position or reason of its difference."""
    difference: float | None = None
    """Largest difference between the logits of a tree node and of plain text, relative to the largest logit."""


class CoupledNoise(LogitsProcessor):
    """The noise of coupled sampling, added to the scores of transformers' greedy search."""

    def __init__(self, temperature: float) -> None:
        self._temperature = temperature

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores of the next token; shape (1, V)."""
        noise = [gumbel(SEED, input_ids.shape[1], token) for token in range(scores.shape[1])]
        return scores.double() + self._temperature * torch.tensor(noise, dtype=torch.float64)


def tried(family: str, temperature: float) -> Trial:
    """Result of the family, computed in this process."""
    none = Trial(family=family, temperature=temperature)
    try:
        config = tiny_config(family)
    except Exception as error:  # noqa: BLE001 - each family has its own error for sizes that it does not take
        return replace(none, not_built=in_words(error))
    try:
        check_config(family, config)
        try:
            module, draft, right = lively(family, config, temperature)
        except Exception as error:  # noqa: BLE001 - the same
            return replace(none, not_built=in_words(error))
        drafted, alone = engine_of(module, draft), engine_of(module)
        target = drafted.pair.target
        for model in (*drafted.pair.models.values(), alone.pair.target):
            model.name = family
            probe(model)
    except DecoderError as error:
        return replace(none, refused=first_line(error))
    except Exception as error:  # noqa: BLE001 - an error other than a refusal is a result
        return replace(none, ended=in_words(error))
    if len(set(right)) < DISTINCT:
        return replace(none, not_built=f"generate writes fewer than {DISTINCT} different tokens")
    runs = {**{name: (drafted, name) for name in METHODS}, LOOKUP: (alone, "auto")}
    found = {name: compared(module, *run, temperature, right) for name, run in runs.items()}
    return replace(
        none,
        route=route_of(target),
        exact=tuple(name for name, fault in found.items() if not fault),
        wrong={name: fault for name, fault in found.items() if fault},
        difference=None if temperature else float(f"{largest_difference(target, module, [[]]):.1e}"),
    )


def route_of(model: LanguageModel) -> str:
    """See `Trial.route`."""
    if model.runs_without_module:
        return "native"
    by_rows = "states" if model.hf.keeps_states else "module"
    return "paths" if model.hf.by_paths else by_rows


def lively(family: str, config: Any, temperature: float) -> tuple[Any, Any, list[int]]:
    """A target, its draft and the target's text, with the first factors that give `DISTINCT` tokens, else the last."""
    for factors in FACTORS:
        module = tiny_module(family, config, factors)
        right = reference(module, temperature)
        if len(set(right)) >= DISTINCT:
            break
    return module, tiny_kin(family, config, factors), right


def in_words(error: Exception) -> str:
    """Type and message of an error."""
    return f"{type(error).__name__}: {first_line(error)}"


@torch.inference_mode()
def reference(module: Any, temperature: float) -> list[int]:
    """The text of `generate`, under the noise of coupled sampling at a temperature above 0.

    Raises:
        ValueError: `generate` wrote fewer than `TOKENS` tokens, or a token beyond the vocabulary.
    """
    noise = [CoupledNoise(temperature)] if temperature else []
    ids = torch.tensor([PROMPT])
    options = {"do_sample": False, "max_new_tokens": TOKENS, "logits_processor": noise}
    text: list[int] = module.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, len(PROMPT) :].tolist()
    if len(text) != TOKENS or max(text) >= VOCABULARY:
        raise ValueError(f"generate wrote {len(text)} tokens, the largest {max(text)}")
    return text


def compared(module: Any, engine: Engine, method: str, temperature: float, right: Sequence[int]) -> str:
    """Position or reason of a method's difference from the reference; empty if they are equal."""
    try:
        text, _ = decoded(engine, PROMPT, RunConfig((method,), TOKENS, SEED, temperature=temperature))
    except Exception as error:  # noqa: BLE001 - a failure of a method is a result
        return in_words(error)
    if text == right:
        return ""
    at = next((place for place, (mine, other) in enumerate(zip(text, right, strict=False)) if mine != other), len(text))
    if at >= len(text):
        return f"ends after {at} tokens"
    logits = plain(module, [*PROMPT, *right[:at]])[-1]
    gap = float((logits[right[at]] - logits[text[at]]).abs())
    return f"differs from token {at} on, where the two tokens' logits are {gap:.2g} apart"


def isolated(family: str, temperature: float, limit_s: float, work: Callable[[str, float], Trial] = tried) -> Trial:
    """The result of a child process; a crash or a hang is a result too."""
    context = get_context("fork")  # a new interpreter would import transformers again for every family
    reader, writer = context.Pipe(duplex=False)
    child = context.Process(target=_send, args=(writer, work, family, temperature))
    child.start()
    writer.close()
    try:
        if reader.poll(limit_s):
            return msgspec.msgpack.decode(reader.recv_bytes(), type=Trial)
        why = f"no result after {limit_s:g} s"
    except EOFError:
        child.join()
        why = f"the process ended with code {child.exitcode}"
    finally:
        child.kill()
        child.join()
    return Trial(family=family, temperature=temperature, ended=why)


def _send(writer: Connection, work: Callable[[str, float], Trial], family: str, temperature: float) -> None:
    writer.send_bytes(msgspec.msgpack.encode(work(family, temperature)))
