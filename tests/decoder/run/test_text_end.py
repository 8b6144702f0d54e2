"""At the end of a text, drafted, accepted and committed tokens are cut alike, and figures stay consistent."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from decoder import RunConfig, decode, load_pair
from decoder.analysis.metrics import Tally, by_depth, fold
from decoder.events import LENGTH, Draws, End, Event, Figures, Round, Run, Summary, Verification, encode
from decoder.run.text_end import within
from decoder.tree import depths
from dynatui.record.reader import read_events
from tests.decoder.makers import TinyModels, methods_of
from tests.decoder.rounds import a_round
from tests.tiny import SENTENCES

TRACES = Path(__file__).parents[2] / "traces"
PROMPT = SENTENCES[2] + " " + SENTENCES[2]


@st.composite
def rounds(draw: st.DrawFn) -> tuple[Round, int]:
    """A verified round with all fields of a tree, and the number of tokens left in its text."""
    parents = [-1, *(draw(st.integers(max(0, node - 3), node - 1)) for node in range(1, draw(st.integers(1, 24))))]
    path, above = list[int](), 0
    for _ in range(draw(st.integers(0, len(parents)))):
        children = [node for node, parent in enumerate(parents) if parent == above and node]
        if not children:
            break
        above = draw(st.sampled_from(children))
        path.append(above)
    method = draw(st.sampled_from(["dynatree", "alg1"]))
    if method == "alg1" and (path or draw(st.booleans())):
        path = [0, *path]
    left = draw(st.integers(1, 26))
    ended = draw(st.integers(1, len(path) + 1))
    nodes = len(parents)
    event = a_round(
        method,
        parents,
        tokens=list(range(100, 100 + nodes)),
        logprobs=[-float(node) for node in range(nodes)],
        draft_logprobs=[-float(node) - 1 for node in range(nodes)],
        pieces=[str(node) for node in range(nodes)],
        drawn=[1] * nodes,
        origins=["root" if node == 0 else "draft" for node in range(nodes)],
        accepted=path,
        committed=[*(100 + node for node in path), 7][: min(left, ended)],
        limited_by="d0",
        verification=Verification(
            surprise=0.0,
            surprise_variance=1.0,
            top1=0.0,
            top1_variance=1.0,
            predicted_tokens=math.fsum([0.5**depth for depth in depths(parents)]),
            reach=[0.5**depth for depth in depths(parents)],
            path=[Draws(count=1, accepted=True, l1=0.1, acceptance=0.5, bound=0.6) for _ in path],
        ),
    )
    return event, left


@given(rounds())
def test_every_committed_token_but_the_last_is_an_accepted_node(case: tuple[Round, int]) -> None:
    told = within(*case)
    assert [told.tokens[node] for node in told.accepted] == told.committed[:-1]
    assert told.committed == case[0].committed


@given(rounds())
def test_of_the_tree_every_node_stays_that_the_text_has_room_for_and_no_other(case: tuple[Round, int]) -> None:
    event, left = case
    told = within(event, left)
    first = event.method == "alg1"
    levels = {token: depth + first for token, depth in zip(event.tokens, depths(event.parents), strict=True)}
    assert told.tokens == [token for token in event.tokens if levels[token] < left or token == event.tokens[0]]
    by_token = {token: node for node, token in enumerate(event.tokens)}
    for node, token in enumerate(told.tokens):
        before = by_token[token]
        above, above_before = told.parents[node], event.parents[before]
        assert (above, above_before) == (-1, -1) or told.tokens[above] == event.tokens[above_before]
        for name in ("logprobs", "draft_logprobs", "pieces", "drawn", "origins"):
            assert getattr(told, name)[node] == getattr(event, name)[before]
    beyond = told.tokens != event.tokens or any(levels[event.tokens[node]] >= left for node in event.accepted)
    assert told.limited_by == (LENGTH if beyond else "d0")


@given(rounds())
def test_what_is_cut_is_cut_once(case: tuple[Round, int]) -> None:
    told = within(*case)
    assert within(told, case[1]) == told


@given(rounds())
def test_a_tree_is_expected_to_bring_what_its_nodes_are_worth(case: tuple[Round, int]) -> None:
    told = within(*case)
    found = told.verification
    assert found is not None
    assert len(found.reach) == len(told.tokens)
    assert found.predicted_tokens in (None, pytest.approx(math.fsum(found.reach)))
    assert len(found.path) <= max(len(told.accepted), case[1] - 1)


def assert_identities(figures: Figures, tally: Tally) -> None:
    """Asserts the identities that hold for every method's figures in a run with visible drafts."""
    assert figures.rounds == tally.rounds
    if figures.drafted is None or figures.accepted is None or not figures.rounds:
        return
    assert figures.committed == figures.accepted + figures.rounds == len(tally.tokens)
    assert figures.tokens_per_round is not None
    assert figures.path_length is not None
    assert figures.tokens_per_round - figures.path_length == pytest.approx(1.0)
    assert 0 <= figures.accepted <= figures.drafted
    assert figures.drafted == sum(drafted for drafted, _ in tally.by_depth)
    assert figures.accepted == sum(used for _, used in tally.by_depth)
    assert figures.drafted == 0 or figures.acceptance_rate == pytest.approx(figures.accepted / figures.drafted)
    assert 0 <= (figures.depth_acceptance or 0.0) <= 1


