"""Contenders of a benchmark: methods and baselines that decode texts and measure the times. On a CPU, forward passes
are also timed and counted.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import accumulate
from typing import Any, TypeAlias, cast

import msgspec
import torch

from decoder.analysis.metrics import Tally, tally_round
from decoder.draft.auto_drafter import AutoDrafter
from decoder.draft.drawn_drafter import DrawnDrafter
from decoder.draft.model_drafter import ModelDrafter
from decoder.draft.translated_drafter import TranslatedDrafter
from decoder.engine import Engine
from decoder.errors import LogitsError
from decoder.events import Round
from decoder.forward.compiled.growth import Grown, TreeGrower
from decoder.forward.kv_cache import KvCache
from decoder.forward.language_model import LanguageModel
from decoder.knobs import TunableParameters
from decoder.methods import METHODS
from decoder.methods.adaptive import AdaptiveTree
from decoder.run.config import RunConfig
from decoder.run.expected import read_weights
from decoder.session.host import HostSession
from decoder.session.protocol import Outcome, Session
from decoder.system.device import Stopwatch


class Work(msgspec.Struct, frozen=True):
    """Amount of work in a number of forward passes of one model."""

    calls: int = 0
    rows: int = 0
    looks: int = 0
    """Number of keys that attention reads, masked keys included, summed over rows."""
    scored: int = 0
    """Number of rows whose logits were computed."""

    def with_pass(self, rows: int, keys: int, scored: int) -> "Work":
        """This work and that of a further pass, each of whose rows reads `keys` keys."""
        return Work(self.calls + 1, self.rows + rows, self.looks + rows * keys, self.scored + scored)


class Shape(msgspec.Struct, frozen=True):
    """Multiply-adds of one model for one unit of each kind of work."""

    matrices: int
    """Multiply-adds per row in all weight matrices except embeddings and output head; all experts of an MoE count."""
    head: int
    """Multiply-adds per row of logits."""
    attention: int
    """Multiply-adds per row and key for the attention score and the weighted sum of values, in all layers and heads."""

    def multiply_adds(self, work: Work) -> int:
        return work.rows * self.matrices + work.scored * self.head + work.looks * self.attention


class Arithmetic(msgspec.Struct, frozen=True):
    """Multiply-adds of target and draft for one unit of each kind of work."""

    target: Shape
    draft: Shape

    def multiply_adds(self, target: Work, draft: Work) -> int:
        return self.target.multiply_adds(target) + self.draft.multiply_adds(draft)


def shape(module: Any) -> Shape:
    """Multiply-adds of a Hugging Face model per unit of work, computed from the shapes of the weights."""
    config, head = module.config.get_text_config(), module.get_output_embeddings().weight
    inner = [weight for _, weight in read_weights(module) if weight is not head]
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return Shape(
        matrices=sum(weight.numel() for weight in inner if weight.dim() > 1),
        head=head.numel(),
        attention=2 * config.num_hidden_layers * config.num_attention_heads * width,
    )


@dataclass(frozen=True)
class Seen:
    """Seconds spent in forward passes of both models, and the work of these passes."""

    models_s: float
    target: Work
    draft: Work


Scored: TypeAlias = Callable[[Sequence[int]], int]
SCORED: Mapping[str, Scored] = {"forward": len, "best": len, "read": lambda _: 1, "best_after": lambda _: 1}
"""Methods of a model that make a pass over tokens, each with the number of rows whose logits are computed."""


class _InstrumentedModel:
    """Wrapper that times and counts the calls of a model; all other attributes are those of the model.

    The time of a call includes the time for counting, so that counting does not lengthen the rest of the round.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.seconds, self.work = 0.0, Work()
        self._model = model

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._model, name)
        return partial(self._called, member, SCORED[name]) if name in SCORED else member

    def streaming(self, sinks: int, window: int) -> "_InstrumentedModel":
        self._model = self._model.streaming(sinks, window)
        return self

    def tree_grower(self, reserve: Callable[[int], None]) -> "_InstrumentedGrower | None":
        grower = self._model.tree_grower(reserve)
        return _InstrumentedGrower(self, grower) if grower else None

    def _called(self, call: Callable[..., Any], scored: Scored, cache: KvCache, tokens: Any, *given: Any) -> Any:
        start = time.perf_counter()
        result = call(cache, tokens, *given)
        self.work = self.work.with_pass(len(tokens), cache.rows, scored(tokens))
        self.seconds += time.perf_counter() - start
        return result


