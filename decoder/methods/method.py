"""Definition of a decoding method: all its properties that the race, the command line, settings and the screen use."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from decoder.knobs import HIGHEST_NODES, KnobInfo, RulesName, TunableParameters
from decoder.methods.option import Option, nearest
from decoder.session.steering import KnobState
from decoder.tree_rules import Rules

if TYPE_CHECKING:
    from decoder.engine import Engine
    from decoder.session.protocol import Session

Open = Callable[["Engine", Sequence[int], int, Any], "Session"]
"""(engine, prompt ids, maximum number of new tokens, the method's parameters) -> a session that is not yet prefilled.
"""

N_MAX = KnobInfo(
    "n_max", "N_max", "most guesses a round", "whole", lambda own: (1.0, float(max(HIGHEST_NODES, own.n_max))), coarse=8
)
"""Largest number of drafted nodes in a round; several methods share this knob."""


class Run(Protocol):
    """The settings of a run that methods need."""

    @property
    def max_new_tokens(self) -> int: ...

    def rules(self, name: RulesName) -> TunableParameters: ...


@dataclass(frozen=True)
class Sweep:
    """The benchmark option --NAME, which runs a method with several settings. Each setting is a group of numbers."""

    metavar: str
    help: str
    usual: str
    example: str
    """An example of a setting: whole numbers separated by x."""
    changes: Callable[..., Mapping[str, Any]]
    """(numbers of a setting) -> the parameters that they set."""
    label: Callable[..., str] = lambda *group: "x".join(map(str, group))
    probability: bool = False
    """Whether a setting may have a further number, which is a probability."""


@dataclass(frozen=True)
class Method:
    name: str
    title: str
    """One line for help texts."""
    own: TunableParameters | None = None
    """Default parameters; None if the method has no parameters of its own."""
    sampled: TunableParameters | None = None
    """Default parameters for temperatures above 0; None: the same as `own`."""
    obeys: RulesName | None = None
    """Name of another method whose parameters this method uses."""
    options: tuple[Option, ...] = ()
    """Options, in the order in which a copied command line states them."""
    presets: Mapping[str, TunableParameters] = field(default_factory=dict)
    """Presets by name; `own` and `sampled` are among them."""
    opened: Open | None = None
    """Opens a session; None: the engine's standard session, which drafts by the parameters' growth rule, if any."""
    races: bool = False
    """Whether the method runs in the race when --methods is not given."""
    root_is_drafted: bool = False
    """Whether node 0 of a tree is a drafted token; otherwise, it is the last committed token."""
    own_noise: bool = False
    """Whether the method samples with its own noise, so that its text may differ from the text of `ar`."""
    same_until: Callable[[Mapping[str, Any], int], int | None] | None = None
    """(parameters, prompt length) -> number of first tokens that must equal the first tokens of `ar`; None if the
    number is unknown, as for an old recording. Without this function, all tokens must be equal.
    """
    by_module: bool = False
    """Whether transformers decodes the text, in a separate thread."""
    needs_model: bool = False
    whole_target: bool = False
    """Whether the target must be in one process, since the method uses the target's module or KV cache."""
    sweep: Sweep | None = None

    @property
    def rules(self) -> RulesName | None:
        """Name of the parameter set that the method uses; None if it uses none."""
        return self.obeys if self.own is None else self.name

    @property
    def knobs(self) -> tuple[KnobInfo, ...]:
        return self.own.knobs if self.own is not None else ()

    def defaults(self, temperature: float) -> TunableParameters | None:
        return self.sampled if temperature > 0 and self.sampled is not None else self.own

    def open(self, engine: "Engine", prompt_ids: Sequence[int], run: Run) -> "Session":
        rules = run.rules(self.rules) if self.rules else None
        if self.opened:
            return self.opened(engine, prompt_ids, run.max_new_tokens, rules)
        return engine.session(prompt_ids, run.max_new_tokens, KnobState(rules) if isinstance(rules, Rules) else None)

    def parameters(self, run: Run) -> dict[str, Any]:
        """Parameters as a recording stores them, with lists in place of tuples."""
        own = asdict(run.rules(self.rules)) if self.rules else {}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in own.items()}

    def base(self, rules: TunableParameters) -> TunableParameters:
        """The preset nearest to `rules`, or the defaults; command lines state only parameters that differ."""
        return self.presets[nearest(self.presets, rules)] if self.presets else self.own or rules
