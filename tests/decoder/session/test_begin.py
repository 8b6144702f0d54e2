"""Order in which the methods of a race begin: a reader waits only for the first method."""

from itertools import islice

from decoder.events import Round, Start
from decoder.run.config import RunConfig
from decoder.run.race import decode
from decoder.session.steering import Steering
from tests.decoder.makers import TinyModels


def test_the_first_method_has_a_round_before_another_begins(tiny_models: TinyModels) -> None:
    pair = tiny_models.loaded(tiny_models.pair("neox"), "float32")
    methods = ("dynatree", "auto", "ar")
    kinds = [
        (type(event), event.method)
        for event in decode(pair, "The tree grows", RunConfig(methods, 12))
        if isinstance(event, Start | Round)
    ]
    assert kinds[:6] == [(kind, name) for name in methods for kind in (Start, Round)]


def test_a_method_that_is_stepped_begins_though_those_before_it_had_no_round(tiny_models: TinyModels) -> None:
    pair = tiny_models.loaded(tiny_models.pair("neox"), "float32")
    steering = Steering()
    steering.paused, steering.watched = True, "ar"
    events = decode(pair, "The tree grows", RunConfig(("dynatree", "auto", "ar"), 12), steering)
    begun = [event.method for event in islice(events, 4) if isinstance(event, Start)]
    assert begun == ["dynatree", "auto", "ar"]
    steering.stopped = True
    assert not any(isinstance(event, Round) for event in events)
