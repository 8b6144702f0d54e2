"""Definition of a decoding method: name, title, parameters, options and session.

The race, command line, settings and screen know a method only by this definition. This module names no method.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from decoder.knobs import HIGHEST_NODES, KnobInfo, RulesName, TunableParameters
from decoder.methods.option import Option, nearest
from decoder.session.knob_state import KnobState
from decoder.tree_rules import Rules

if TYPE_CHECKING:
    from decoder.engine import Engine
    from decoder.session.protocol import Session

Open = Callable[["Engine", Sequence[int], int, Any], "Session"]
"""(engine, prompt ids, maximum number of new tokens, the method's parameters) -> a session whose prompt is not yet
prefilled.
"""

N_MAX = KnobInfo(
    "n_max", "N_max", "most guesses a round", "whole", lambda own: (1.0, float(max(HIGHEST_NODES, own.n_max))), coarse=8
)
"""Knob for the number of drafted nodes; several methods share this knob."""


class Run(Protocol):
    """Those settings of a run that methods need."""

    @property
    def max_new_tokens(self) -> int:
        """Maximum number of new tokens in a text."""

    def rules(self, name: RulesName) -> TunableParameters:
        """The parameter set of this name."""


@dataclass(frozen=True)
class Sweep:
    """Benchmark option --NAME that runs a method with several settings, each given as a group of numbers."""

    metavar: str
    help: str
    usual: str
    """Default value of the option."""
    example: str
    """Example of one group: numbers separated by x."""
    changes: Callable[..., Mapping[str, Any]]
    """(numbers of a group) -> parameters that they set."""
    label: Callable[..., str] = lambda *group: "x".join(map(str, group))
    """(numbers of a group) -> label of the setting."""


@dataclass(frozen=True)
class Method:
    """One decoding method: its name, description, parameters and session."""

    name: str
    title: str
    """Description in one line, for help texts."""
    own: TunableParameters | None = None
    """Default parameters; None if the method has no parameters of its own."""
    sampled: TunableParameters | None = None
    """Default parameters for temperatures above 0; None if these are `own` too."""
    obeys: RulesName | None = None
    """Another method whose parameters this method uses; None if the method uses `own` or has no parameters."""
    options: tuple[Option, ...] = ()
    """Command-line options, in the order in which a copied command line lists them."""
    presets: Mapping[str, TunableParameters] = field(default_factory=dict)
    """Presets of the parameters; the defaults, `own` and `sampled`, are among them."""
    opened: Open | None = None
    """Opens a session. If this is None, the engine opens its standard session, which drafts by the method's growth
    rule, or drafts nothing if the method has no growth rule.
    """
    races: bool = False
    """Whether the method runs in the race when --methods is not given."""
    root_is_drafted: bool = False
    """Whether node 0 of a tree is a drafted token; otherwise node 0 is the last committed token."""
    own_noise: bool = False
    """Whether the method samples with its own noise, so that its text differs from the text of `ar`."""
    same_until: Callable[[Mapping[str, Any], int], int | None] | None = None
    """(parameters, prompt length) -> how many tokens at the start of the text must equal the tokens of `ar`; later
    tokens may differ by design. The result is None if the parameters do not determine this number, as in an old
    recording. For a method without this function, all tokens must be equal.
    """
    by_module: bool = False
    """Whether the library transformers decodes the text, in a separate thread and with Hugging Face modules."""
    needs_model: bool = False
    """Whether the method needs a draft model with the target's tokens."""
    whole_target: bool = False
    """Whether the target must be whole in one process, since the method reads the target's module or KV
    cache.
    """
    sweep: Sweep | None = None
    """Benchmark option for several settings of the method; None if the method has no such option."""

    @property
    def rules(self) -> RulesName | None:
        """Name of the parameter set; None if the method has no parameters."""
        return self.obeys if self.own is None else self.name

    @property
    def knobs(self) -> tuple[KnobInfo, ...]:
        """Knobs of the method's own parameters; empty if the method uses another method's parameters."""
        return self.own.knobs if self.own is not None else ()

    def defaults(self, temperature: float) -> TunableParameters | None:
        """Default parameters of a run at this temperature; None if the method has no parameters of its own."""
        return self.sampled if temperature > 0 and self.sampled is not None else self.own

    def open(self, engine: "Engine", prompt_ids: Sequence[int], run: Run) -> "Session":
        """Opens a session with the run's parameters; the session's prompt is not yet prefilled."""
        rules = run.rules(self.rules) if self.rules else None
        if self.opened:
            return self.opened(engine, prompt_ids, run.max_new_tokens, rules)
        return engine.session(prompt_ids, run.max_new_tokens, KnobState(rules) if isinstance(rules, Rules) else None)

    def parameters(self, run: Run) -> dict[str, Any]:
        """All parameters of the method, as a recording stores them. Tuples become lists, since JSON has no tuples."""
        own = asdict(run.rules(self.rules)) if self.rules else {}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in own.items()}

    def base(self, rules: TunableParameters) -> TunableParameters:
        """Reference values (the nearest preset, or the defaults); command lines state only parameters that differ."""
        return self.presets[nearest(self.presets, rules)] if self.presets else self.own or rules
