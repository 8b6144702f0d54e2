"""Tests of options, arguments and commands as Typer objects, and of the values that functions get from them."""

from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any, get_type_hints

import pytest
from typer.core import TyperArgument, TyperOption

from decoder.errors import ConfigError
from dynatui import main as cli
from dynatui.cli import parameters
from dynatui.cli.parameters import Declared, OptionGroup, argument, command, in_panel, option, switch

Made = list[tuple[Callable[..., Any], Declared]]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    """Functions of all commands and groups, each with its parameters."""
    pairs = Made()

    def recorded(maker: Callable[..., Any], *given: Any, **further: Any) -> Any:
        pairs.append(given[1:3])
        return maker(*given, **further)

    for name in ("command", "group"):
        monkeypatch.setattr(parameters, name, partial(recorded, getattr(parameters, name)))
    cli.command()
    return pairs


def visible(declared: Declared) -> list[OptionGroup | TyperOption | TyperArgument]:
    return [each for each in declared if isinstance(each, OptionGroup) or each.expose_value]


def test_every_function_takes_what_its_command_declares(made: Made) -> None:
    assert len(made) == 17
    for run, declared in made:
        assert set(signature(run).parameters) == {each.name for each in visible(declared)}, run


def test_every_function_takes_values_of_the_declared_types(made: Made) -> None:
    for run, declared in made:
        hints = get_type_hints(run)
        for each in visible(declared):
            if isinstance(each, OptionGroup) or each.type_descriptor.parameter_info.parser:
                continue
            kind = each.type_descriptor.annotation
            assert hints[each.name] == (kind if each.required or each.default is not None else kind | None), each.name


def values(*declared: OptionGroup | TyperOption | TyperArgument, line: str) -> dict[str, Any]:
    """The arguments that a function with these parameters gets from a command line."""
    got = dict[str, Any]()

    def run(**given: Any) -> int:
        got.update(given)
        return 0

    command("x", run, declared).main(line.split(), standalone_mode=False)
    return got


def test_a_group_makes_one_argument_of_the_values_of_its_options() -> None:
    pair = OptionGroup("pair", (option("--a N", "", int), option("--b N", "", int, default=3)), lambda a, b: (a, b))
    assert values(pair, switch("--c", ""), line="--a 2") == {"pair": (2, 3), "c": False}


def test_a_text_is_parsed_once_whether_given_or_the_default() -> None:
    split = option("--names NAMES", "", parse=lambda text: text.split(","), default="a,b")
    assert values(split, line="") == {"names": ["a", "b"]}
    assert values(split, line="--names c") == {"names": ["c"]}
    assert values(argument("names", "NAMES", "", parse=len), line="four") == {"names": 4}


def test_an_option_without_a_value_is_none_and_a_repeated_one_empty() -> None:
    assert values(option("--one N", "", int), option("--all N", "", list[str]), line="") == {"one": None, "all": ()}


def test_an_error_of_a_parser_reaches_the_caller() -> None:
    def refuse(text: str) -> int:
        raise ConfigError(text)

    with pytest.raises(ConfigError, match=r"^no$"):
        values(option("--one N", "", parse=refuse), line="--one no")


def test_a_panel_is_that_of_each_of_its_options() -> None:
    assert [each.rich_help_panel for each in in_panel("P", option("--a N", ""), switch("--b", ""))] == ["P", "P"]
