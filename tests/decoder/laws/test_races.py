"""One text, and the laws of events, in races of all kinds of pairs, methods, verifiers and settings."""

import pytest

from tests.decoder.laws.lawful import assert_lawful
from tests.decoder.laws.races import RACES, Race
from tests.decoder.makers import TinyModels
from tests.decoder.session.all_methods import turned


@pytest.mark.parametrize("race", RACES, ids=str)
def test_all_methods_write_the_text_of_plain_decoding_and_events_keep_laws(tiny_models: TinyModels, race: Race) -> None:
    engine, methods = race.engine(tiny_models), race.config.methods
    played = turned(engine, race.config, race.turns, race.prompt, watched=-1)
    expected = race.text(tiny_models) or played.tokens(methods[0])
    assert {method: played.tokens(method) for method in methods} == dict.fromkeys(methods, expected)
    assert_lawful(played, engine)
