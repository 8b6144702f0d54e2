"""Options that set a method's parameters: parsing and formatting, and the options of sampling, which all methods have.
Independent of individual methods and of the command-line parser.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from decoder.errors import ConfigError, quoted
from decoder.knobs import KnobInfo, TunableParameters

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
