"""Definition of a decoding method: the options that set its parameters, and all other properties that the race, the
command line, settings and the screen use; and the options of sampling, which all methods have.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from decoder.errors import ConfigError, quoted
from decoder.knobs import HIGHEST_NODES, KnobInfo, RulesName, TunableParameters
from decoder.session.steering import KnobState
from decoder.tree_rules import Rules

if TYPE_CHECKING:
    from decoder.engine import Engine
    from decoder.session.protocol import Session

LARGEST_WHOLE = 2**53
"""Largest absolute value of a whole number in an event."""
Kind = type[bool] | type[int] | type[float] | type[str]


@dataclass(frozen=True)
class Option:
    """A command-line option, and the setting of the same name."""

    name: str
    kind: Kind
    """Type of the option's value; a bool is given as --NAME or --no-NAME."""
    metavar: str
    help: str
    sets: tuple[str, ...] = ()
    """Parameters that the option sets; if empty, the parameter with the option's name."""
    read: Callable[[Any], Mapping[str, Any]] | None = None
    """(value of the option) -> parameters; raises ConfigError. None: the parameter gets the option's value."""
    write: Callable[[Any], str] | None = None
    """(parameters) -> value of the option; None: the option's value is the parameter's value."""
    choices: tuple[str, ...] = ()
    """Values that shell completion offers."""
    selects_preset: bool = False
    """Whether the option sets all parameters to a preset's values, which other options may then change."""
    instead: Mapping[str, str] = field(default_factory=dict)
    """(invalid value) -> remedy in the error message."""
    rank: int = 0
    """Options of lower rank come first in the help; options of equal rank are in the order of their methods."""

    @property
    def flag(self) -> str:
        return flag(self.name)

    @property
    def parameters(self) -> tuple[str, ...]:
        return self.sets or (self.name,)

    def changes(self, given: Any) -> Mapping[str, Any]:
        """Parameters that the value `given` sets; raises ConfigError for an invalid value."""
        return self.read(given) if self.read else {self.parameters[0]: given}

    def value(self, rules: TunableParameters) -> Any:
        if self.write:
            return self.write(rules)
        value = getattr(rules, self.parameters[0])
        return ",".join(map(str, value)) if isinstance(value, tuple) else value


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def option_words(name: str, value: bool | float | str) -> tuple[str, ...]:  # noqa: FBT001 - what an option is set to
    if isinstance(value, bool):
        return (flag(name) if value else flag(f"no_{name}"),)
    return flag(name), value if isinstance(value, str) else number(value)


def number(value: float) -> str:
    """The shortest text that is parsed as exactly `value`."""
    return str(value).removesuffix(".0")


def whole(text: str) -> int:
    """Raises ValueError if `text` is no whole number, or if its absolute value is above `LARGEST_WHOLE`."""
    value = int(text)
    if abs(value) > LARGEST_WHOLE:
        raise ValueError(text)
    return value


def whole_numbers(flag: str, text: str, *, example: str) -> tuple[int, ...]:
    """Parses comma-separated whole numbers, as many as `example` has; raises ConfigError for other text."""
    parts, count = text.split(","), len(example.split(","))
    with suppress(ValueError):
        if len(parts) == count:
            return tuple(map(whole, parts))
    raise ConfigError(f"{flag} is {quoted(text)}; give {count} whole numbers, for example {example}")


def preset(presets: Mapping[str, TunableParameters], help_: str) -> Option:
    names = tuple(presets)
    sets = tuple(vars(presets[names[0]]))

    def read(name: str) -> Mapping[str, Any]:
        if name not in presets:
            raise ConfigError(f"--preset is {quoted(name)}; give one of {', '.join(names)}")
        return vars(presets[name])

    return Option(
        "preset",
        str,
        "NAME",
        help_,
        sets,
        read,
        lambda rules: nearest(presets, rules),
        names,
        selects_preset=True,
        rank=-1,
    )


def nearest(presets: Mapping[str, TunableParameters], rules: TunableParameters) -> str:
    return min(presets, key=lambda name: len(differing(rules, presets[name])))


def differing(one: TunableParameters, other: TunableParameters) -> set[str]:
    return {name for name, value in vars(one).items() if value != vars(other)[name]}


def any_knobs(name: str, help_: str, usual: TunableParameters, *, example: str, rank: int = 0) -> Option:
    """An option that sets several knobs at once, as KNOB=X,KNOB=Y,..., since some values are valid only together."""
    known = {knob.name: knob for knob in usual.knobs}

    def read(text: str) -> Mapping[str, Any]:
        values = dict[str, float]()
        for part in text.split(",") if text else ():
            knob, _, value = (piece.strip() for piece in part.partition("="))
            if knob not in known:
                remedy = f"give knobs and values such as {example}; the knobs are {', '.join(known)}"
                raise ConfigError(f"--{name} has {quoted(part)}, which names no knob of {name}; {remedy}")
            values[knob] = _knob_value(known[knob], value, f"--{name} has {quoted(part)}")
        return vars(usual.with_knobs(values))

    def write(rules: TunableParameters) -> str:
        changed = [knob for knob in known.values() if rules.knob(knob.name) != usual.knob(knob.name)]
        values = ((knob, rules.knob(knob.name)) for knob in changed)
        return ",".join(
            f"{knob.name}={knob.written(value) if knob.values else number(value)}" for knob, value in values
        )

    return Option(name, str, "KNOB=X,..", help_, tuple(vars(usual)), read, write, rank=rank)


def _knob_value(knob: KnobInfo, text: str, fault: str) -> float:
    if knob.values:
        if text in knob.values:
            return list(knob.values).index(text)
        raise ConfigError(f"{fault}; give {' or '.join(f'{knob.name}={value}' for value in [*knob.values][::-1])}")
    try:
        return whole(text) if knob.integer else float(text)
    except ValueError:
        kind = "a whole number" if knob.integer else "a number"
        raise ConfigError(f"{fault}; give {knob.name} as {kind}") from None


SAMPLING_OPTIONS = (
    Option("temperature", float, "T", "Sampling temperature, 0 to 2; 0: greedy."),
    Option("top_k", int, "N", "Sample only from the N most probable tokens; 0: from all."),
    Option(
        "top_p",
        float,
        "P",
        "Sample only from the smallest set of most probable tokens with a total probability of P or more; 1: from all.",
    ),
)


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
