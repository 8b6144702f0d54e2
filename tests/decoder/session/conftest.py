"""Fixtures of the sessions' tests."""

import pytest

from tests.decoder.makers import Played, TinyModels
from tests.decoder.session.all_methods import CONFIG, PROMPT


@pytest.fixture
def played(tiny_models: TinyModels) -> Played:
    """All methods on one prompt; decoded once."""
    return tiny_models.play(tiny_models.pair("neox"), "float32", PROMPT, CONFIG)
