"""A block keeps the turns on one prompt: each text is compared with the text of ar, and near ties are judged."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from decoder.engine import Engine
from decoder.forward.near_tie import Verdict
from decoder.run.config import RunConfig
from dynatui.lab.bench.contenders import DecodedText, decoded, tallied
from dynatui.lab.bench.paper import job
from dynatui.lab.bench.paper.job import turns
from dynatui.lab.bench.paper.records import PaperLane, PaperRequest
from dynatui.lab.bench.protocol import Sample, totals_at
from tests.decoder.makers import TinyModels
from tests.lab.bench.paper.reports import header

PROMPT = [5, 9, 17, 40]
LENGTHS = (2, 6, 8)
OTHER = PaperLane(name="generate dynamic", method="generate", family="hf", parameters={})
ASKED: PaperRequest = structs.replace(
    header().request, lanes=(PaperLane(name="ar", method="ar", family="ar", parameters={}), OTHER)
)


@pytest.fixture(scope="module")
def engine(tiny_models: TinyModels) -> Engine:
    return tiny_models.loaded(tiny_models.pair("neox"), "float32")


@pytest.fixture(scope="module")
def plain(engine: Engine) -> DecodedText:
    return decoded(engine, PROMPT, "ar", RunConfig(max_new_tokens=8))


def with_another(plain: DecodedText) -> DecodedText:
    """The same rounds with the fifth token replaced."""
    rounds = list(plain.rounds)
    rounds[4] = structs.replace(rounds[4], committed=[(rounds[4].committed[0] + 1) % 200])
    return replace(plain, tally=tallied(None, rounds), rounds=rounds)


def samples(plain: DecodedText, other: DecodedText) -> list[Sample]:
    """Turns of ar and of another lane."""
    return [
        Sample(name, name, 0, 0, trial.tally, at=totals_at(trial, LENGTHS), kv_bytes=trial.kv_bytes, waited=0.0)
        for name, trial in (("ar", plain), (OTHER.name, other))
    ]


def test_the_same_text_is_told_as_such_and_a_difference_is_judged_where_it_is_seen(
    engine: Engine, plain: DecodedText
) -> None:
    ar, other = turns(engine, ASKED, PROMPT, samples(plain, plain))
    assert [each.identical_to_ar for each in other.at] == [True] * 3
    assert [each.speedup for each in (*ar.at, *other.at)] == [1.0] * 6
    assert {each.near_tie for each in other.at} == {None}
    _, other = turns(engine, ASKED, PROMPT, samples(plain, with_another(plain)))
    assert [each.first_difference for each in other.at] == [None, 4, 4]
    assert [each.near_tie for each in other.at] == [None, False, False]
    gap: Any = other.at[-1].first_difference_gap
    assert gap > 0


@pytest.mark.parametrize(("method", "by_module"), [("generate", True), ("linear", False)])
def test_what_transformers_wrote_is_judged_by_the_module_too(
    method: str,
    by_module: bool,  # noqa: FBT001 - a parameter of the test
    engine: Engine,
    plain: DecodedText,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request: list[tuple[list[int], bool]] = []

    def judge(prefix: list[int], _rivals: tuple[int, int], *, by_module: bool) -> Verdict:
        request.append((prefix, by_module))
        return Verdict(near_tie=True, gap=0.0)

    monkeypatch.setattr(job, "Judge", lambda *_: judge)
    those = structs.replace(ASKED, lanes=(ASKED.lanes[0], structs.replace(OTHER, method=method)))
    _, other = turns(engine, those, PROMPT, samples(plain, with_another(plain)))
    assert request == [([*PROMPT, *plain.tally.tokens[:4]], by_module)]
    assert other.at[-1].near_tie


def test_a_difference_by_design_is_none(engine: Engine, plain: DecodedText) -> None:
    request = structs.replace(ASKED, lanes=(ASKED.lanes[0], structs.replace(OTHER, own_text=True)))
    _, other = turns(engine, request, PROMPT, samples(plain, with_another(plain)))
    assert {(each.identical_to_ar, each.first_difference, each.near_tie) for each in other.at} == {(None, None, None)}
    assert other.at[-1].speedup == 1.0