SPEEDUP = ("speedup", "speedup_low", "speedup_high", "speedup_reason")


def assert_consistent(events: list[Event]) -> None:
    """Asserts the identities in each round and in the summary, whose figures must follow from the rounds."""
    for event in events:
        if isinstance(event, Round) and event.draft_forwards is not None:
            assert len(event.committed) == len(event.accepted) + 1
            assert sum(used for _, used in by_depth(event)) == len(event.accepted)
    starts = [place for place, event in enumerate(events) if isinstance(event, Run)]
    for start, end in zip(starts, [*starts[1:], len(events)], strict=True):
        race = fold(events[start:end])
        for name, figures in race.figures().items():
            assert_identities(figures, race.tallies[name])
        for summary in events[start:end]:
            if isinstance(summary, Summary):
                for name, figures in summary.methods.items():
                    assert_identities(figures, race.tallies[name])
                    judged = {"near_tie": figures.near_tie, "first_difference_gap": figures.first_difference_gap}
                    if figures.speedup is not None and figures.speedup_low is None:  # of an older schema
                        judged |= {name: getattr(figures, name) for name in SPEEDUP}
                    assert structs.asdict(figures) == pytest.approx(
                        structs.asdict(race.figures()[name]) | judged | {"peak_bytes": figures.peak_bytes}
                    )


@pytest.mark.parametrize("trace", sorted(TRACES.glob("*.jsonl")), ids=lambda path: path.stem)
def test_the_identities_hold_in_recordings_of_every_schema(trace: Path) -> None:
    assert_consistent(read_events(trace))


@pytest.mark.parametrize(("family", "lengths", "temperature"), [("neox", (1, 3, 12), 0.8), ("llama", (2, 5), 0.0)])
def test_the_identities_hold_in_runs_of_every_length(
    tiny_models: TinyModels, tmp_path: Path, family: str, lengths: tuple[int, ...], temperature: float
) -> None:
    engine = tiny_models.loaded(tiny_models.pair(family), "float32")
    path = tmp_path / "run.jsonl"
    for length in lengths:
        config = RunConfig(methods_of(family), length, seed=length, temperature=temperature)
        events = list(decode(engine, PROMPT, config))
        assert_consistent(events)
        path.write_bytes(b"".join(map(encode, events)))
        assert read_events(path)[1:] == events[1:]


@pytest.mark.parametrize("length", [1, 2, 7, 32, 48])
def test_the_identities_hold_where_the_text_itself_is_the_draft(tiny_models: TinyModels, length: int) -> None:
    engine = load_pair(str(tiny_models.pair("neox").target), None, device="cpu", dtype="float32")
    for temperature in (0.0, 0.7):
        config = RunConfig(("dynatree", "auto", "ar"), length, temperature=temperature)
        assert_consistent(list(decode(engine, PROMPT, config)))


@pytest.mark.parametrize("place", [3, 9, 16])
def test_the_identities_hold_where_end_of_text_comes_first(tiny_models: TinyModels, place: int) -> None:
    pair = tiny_models.pair("neox")
    end = tiny_models.generate(pair, "float32", PROMPT, 40)[place]
    engine = tiny_models.loaded(tiny_models.ending("neox", eos_token_id=end), "float32")
    events = list(decode(engine, PROMPT, RunConfig(methods_of("neox"), 40)))
    assert all(event.reason == "eos" for event in events if isinstance(event, End))
    assert_consistent(events)
