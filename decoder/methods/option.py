"""An option that sets parameters of a method, read and written; knows no method and no parser of command lines."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from decoder.errors import ConfigError, quoted
from decoder.knobs import KnobInfo, TunableParameters

LARGEST_WHOLE = 2**53
"""Largest whole number of an event."""
Kind = type[bool] | type[int] | type[float] | type[str]


@dataclass(frozen=True)
class Option:
    """One option, which is a setting of the same name too: tau_h is --tau-h."""

    name: str
    kind: Kind
    """What is typed; a truth value is typed as --NAME or --no-NAME."""
    metavar: str
    help: str
    sets: tuple[str, ...] = ()
    """The parameters that it sets; where none is named, the one of its own name."""
    read: Callable[[Any], Mapping[str, Any]] | None = None
    """What is typed -> the parameters; raises ConfigError. None: it is the parameter."""
    write: Callable[[Any], str] | None = None
    """Parameters -> what is typed to have them. None: the one that it sets."""
    choices: tuple[str, ...] = ()
    """Values that a shell completes."""
    default: str | None = None
    """Value where it is not given, unless that is a method's usual parameters."""
    instead: Mapping[str, str] = field(default_factory=dict)
    """What to do instead of giving certain texts that are no such value."""
    rank: int = 0
    """Its place in the help: the lowest come first, equal ones in the order of the methods."""

    @property
    def flag(self) -> str:
        """As it is typed: --tau-h."""
        return flag(self.name)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters that it sets."""
        return self.sets or (self.name,)

    def changes(self, given: Any) -> Mapping[str, Any]:
        """The parameters as they were given; raises ConfigError where they cannot be read."""
        return self.read(given) if self.read else {self.parameters[0]: given}

    def value(self, rules: TunableParameters) -> Any:
        """The option's value for these parameters."""
        if self.write:
            return self.write(rules)
        found = getattr(rules, self.parameters[0])
        return ",".join(map(str, found)) if isinstance(found, tuple) else found


def flag(name: str) -> str:
    """An option as it is typed: --tau-h."""
    return f"--{name.replace('_', '-')}"


def option_words(name: str, value: bool | float | str) -> tuple[str, ...]:  # noqa: FBT001 - what an option is set to
    """The words of a command line that set an option."""
    if isinstance(value, bool):
        return (flag(name) if value else flag(f"no_{name}"),)
    return flag(name), value if isinstance(value, str) else number(value)


def number(value: float) -> str:
    """A number that is read back as it was."""
    return str(value).removesuffix(".0")


def whole(text: str) -> int:
    """A whole number; ValueError for any other, and for one that is too large for all purposes."""
    found = int(text)
    if abs(found) > LARGEST_WHOLE:
        raise ValueError(text)
    return found


def whole_numbers(flag: str, text: str, *, example: str) -> tuple[int, ...]:
    """Whole numbers with commas between them, as many as the example has; raises ConfigError for any others."""
    parts, count = text.split(","), len(example.split(","))
    with suppress(ValueError):
        if len(parts) == count:
            return tuple(map(whole, parts))
    raise ConfigError(f"{flag} is {quoted(text)}; give {count} whole numbers, for example {example}")


def preset(presets: Mapping[str, TunableParameters], help_: str) -> Option:
    """The option that names values of all parameters to begin with."""
    names = tuple(presets)
    sets = tuple(vars(presets[names[0]]))

    def read(name: str) -> Mapping[str, Any]:
        if name not in presets:
            raise ConfigError(f"--preset is {quoted(name)}; give one of {', '.join(names)}")
        return vars(presets[name])

    return Option(
        "preset", str, "NAME", help_, sets, read, lambda rules: nearest(presets, rules), names, names[0], rank=-1
    )


def nearest(presets: Mapping[str, TunableParameters], rules: TunableParameters) -> str:
    """The preset that fewest parameters differ from."""
    return min(presets, key=lambda name: len(differing(rules, presets[name])))


def differing(one: TunableParameters, other: TunableParameters) -> set[str]:
    """Parameters in which two sets differ."""
    return {name for name, value in vars(one).items() if value != vars(other)[name]}


def any_knobs(name: str, help_: str, usual: TunableParameters, *, example: str, rank: int = 0) -> Option:
    """An option that sets any knobs of a method: KNOB=X,..; several may be possible only beside each other."""
    known = {knob.name: knob for knob in usual.knobs}

    def read(text: str) -> Mapping[str, Any]:
        values = dict[str, float]()
        for part in text.split(",") if text else ():
            knob, _, value = (piece.strip() for piece in part.partition("="))
            if knob not in known:
                remedy = f"give knobs and values such as {example}, of {', '.join(known)}"
                raise ConfigError(f"--{name} has {quoted(part)}; {remedy}")
            values[knob] = _knob_value(known[knob], value, f"--{name} has {quoted(part)}")
        return vars(usual.with_knobs(values))

    def write(rules: TunableParameters) -> str:
        changed = [knob for knob in known.values() if rules.knob(knob.name) != usual.knob(knob.name)]
        return ",".join(f"{knob.name}={_knob_text(knob, rules.knob(knob.name))}" for knob in changed)

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


def _knob_text(knob: KnobInfo, value: float) -> str:
    return knob.written(value) if knob.values else number(value)
