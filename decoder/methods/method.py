"""A decoding method: name, title, parameters with their options, and how it opens a session.

Everything else that knows methods (race, command line, settings, screen) reads it from here. Knows none by name.
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
"""(engine, prompt ids, most new tokens, the method's parameters) -> a session that has read nothing yet."""

N_MAX = KnobInfo(
    "n_max", "N_max", "most guesses a round", "whole", lambda own: (1.0, float(max(HIGHEST_NODES, own.n_max))), coarse=8
)
"""A knob of several methods."""


class Run(Protocol):
    """The part of a run's configuration that a method reads."""

    @property
    def max_new_tokens(self) -> int:
        """Most new tokens of a text."""

    def rules(self, name: RulesName) -> TunableParameters:
        """One of the parameter sets."""


@dataclass(frozen=True)
class Sweep:
    """How a benchmark measures several settings of a method: --NAME of the method, a group of numbers a setting."""

    metavar: str
    help: str
    usual: str
    example: str
    """One group: numbers with x between them."""
    changes: Callable[..., Mapping[str, Any]]
    """The numbers of a group -> the parameters that they set."""
    label: Callable[..., str] = lambda *group: "x".join(map(str, group))
    """The numbers of a group -> label of that setting."""


@dataclass(frozen=True)
class Method:
    """Name, description, parameters and session of one method."""

    name: str
    title: str
    """One line for help texts."""
    own: TunableParameters | None = None
    """Its parameters as they usually are; None where it has none of its own."""
    obeys: RulesName | None = None
    """The method whose parameters it obeys instead."""
    options: tuple[Option, ...] = ()
    """Command-line options, in the order in which a command line is written."""
    presets: Mapping[str, TunableParameters] = field(default_factory=dict)
    """Named values of its parameters, those that hold by default first."""
    opened: Open | None = None
    """None: it decodes by drafted trees that grow as its parameters say; without parameters nothing is drafted."""
    races: bool = False
    """Whether it races where no methods are named."""
    root_is_drafted: bool = False
    """Whether node 0 of its trees is a drafted token; else it is the last committed one."""
    own_noise: bool = False
    """Whether it samples with noise of its own, so that its text is another one than ar's."""
    same_until: Callable[[Mapping[str, Any], int], int | None] | None = None
    """(parameters, tokens of the prompt) -> how many first tokens of its text must be ar's; later ones may be others by
    design. None where the parameters, which a recording may hold, do not tell. Without this function all must."""
    by_module: bool = False
    """Whether transformers decodes, through the models' own modules and in a thread of its own."""
    needs_model: bool = False
    """Whether it cannot do without a draft model."""
    whole_target: bool = False
    """Whether it needs the whole target in one process, as it reaches into its module or its keys and values."""
    sweep: Sweep | None = None

    @property
    def rules(self) -> RulesName | None:
        """The parameter set that it obeys; None: it has no parameters."""
        return self.obeys if self.own is None else self.name

    @property
    def knobs(self) -> tuple[KnobInfo, ...]:
        """The knobs of its own parameters."""
        return self.own.knobs if self.own is not None else ()

    def open(self, engine: "Engine", prompt_ids: Sequence[int], run: Run) -> "Session":
        """A session that has read nothing yet."""
        rules = run.rules(self.rules) if self.rules else None
        if self.opened:
            return self.opened(engine, prompt_ids, run.max_new_tokens, rules)
        return engine.session(prompt_ids, run.max_new_tokens, KnobState(rules) if isinstance(rules, Rules) else None)

    def parameters(self, run: Run) -> dict[str, Any]:
        """All its parameters, as a recording keeps them."""
        return asdict(run.rules(self.rules)) if self.rules else {}

    def base(self, rules: TunableParameters) -> TunableParameters:
        """The values that parameters are written relative to: the nearest preset, or the usual ones."""
        return self.presets[nearest(self.presets, rules)] if self.presets else self.own or rules
