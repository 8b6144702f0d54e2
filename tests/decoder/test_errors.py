"""An error keeps the names of its options from where it is raised to the command line."""

import pickle

import pytest

from decoder.errors import ConfigError, ModelError, about, require


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
