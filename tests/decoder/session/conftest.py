"""Fixtures of the session tests."""

import pytest

from tests.decoder.makers import PROMPT, Played, TinyModels
from tests.decoder.session.all_methods import CONFIG


@pytest.fixture
def played(tiny_models: TinyModels) -> Played:
    """A run of all methods on one prompt; it is decoded once."""
    return tiny_models.play(tiny_models.pair("neox"), "float32", PROMPT, CONFIG)
