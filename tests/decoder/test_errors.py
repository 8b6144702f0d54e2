"""An error keeps the names of its options from where it is raised to the command line."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoder.errors import (
    LONGEST_MESSAGE,
    LONGEST_REASON,
    ConfigError,
    ModelError,
    about,
    first_line,
    in_one_line,
    require,
)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (
            "from one of:\n(1) a file,\n(2) a thing or\n(3) another.\nYou need more.",
            "from one of: (1) a file, (2) a thing or (3) another",
        ),
        ("nothing follows,", "nothing follows"),
        ("one sentence.\nAnother,", "one sentence"),
    ],
)
def test_the_reason_of_a_library_is_never_cut_within_a_sentence(message: str, reason: str) -> None:
    assert first_line(ValueError(message)) == reason


def test_an_error_is_about_the_options_that_it_names() -> None:
    with pytest.raises(ConfigError, match="these differ") as refused:
        require(False, "these differ", "target", "draft")
    assert refused.value.about == ("target", "draft")


def test_an_error_that_names_none_is_about_those_of_its_place() -> None:
    with pytest.raises(ModelError) as refused, about("target"):
        raise ModelError("no such model")
    assert refused.value.about == ("target",)


def test_what_an_error_names_itself_comes_first() -> None:
    with pytest.raises(ConfigError) as refused, about("target"):
        raise ConfigError("no such dtype", "dtype")
    assert refused.value.about == ("dtype",)


def test_another_process_is_told_the_same() -> None:
    error = pickle.loads(pickle.dumps(ConfigError("no such dtype", "dtype")))  # noqa: S301 - our own pickle
    assert (str(error), error.about) == ("no such dtype", ("dtype",))


LONG = st.tuples(st.text(min_size=1), st.integers(1, 2000)).map(lambda part: part[0] * part[1])


@given(LONG, LONG)
def test_no_message_is_longer_than_a_user_reads_whatever_it_quotes(quotation: str, other: str) -> None:
    said = str(ConfigError(f"it quotes {quotation} and {other}; leave it out"))
    assert len(said) <= LONGEST_MESSAGE + 1
    assert said.startswith("it quotes ")
    assert said.endswith("; leave it out")


@given(LONG)
def test_no_reason_of_another_library_is_longer_than_a_few_lines(message: str) -> None:
    assert len(first_line(ValueError(message))) <= LONGEST_REASON + 1
    assert len(in_one_line(ValueError(message))) <= LONGEST_REASON + 1