@dataclass(frozen=True)
class _InstrumentedGrower:
    """A `TreeGrower` whose passes are timed and counted."""

    model: _InstrumentedModel
    grower: TreeGrower

    def grow(self, cache: KvCache, unread: Sequence[int], *given: Any) -> Grown | None:
        start = time.perf_counter()
        found = self.grower.grow(cache, unread, *given)
        if found:
            work = self.model.work.with_pass(len(unread), cache.length, 1)
            for rows, forwarded in zip(found.calls, accumulate(found.calls), strict=True):
                work = work.with_pass(rows, cache.length + forwarded, rows)
            self.model.work = work
            self.model.seconds += time.perf_counter() - start
        return found


class InstrumentedEngine:
    """Engine whose models' calls are timed and counted on a CPU; on an accelerator, the models are unchanged."""

    def __init__(self, engine: Engine) -> None:
        self._models: dict[str, _InstrumentedModel] = {}
        self.engine, pair = engine, engine.pair
        if pair.target.device.type == "cpu":
            self._models = {role: _InstrumentedModel(model) for role, model in pair.models.items()}
            self.engine = replace(engine, pair=replace(pair, **cast("dict[str, Any]", self._models)))

    def restart(self) -> None:
        for model in self._models.values():
            model.seconds, model.work = 0.0, Work()

    def seen(self) -> Seen | None:
        if not self._models:
            return None
        work = {role: model.work for role, model in self._models.items()}
        return Seen(sum(model.seconds for model in self._models.values()), work["target"], work.get("draft", Work()))


def kv_bytes(session: Session) -> int | None:
    """Allocated bytes of a session's KV caches, unused rows included; None if unknown."""
    if isinstance(session, HostSession):
        proposer = session.proposer
        model = proposer.model if isinstance(proposer, AutoDrafter) else proposer
        drafting = [model.passes.cache] if isinstance(model, ModelDrafter | TranslatedDrafter | DrawnDrafter) else []
        return sum(cache.nbytes for cache in [session.target_cache, *drafting])
    told: int | None = getattr(session, "kv_bytes", None)
    return told


PromptRead = Callable[[torch.device], None]
"""Callback that is called between prefill and first round, outside all timed sections; its argument is the device."""
BASELINE = "ar"
"""Name of plain decoding, the contender with which the texts and speeds of all other contenders are compared."""
INEXACT = "not exact"
"""Group of the contenders without batch-invariant passes, which are measured to show the cost of batch invariance."""
PROMPT_LOOKUP = "prompt lookup"


@dataclass(frozen=True)
class DecodedText:
    """A text that was decoded to its end, and its measurements."""

    tally: Tally
    rounds: Sequence[Round] = ()
    """All rounds, from which totals of the text's first tokens are computed."""
    seen: Seen | None = None
    """Duration and work of both models' forward passes after prefill; None if unknown."""
    kv_bytes: int | None = None
    """Allocated bytes of both models' KV caches; None if unknown."""
    waits: int | None = None
    """Number of times that the host waited for the device during rounds; None if not counted."""


@dataclass(frozen=True)
class Contender:
    """A method or baseline with one setting of its parameters."""

    name: str
    group: str
    """Name of the method, baseline or other kind, which several contenders can share."""
    run: Callable[[Engine, Sequence[int]], DecodedText]
    """Function (engine, prompt token ids) that decodes one text to its end."""
    settings: Mapping[str, Any]
    foreign: bool = False
    """Whether another library decodes. If that library fails in the warm-up, the contender is left out."""


def is_adaptive(group: str) -> bool:
    return group in METHODS and isinstance(METHODS[group].own, AdaptiveTree)


def own(name: str, group: str, method: str, config: RunConfig, prompt_read: PromptRead | None = None) -> Contender:
    """Contender of a registered method with the parameters in `config`; `prompt_read` is called after each prefill."""
    parameters = METHODS[method].parameters(config)
    return Contender(name, group, lambda engine, ids: decoded(engine, ids, method, config, prompt_read), parameters)


