"""The speed-up of a run is one figure, wherever it is shown: six places, read as a user reads them."""

import io
import re
from collections.abc import Callable, Sequence
from functools import reduce

import pytest
from msgspec import structs

from decoder.events import Event, Run
from dynatui.cli.headless import replay_events
from dynatui.record.transcript import Transcript
from dynatui.render.cards import cards
from dynatui.render.ink import Rows
from dynatui.render.prompts import prompts
from dynatui.render.race import race
from dynatui.render.scene import Scene
from dynatui.render.status import status
from dynatui.result import interval, result, times_plain
from dynatui.screen.run import lines as summary
from dynatui.state.run_state import Prompt, Record, RunState, apply
from dynatui.state.session_log import SessionLog
from tests.dynatui.scripted_runs import lines, plain_round, run, state_of, tree_round
from tests.dynatui.several_texts import session, text

COUNT = 3


def scene_and_log(texts: int) -> tuple[Scene, SessionLog]:
    state, log = RunState(), SessionLog()
    for record in session(texts):
        state = apply(state, record)
        log = log.apply(record, state)
    return Scene(state, results=log.results), log


def said(texts: int) -> str:
    out, err = io.StringIO(), io.StringIO()
    events = [record for record in session(texts) if isinstance(record, Event)]
    assert replay_events(events, Transcript(out, err, as_json=False)) == 0
    return err.getvalue()


def line_of(page: Sequence[str], begins: str) -> str:
    """The last line that begins so, without a frame."""
    return [row.strip("│ ") for row in page if row.strip("│ ").startswith(begins)][-1]


def found_in(rows: Rows, begins: str) -> str:
    return line_of(lines(rows), begins)


FIGURE = re.compile(r"\d+\.\d\d(?=x| |$)")
PLACES: dict[str, Callable[[int], str]] = {
    "headline": lambda texts: found_in(status(scene_and_log(texts)[0], 200, 1), ""),
    "tile": lambda texts: lines(cards(scene_and_log(texts)[0], 200, 3))[1].strip("▏ "),
    "race": lambda texts: re.split(r"/s +", found_in(race(scene_and_log(texts)[0], 120, 9), "dynatree "))[1],
    "prompts": lambda texts: found_in(prompts(scene_and_log(texts)[0], 116, 12), f"all {texts} together").split()[-2],
    "headless": lambda texts: re.split(r"  +", line_of(said(texts).splitlines(), "dynatree "))[1 if texts > 1 else -3],
    "exit summary": lambda texts: re.split(r"  +", line_of(summary(scene_and_log(texts)[1]), "dynatree "))[1],
}


@pytest.mark.parametrize("texts", [1, COUNT])
def test_all_places_show_the_same_figure(texts: int) -> None:
    shown = {place: FIGURE.findall(read(texts))[0] for place, read in PLACES.items()}
    assert len(set(shown.values())) == 1, shown


def test_it_is_pooled_over_the_texts_and_not_that_of_the_last_one() -> None:
    scene, _ = scene_and_log(COUNT)
    own, pooled = scene.state.figures()["dynatree"], scene.state.pooled()["dynatree"]
    assert own.speedup is not None
    assert pooled.speedup is not None
    assert round(own.speedup, 2) != round(pooled.speedup, 2)


def test_texts_that_were_decoded_again_count_in_the_totals_of_the_prompts_too() -> None:
    first, *events = text(1)
    assert isinstance(first, Run)
    again: list[Record] = [Prompt(1, COUNT), structs.replace(first, started_at="later"), *events]
    scene = Scene(reduce(apply, [*session(COUNT), *again], RunState()))
    totals, entry = lines(prompts(scene, 116, 12)), scene.state.pooled()["dynatree"]
    assert f"{COUNT + 1} texts under these settings; x plain {interval(entry)}" in "\n".join(totals)


def test_its_interval_stands_beside_it_where_there_is_room() -> None:
    scene, log = scene_and_log(COUNT)
    exact = interval(scene.state.pooled()["dynatree"])
    assert re.fullmatch(r"\(\d\.\d\d to \d\.\d\d\)", exact)
    pages = [lines(status(scene, 200, 1)), lines(cards(scene, 200, 3)), lines(prompts(scene, 116, 12))]
    pages += [lines(race(scene, 160, 9)), said(COUNT).splitlines(), summary(log), result(scene.state.race)]
    assert all(exact in "\n".join(page) for page in pages)
    assert f"{exact} plain decoding" in lines(cards(scene, 300, 3))[1]
    assert times_plain(scene.state.pooled()["dynatree"])[0].endswith(f"{exact} the speed of plain decoding")


def test_the_tile_shows_no_rate_before_the_method_is_warm() -> None:
    begun = state_of([run(), tree_round(0), plain_round("ar", 0)])
    assert lines(cards(Scene(begun), 200, 3))[1].strip("▏ ").startswith("warming up")


def test_a_narrow_table_of_the_result_leaves_out_its_last_columns() -> None:
    state = reduce(apply, session(COUNT), RunState())
    for width in range(30, 100):
        rows = result(state.race, width)
        assert max(map(len, rows)) <= width
        assert rows[0].split()[:2] == ["method", "x"]
    assert result(state.race)[0].endswith("texts")
