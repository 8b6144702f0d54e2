"""Turns the values of options into what a session is made of, and names the option when one cannot be read.

Knows nothing of where the values come from. What they mean and which are possible is decided in `decoder.config`; an
option that is None keeps the default there.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from decoder.config import PRESETS, Auto, DynaTree, Fixed, Linear, RunConfig
from decoder.errors import ConfigError, quoted, shortened
from decoder.knobs import BRANCHES, WHOLE
from decoder.methods import chosen
from dynatui.keys import Keymap
from dynatui.prompts import load
from dynatui.session import Symbols, View

LARGEST_WHOLE = 2**53


def prompt_files(names: list[str] | None) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Files by name, each with its prompts."""
    return tuple((name, load.from_file(name)) for name in names or ())


def prompts(files: tuple[tuple[str, tuple[str, ...]], ...], texts: list[str] | None) -> tuple[str, ...]:
    """The prompts of files and of the command line, in this order; with neither, our own."""
    given = tuple(chain.from_iterable(held for _, held in files))
    return given + tuple(map(load.from_text, texts or ())) or load.embedded()


def run_config(
    *,
    methods: str | None,
    max_new_tokens: int | None,
    seed: int,
    chat: bool | None,
    preset: str,
    history: bool | None,
    tau_h: float | None,
    tau_l: float | None,
    d0: float | None,
    d_max: int | None,
    branching: str | None,
    rho_stop: float | None,
    rho_deep: float | None,
    tau: float | None,
    n_max: int | None,
    selection: str | None,
    k: int | None,
    fixed: str | None,
    auto: str | None,
) -> RunConfig:
    """What a run does with a prompt.

    Raises:
        ConfigError: A value is out of its bounds, or two contradict each other.
    """
    return RunConfig(
        dynatree=replace(
            _preset(preset),
            **_given(
                d0=d0,
                d_max=d_max,
                branching=_numbers("--branching", branching, example="1,2,3"),
                tau_h=tau_h,
                tau_l=tau_l,
                rho_stop=rho_stop,
                rho_deep=rho_deep,
                tau=tau,
                n_max=n_max,
                selection=selection,
                history=history,
            ),
        ),
        linear=replace(Linear(), **_given(k=k)),
        fixed=_fixed(fixed),
        auto=_auto(auto),
        **_given(seed=seed, methods=_methods(methods), max_new_tokens=max_new_tokens, chat=chat),
    )


def view(
    speed: float | None,
    fps: int | None,
    theme: str | None,
    symbols: Symbols,
    *,
    no_color: bool,
    mouse: bool,
    log_file: Path | None,
    keys: Keymap,
) -> View:
    """How the screen looks; NO_COLOR in the environment counts as the option does."""
    color = not (no_color or os.environ.get("NO_COLOR"))
    return View(speed, fps, theme, symbols, color=color, mouse=mouse, log=log_file, keys=keys)


def _given(**values: object) -> dict[str, Any]:
    """Those options that were given; the others keep their defaults.

    Raises:
        ConfigError: A whole number is larger than an event can carry.
    """
    for name, value in values.items():
        if isinstance(value, int) and abs(value) > LARGEST_WHOLE:
            raise ConfigError(f"{name} is {shortened(value)}; give a number up to {LARGEST_WHOLE}")
    return {name: value for name, value in values.items() if value is not None}


def _preset(name: str) -> DynaTree:
    if name not in PRESETS:
        raise ConfigError(f"--preset is {quoted(name)}; give one of {', '.join(PRESETS)}")
    return PRESETS[name]


def _methods(names: str | None) -> tuple[str, ...] | None:
    return (
        None if names is None else tuple(method.name for method in chosen([name.strip() for name in names.split(",")]))
    )


def _fixed(shape: str | None) -> Fixed:
    if shape is None:
        return Fixed()
    kinds: tuple[Callable[[str], float], ...] = (_whole, _whole, float, _whole)
    parts = shape.split(",")
    with suppress(ValueError):
        if 2 <= len(parts) <= len(kinds):
            values: list[Any] = [kind(part) for kind, part in zip(kinds, parts, strict=False)]
            return Fixed(*values)
    raise ConfigError(
        f"--fixed is {quoted(shape)}; give depth and branching, and behind them threshold and most nodes if you like, "
        "for example 5,2 or 5,2,0.05,256"
    )


def _auto(text: str | None) -> Auto:
    """The bounds of `auto`, all at once: one may be possible only beside another."""
    found = dict[str, Any]()
    for part in text.split(",") if text else ():
        name, _, value = (piece.strip() for piece in part.partition("="))
        found[name] = _bound(name, value, part)
    usual = zip(BRANCHES, Auto().branching, strict=True)
    low, mid, high = (found.pop(name, children) for name, children in usual)
    return replace(Auto(), branching=(low, mid, high), **found)


def _bound(name: str, value: str, part: str) -> Any:
    if name not in Auto().ends():
        known = ", ".join(Auto().ends())
        raise ConfigError(f"--auto has {quoted(part)}; give knobs and values such as d0=6, of {known}")
    if name == "history":
        if value in ("on", "off"):
            return value == "on"
        raise ConfigError(f"--auto has {quoted(part)}; give history=on or history=off")
    try:
        return _whole(value) if name in WHOLE else float(value)
    except ValueError:
        kind = "a whole number" if name in WHOLE else "a number"
        raise ConfigError(f"--auto has {quoted(part)}; give {name} as {kind}") from None


def _numbers(option: str, text: str | None, *, example: str) -> tuple[int, ...] | None:
    """Whole numbers with commas between them, as many as the example has."""
    if text is None:
        return None
    parts = text.split(",")
    with suppress(ValueError):
        if len(parts) == len(example.split(",")):
            return tuple(map(_whole, parts))
    raise ConfigError(
        f"{option} is {quoted(text)}; give {len(example.split(','))} whole numbers, for example {example}"
    )


def _whole(text: str) -> int:
    """A whole number; ValueError for any other, and for one that is too large for all purposes."""
    number = int(text)
    if abs(number) > LARGEST_WHOLE:
        raise ValueError(text)
    return number
