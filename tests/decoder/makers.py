"""Tiny pairs, the engines that load them, and their plain Hugging Face modules; each is made once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from decoder import RunConfig, decode, load_pair, methods
from decoder.engine import Engine
from decoder.events import End, Event, Figures, Knob, Round, Run, Summary
from decoder.session.cuda_graph.slots import GraphSlots
from decoder.session.host import HostSession
from decoder.session.steering import KnobState
from decoder.tree_rules import Rules
from tests import heads, tiny
from tests.decoder import mtp_checkpoints
from tests.decoder.any_family import greedy
from tests.reference import Oracle

T = TypeVar("T")

METHODS = tuple(methods.METHODS)
PROMPT = "The tree grows"
OF_ROTARY_MODELS = frozenset({"streaming"})
"""Methods that support only models with rotary embeddings and without attention windows."""

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Played:
    events: list[Event]

    def rounds(self, method: str) -> list[Round]:
        return [event for event in self.events if isinstance(event, Round) and event.method == method]

    def turned(self, method: str, source: str) -> list[Knob]:
        """Events of a method's knobs with this source, the user or history."""
        found = [event for event in self.events if isinstance(event, Knob) and event.method == method]
        return [event for event in found if event.source == source]

    def tokens(self, method: str) -> list[int]:
        return [token for event in self.rounds(method) for token in event.committed]

    def end(self, method: str) -> End:
        (end,) = [event for event in self.events if isinstance(event, End) and event.method == method]
        return end

    def figures(self, method: str) -> Figures:
        (summary,) = [event for event in self.events if isinstance(event, Summary)]
        return summary.methods[method]


def texts_of(engine: Engine, config: RunConfig, prompt: str) -> tuple[Run, Summary, dict[str, list[int]]]:
    """First and last event of a run, and the tokens of each method."""
    played = Played(list(decode(engine, prompt, config)))
    run, summary = played.events[0], played.events[-1]
    assert isinstance(run, Run)
    assert isinstance(summary, Summary)
    return run, summary, {method: played.tokens(method) for method in config.methods}


class TinyModels:
    def __init__(self, home: Path) -> None:
        self.home = home
        self._made: dict[tuple[Any, ...], Any] = {}

    def pair(self, name: str | tiny.TinyPair) -> tiny.TinyPair:
        """A saved pair; the name is a family, a family with "-strange", or a special pair. A pair stays itself."""
        if isinstance(name, tiny.TinyPair):
            return name
        return self._once(("pair", name), lambda: self._make(name, self.home / name))

    def ending(self, name: str, **settings: Any) -> tiny.TinyPair:
        """The pair with these fields in its target's generation config."""
        key = ("ending", name, str(settings))
        return self._once(key, lambda: self.pair(name).with_generation(self.fresh(), **settings))

    def engine(self, pair: str | tiny.TinyPair, dtype: str = "float32") -> Engine:
        saved = self.pair(pair)
        return self._once(
            ("loaded", saved, dtype),
            lambda: load_pair(str(saved.target), str(saved.draft), device="cpu", dtype=dtype, report=lambda *_: None),
        )

    loaded = engine

    def play(self, pair: str | tiny.TinyPair, dtype: str, prompt: str, config: RunConfig) -> Played:
        """A run of the engine without knob changes; cached."""
        made = ("play", self.pair(pair), dtype, prompt, config)
        return self._once(made, lambda: Played(list(decode(self.engine(pair, dtype), prompt, config))))

    def plain(self, path: Path, dtype: str) -> Any:
        """The plain module without generation settings."""
        return self._once(("plain", path, dtype), lambda: self._plain(path, dtype))

    def oracle(self, pair: str | tiny.TinyPair, dtype: str, eos: frozenset[int] = frozenset()) -> Oracle:
        saved = self.pair(pair)
        target, draft = (self.plain(path, dtype) for path in (saved.target, saved.draft))
        return self._once(("oracle", saved, dtype, eos), lambda: Oracle(target, draft, tiny.CONTEXT, eos))

    def prompt_tokens(self, pair: str | tiny.TinyPair, prompt: str) -> list[int]:
        """Token ids of the prompt, as the tokenizer encodes it by default."""
        target = self.pair(pair).target
        tokenizer = self._once(("tokenizer", target), lambda: AutoTokenizer.from_pretrained(target))
        ids: list[int] = tokenizer(prompt).input_ids
        return ids

    def generate(
        self, pair: str | tiny.TinyPair, dtype: str, prompt: str, count: int, eos: Sequence[int] = ()
    ) -> list[int]:
        """Continuation of the prompt by transformers' plain greedy search."""
        path, ids = self.pair(pair).target, self.prompt_tokens(pair, prompt)
        made = ("generate", path, dtype, prompt, count, tuple(eos))
        return list(self._once(made, lambda: greedy(self.plain(path, dtype), ids, count, eos)))

    def fresh(self) -> Path:
        path = self.home / f"made-{len(self._made)}"
        path.mkdir()
        return path

    def _once(self, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        if key not in self._made:
            self._made[key] = make()
        made: T = self._made[key]
        return made

    @staticmethod
    def _make(name: str, home: Path) -> tiny.TinyPair:
        known = tiny.SPECIAL | heads.PAIRS | mtp_checkpoints.PAIRS
        if special := known.get(name):
            return special(home)
        family, _, strange = name.partition("-")
        return tiny.strange_pair(family, home) if strange else tiny.kindred_pair(family, home)

    @staticmethod
    def _plain(path: Path, dtype: str) -> Any:
        model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=DTYPES[dtype])
        model.generation_config = GenerationConfig()
        return model.eval()


def play(engine: Engine, config: RunConfig, prompt: str = PROMPT) -> Played:
    return Played(list(decode(engine, prompt, config)))


def methods_of(pair: str) -> tuple[str, ...]:
    """Methods that support the pair of this name."""
    without = OF_ROTARY_MODELS if pair.startswith("gpt2") or pair in tiny.WINDOWED else frozenset[str]()
    return tuple(method for method in METHODS if method not in without)


def host_session(engine: Engine, prompt: Sequence[int], limit: int, rules: Rules | None) -> HostSession:
    """A session whose rounds run on the host."""
    session = replace(engine, slots=None).session(prompt, limit, KnobState(rules) if rules else None)
    assert isinstance(session, HostSession)
    return session


def with_pair(engine: Engine, **changes: Any) -> Engine:
    """The same engine with fields of its pair replaced, such as target, draft or context.

    Rounds without a draft have other costs, which must not be learnt for the engine with one.
    """
    pair = replace(engine.pair, **changes)
    return replace(engine, pair=pair, costs=engine.costs if pair.draft else {})


def graph_slots(engine: Engine) -> GraphSlots:
    assert engine.slots is not None
    return engine.slots
