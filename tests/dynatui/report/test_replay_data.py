"""The data for the scripts of a replay page agree with the state of the run."""

from collections.abc import Sequence
from functools import reduce
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from decoder.events import Event, Knob
from decoder.methods.fixed import Fixed
from dynatui.record.reader import Runs
from dynatui.report.page import asset, written
from dynatui.report.replay import KEYS, MethodData, ReplayData, label_of, replay_data, replay_page
from dynatui.state.run_state import RunState, apply
from tests.dynatui.scripted_runs import plain_round, run, story, tree_round

TRACES = Path(__file__).parents[2] / "traces"


def data_of(*runs: Sequence[Event]) -> ReplayData:
    return replay_data(reduce(apply, events, RunState()) for events in runs)


def lane_of(events: Sequence[Event], number: int = 0) -> tuple[MethodData, list[str]]:
    found = data_of(events)
    return found.runs[0].lanes[number], found.texts


def test_a_round_is_told_by_its_tree_its_tokens_and_where_it_ended() -> None:
    lane, texts = lane_of([run(), tree_round(0), tree_round(1)])
    (tree, _) = lane.trees
    assert tree.parents == [-1, 0, 0, 1, 1, 3]
    assert tree.accepted == [1, 3]
    assert tree.chances == [10000, 6000, 3000, 5000, 2500, 1000]
    assert [texts[number] for number in tree.pieces] == [" upon", " a", " the", "t", " while", "\u240a"]
    assert [[texts[number] for number in numbers] for numbers in lane.texts] == [[" a", "t", " a time"]] * 2
    assert len(texts) == len(set(texts))
    assert (lane.kept, lane.ends, lane.t, lane.ms[0]) == ([2, 2], [3, 6], [0.02, 0.04], (4.0, 12.0, 1.0))


def test_what_was_looked_up_is_told_from_what_a_model_has_drafted() -> None:
    mixed = structs.replace(tree_round(0), origins=["root", "draft", "lookup", "lookup", "draft", "draft"])
    lane, _ = lane_of([run(), mixed, tree_round(1)])
    assert [tree.looked_up for tree in lane.trees] == [[2, 3], []]
    lane, _ = lane_of([structs.replace(run(), draft="lookup"), tree_round(0)])
    assert [tree.looked_up for tree in lane.trees] == [[1, 2, 3, 4, 5]]


def test_a_method_that_does_not_tell_its_drafts_or_has_no_rounds_yet_has_none() -> None:
    burst = structs.replace(plain_round("hf", 0), draft_forwards=None, target_forwards=None)
    lane, _ = lane_of([run(["hf"]), burst])
    assert not lane.drafts
    lane, _ = lane_of([run()])
    assert (lane.t, lane.curves) == ([], {})


def test_a_label_is_one_short_line() -> None:
    assert label_of(3, "a\n\n\tb " * 100) == f"3: {('a b ' * 100)[:60]}…"


def test_curves_and_turns_of_the_user_are_those_of_the_screen() -> None:
    events: list[Event] = [run(), *(tree_round(number) for number in range(4))]
    state = reduce(apply, events, RunState())
    lane, _ = lane_of(events)
    assert set(lane.curves) == {"acceptance", "tokens", "depth", "d0", "tau_h"}
    assert lane.curves["tokens"].values == list(state.lane.curves.tokens.points)
    assert lane.curves["tokens"].at == [3, 6, 9, 12]
    turned = [
        Knob(method="dynatree", round=1, name="tau_h", old=0.9, new=0.8, source="user"),
        Knob(method="dynatree", round=1, name="d0", old=5, new=6, source="history"),
    ]
    lane, _ = lane_of([run(), tree_round(0), *turned, tree_round(1)])
    assert [(turn.at, turn.label) for turn in lane.turns] == [(3, "τh 0.9 → 0.8")]


def test_no_key_does_two_things_and_every_action_is_one_that_the_script_has() -> None:
    names = [name for key in KEYS for name in key.names]
    assert len(names) == len(set(names))
    actions = asset("replay.js").partition("const ACTIONS = {")[2].partition("};")[0]
    known = {line.split(":")[0].strip() for line in actions.splitlines() if ":" in line}
    assert {key.action for key in KEYS if key.action} == known


def test_the_guide_lists_the_keys() -> None:
    guide = (TRACES.parents[1] / "docs" / "recordings.md").read_text(encoding="utf-8")
    listed = guide.partition("<!-- keys: from dynatui/report/replay.py -->\n")[2].partition("<!-- end of keys -->")[0]
    assert listed.splitlines()[2:] == [f"| `{key.caps}` | {key.help} |" for key in KEYS]


@pytest.mark.parametrize("trace", sorted(TRACES.glob("*.jsonl")), ids=lambda path: path.stem)
def test_every_recording_in_use_becomes_a_page_smaller_than_itself(trace: Path) -> None:
    page = written(replay_page(trace.name, Runs(trace))).encode()
    assert len(page) < trace.stat().st_size + 60_000


def wide_round(method: str, number: int) -> Event:
    return structs.replace(
        tree_round(number),
        method=method,
        tokens=[100 * number + node for node in range(63)],
        parents=[-1, *((node - 1) // 2 for node in range(1, 63))],
        logprobs=[0.0, *(-0.01 * node - 0.0001 * number for node in range(1, 63))],
        pieces=[f" piece{number}-{node}" for node in range(63)],
        committed=[100 * number + 1, 100 * number + 3, 7],
    )


def test_256_tokens_of_five_methods_with_full_trees_stay_below_two_megabytes() -> None:
    assert Fixed().n_max == 256
    names = ["a", "b", "c", "d", "e"]
    wide = [wide_round(name, number) for name in names for number in range(86)]
    assert len(written(replay_page("run.jsonl", [[run(names), *wide]])).encode()) < 2_000_000


def test_data_is_json_that_says_no_number_that_json_has_not() -> None:
    found = msgspec.json.decode(msgspec.json.encode(data_of(story())))
    assert found["keys"][0]["caps"] == "←"
