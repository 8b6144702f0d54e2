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
from tests import dflash_checkpoints, eagle3_checkpoints, tiny
from tests.decoder import mtp_checkpoints
from tests.reference import Oracle

T = TypeVar("T")

METHODS = tuple(methods.METHODS)
PROMPT = "The tree grows"
OF_ROTARY_MODELS = frozenset({"streaming"})
"""Methods that support only models with rotary embeddings and without attention windows."""

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Played:
    """Events of one run."""

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
    """Tiny models by name and dtype."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._made: dict[tuple[Any, ...], Any] = {}

    def pair(self, name: str) -> tiny.TinyPair:
        """A saved pair; the name is a family, a family with "-strange", or a special pair."""
        return self._once(("pair", name), lambda: self._make(name, self.home / name))

    def ending(self, name: str, **settings: Any) -> tiny.TinyPair:
        """The pair with these fields in its target's generation config."""
        key = ("ending", name, str(settings))
        return self._once(key, lambda: self.pair(name).with_generation(self.fresh(), **settings))

    def loaded(self, pair: tiny.TinyPair, dtype: str) -> Engine:
        """The pair as loaded by the engine."""
        return self._once(
            ("loaded", pair, dtype),
            lambda: load_pair(str(pair.target), str(pair.draft), device="cpu", dtype=dtype, report=lambda *_: None),
        )

    def engine(self, name: str, dtype: str = "float32") -> Engine:
        """The pair of this name as loaded by the engine."""
        return self.loaded(self.pair(name), dtype)

    def play(self, pair: tiny.TinyPair, dtype: str, prompt: str, config: RunConfig) -> Played:
        """A run of the engine without knob changes; cached."""
        return self._once(
            ("play", pair, dtype, prompt, config),
            lambda: Played(list(decode(self.loaded(pair, dtype), prompt, config))),
        )

    def plain(self, path: Path, dtype: str) -> Any:
        """The plain module without generation settings."""
        return self._once(("plain", path, dtype), lambda: self._plain(path, dtype))

    def oracle(self, pair: tiny.TinyPair, dtype: str, eos: frozenset[int] = frozenset()) -> Oracle:
        """The reference oracle of the pair."""
        return self._once(
            ("oracle", pair, dtype, eos),
            lambda: Oracle(self.plain(pair.target, dtype), self.plain(pair.draft, dtype), tiny.CONTEXT, eos),
        )

    def prompt_tokens(self, pair: tiny.TinyPair, prompt: str) -> list[int]:
        """Token ids of the prompt, as the tokenizer encodes it by default."""
        tokenizer = self._once(("tokenizer", pair.target), lambda: AutoTokenizer.from_pretrained(pair.target))
        ids: list[int] = tokenizer(prompt).input_ids
        return ids

    def generate(self, pair: tiny.TinyPair, dtype: str, prompt: str, count: int, eos: Sequence[int] = ()) -> list[int]:
        """Continuation of the prompt by transformers' plain greedy search."""
        return list(
            self._once(
                ("generate", pair.target, dtype, prompt, count, tuple(eos)),
                lambda: self._generate(pair, dtype, self.prompt_tokens(pair, prompt), count, list(eos)),
            )
        )

    def fresh(self) -> Path:
        """A new directory."""
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
        known = tiny.SPECIAL | eagle3_checkpoints.PAIRS | dflash_checkpoints.PAIRS | mtp_checkpoints.PAIRS
        if special := known.get(name):
            return special(home)
        family, _, strange = name.partition("-")
        return tiny.strange_pair(family, home) if strange else tiny.kindred_pair(family, home)

    @staticmethod
    def _plain(path: Path, dtype: str) -> Any:
        model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=DTYPES[dtype], attn_implementation="sdpa")
        model.generation_config = GenerationConfig()
        return model.eval()

    def _generate(self, pair: tiny.TinyPair, dtype: str, prompt: list[int], count: int, eos: list[int]) -> list[int]:
        model = self.plain(pair.target, dtype)
        settings = GenerationConfig(
            do_sample=False,
            max_new_tokens=count,
            eos_token_id=eos or None,
            pad_token_id=0,
        )
        ids = torch.tensor([prompt])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings)
        tokens: list[int] = out[0, len(prompt) :].tolist()
        return tokens


def play(engine: Engine, config: RunConfig, prompt: str = PROMPT) -> Played:
    """A run without user actions."""
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
    """The slots in which the engine decodes texts on a device."""
    assert engine.slots is not None
    return engine.slots