def sweep(
    methods: Sequence[str],
    config: RunConfig,
    settings: Mapping[str, Mapping[str, TunableParameters]],
) -> list[Contender]:
    """One contender for each setting of each method; `ar` comes first, even if `methods` does not contain it.

    `settings[method][suffix]` has the method's parameters for the contender whose name ends with `suffix`; all other
    parameters are in `config`.
    """
    contenders = [own(BASELINE, BASELINE, BASELINE, config)]
    for method in methods:
        if method == BASELINE:
            continue
        runs = {label: config.with_rules(method, rules) for label, rules in settings.get(method, {}).items()}
        contenders += [
            own(f"{method} {label}".strip(), method, method, run) for label, run in (runs or {"": config}).items()
        ]
    return contenders


def inexact(contenders: Sequence[Contender], engine: Engine) -> list[Contender]:
    """Copies of `ar` and of all adaptive trees; the copies decode on `engine`, whose passes are not batch-invariant."""

    def run(contender: Contender) -> Callable[[Engine, Sequence[int]], DecodedText]:
        return lambda _, prompt_ids: contender.run(engine, prompt_ids)

    return [
        replace(one, name=f"{one.name} ~", group=INEXACT, run=run(one), settings={**one.settings, "exact": False})
        for one in contenders
        if one.group == BASELINE or is_adaptive(one.group)
    ]


def decoded(
    engine: Engine,
    prompt_ids: Sequence[int],
    method: str,
    config: RunConfig,
    prompt_read: PromptRead | None = None,
) -> DecodedText:
    """Decodes one text to its end.

    The clock is read outside the session, so that all of the session's work is timed; the session itself measures the
    times of drafting, verification and commit. The device is synchronised only before and after the prefill, and before
    the first and after the last round. If the sum of the session's round times exceeds the clock's time, part of the
    rounds' work ran before the clock started; the sum is then used.

    Raises:
        LogitsError: No token can be chosen from the target's logits, so the text cannot be decoded to its end.
    """
    clock, instrumented = Stopwatch(engine.pair.target.device), InstrumentedEngine(engine)
    opened = clock.now()
    session = METHODS[method].open(instrumented.engine, prompt_ids, config)
    outcomes: list[tuple[Outcome, float]] = []
    try:
        session.prefill()
        prefill_s = clock.now() - opened
        if prompt_read:
            prompt_read(engine.pair.target.device)
        instrumented.restart()
        started = clock.now()
        while not outcomes or not outcomes[-1][0].finished:
            outcome = session.step(())
            outcomes.append((outcome, time.perf_counter() - started))
        ended = max(clock.now() - started, sum(outcome.round_s for outcome, _ in outcomes))
        seen, kept, waited = instrumented.seen(), kv_bytes(session), getattr(session, "waits", None)
    except LogitsError as error:
        raise LogitsError(f"round {len(outcomes) + 1} of {method}", engine.pair.dtype) from error
    finally:
        session.close()
    outcomes[-1] = (outcomes[-1][0], ended)
    rounds = [as_round(method, number, outcome, t) for number, (outcome, t) in enumerate(outcomes)]
    return DecodedText(tallied(prefill_s, rounds), rounds, seen, kept, waited)


def tallied(prefill_s: float | None, rounds: Iterable[Round]) -> Tally:
    return reduce(tally_round, rounds, Tally(prefill_s=prefill_s))


def as_round(method: str, number: int, outcome: Outcome, t: float) -> Round:
    """Outcome as a `Round` for `decoder.analysis.metrics`; fields that metrics do not read have placeholder values.

    `t`: end of the round, in seconds since the first round began.
    """
    return Round(
        method=method,
        round=number,
        position=0,
        t=t,
        wall_s=t,
        draft_s=outcome.draft_s,
        verify_s=outcome.verify_s,
        commit_s=outcome.commit_s,
        target_forwards=outcome.target_forwards,
        draft_forwards=outcome.draft_forwards,
        tokens=outcome.tree.tokens,
        parents=outcome.tree.parents,
        logprobs=outcome.tree.logprobs,
        pieces=[""] * len(outcome.tree.tokens),
        # The last committed token is the target's own and not a drafted token.
        accepted=outcome.accepted[: len(outcome.committed) - 1],
        committed=outcome.committed,
        text="",
    )
