"""Laws that the events of every race keep, whatever its pair, methods, verifier and sampling are."""

from collections.abc import Sequence

import pytest
from msgspec import structs

from decoder.analysis.metrics import Tally, by_depth, fold
from decoder.engine import Engine
from decoder.events import End, Event, Figures, Round, Run, Start, Summary, decode_line, encode
from decoder.methods import root_is_drafted
from decoder.models.tokenizer import decoded
from tests.decoder.makers import Played

WITH_KNOBS = frozenset({"dynatree", "auto", "alg1"})
SPEEDUP = ("speedup", "speedup_low", "speedup_high", "speedup_reason")


def assert_lawful(race: Played, engine: Engine) -> None:
    """Asserts all laws of the events of a whole race."""
    run = race.events[0]
    assert isinstance(run, Run)
    assert isinstance(race.events[-1], Summary)
    assert not any(isinstance(event, Run | Summary) for event in race.events[1:-1])
    assert [decode_line(encode(event), number) for number, event in enumerate(race.events, 1)] == race.events
    assert_consistent(race.events)
    assert_the_least_decode_time_goes_next(race.events)
    others = [name for name in run.methods if name != "hf"]
    begun = [event for event in race.events if isinstance(event, Start | Round) and event.method in others]
    expected = [(kind, name) for name in others for kind in (Start, Round)]
    assert [(type(event), event.method) for event in begun[: len(expected)]] == expected
    for method in run.methods:
        assert_lane(race, run, method)
        told = decoded(engine.pair.tokenizer, run.prompt_tokens) + "".join(each.text for each in race.rounds(method))
        assert told == decoded(engine.pair.tokenizer, run.prompt_tokens + race.tokens(method)), method
        assert race.figures(method).decode_s == race.rounds(method)[-1].t


def assert_lane(race: Played, run: Run, method: str) -> None:
    """Asserts the laws of one method's events."""
    own = [event for event in race.events if getattr(event, "method", None) == method]
    start, *rounds, end = (event for event in own if isinstance(event, Start | Round | End))
    assert (type(start), {type(event) for event in rounds}, type(end)) == (Start, {Round}, End)
    text, before = list(run.prompt_tokens), Clocks(-1.0 if method == "hf" else 0.0, 0.0)
    for number, event in enumerate(race.rounds(method)):
        assert (event.round, event.position) == (number, len(text) - len(run.prompt_tokens))
        assert before.t < event.t <= event.wall_s
        assert before.wall_s < event.wall_s
        assert (event.knobs is not None) == (method in WITH_KNOBS)
        assert (event.limited_by is None) == (method in ("ar", "hf"))
        assert_tree(event, text[-1])
        if method != "hf":
            assert event.target_forwards == 1 + root_is_drafted(method)
            parts = (event.draft_s, event.verify_s, event.commit_s)
            assert all(part is not None and part >= 0 for part in parts)
            assert sum(part or 0.0 for part in parts) <= event.t - before.t + 1e-9
        before = Clocks(event.t, event.wall_s)
        text += event.committed
    if method == "hf":  # whose first burst is its prefill
        assert race.rounds(method)[0].t == 0 < (race.figures(method).prefill_s or 0)
        assert race.figures(method).acceptance_rate is None
    whole = len(text) == len(run.prompt_tokens) + run.max_new_tokens
    assert isinstance(end, End)
    assert end.reason in (("length", "eos") if whole else ("eos",))


class Clocks:
    def __init__(self, t: float, wall_s: float) -> None:
        self.t, self.wall_s = t, wall_s


def assert_tree(event: Round, latest: int) -> None:
    """Asserts the laws of one round's tree, whose root is the latest token of the text unless it is drafted."""
    drafted_root = root_is_drafted(event.method)
    if not drafted_root:
        assert (event.tokens[0], event.parents[0], event.logprobs[0]) == (latest, -1, 0.0)
    if event.method in ("ar", "hf"):
        assert (len(event.tokens), event.accepted, event.draft_forwards or 0) == (1, [], 0)
    assert event.parents == sorted(event.parents), "nodes are numbered level by level"
    children = list(zip(event.parents, event.tokens, strict=True))
    assert len(set(children)) == len(children), "no token stands twice after a node"
    path = event.accepted if drafted_root else [0, *event.accepted]
    assert [event.parents[node] for node in path] == [-1, *path][: len(path)]
    if event.method != "hf":
        assert [event.tokens[node] for node in event.accepted] == event.committed[:-1]


def assert_the_least_decode_time_goes_next(events: Sequence[Event]) -> None:
    clocks = {event.method: 0.0 for event in events if isinstance(event, Start)}
    stalled = dict.fromkeys(clocks, 0.0)
    for event in events:
        if isinstance(event, Round):
            assert clocks[event.method] == min(clocks.values())
            stalled[event.method] += event.stalled_s or 0.0
            clocks[event.method] = event.t - stalled[event.method]
        if isinstance(event, End):
            del clocks[event.method]


def assert_consistent(events: Sequence[Event]) -> None:
    """Asserts that the figures of a recording follow from its rounds, and the identities that hold for them."""
    for event in events:
        if isinstance(event, Round) and event.draft_forwards is not None:
            assert len(event.committed) == len(event.accepted) + 1
            assert sum(used for _, used in by_depth(event)) == len(event.accepted)
    starts = [place for place, event in enumerate(events) if isinstance(event, Run)]
    for start, end in zip(starts, [*starts[1:], len(events)], strict=True):
        race = fold(list(events[start:end]))
        folded = race.figures()
        for name, figures in folded.items():
            assert_identities(figures, race.tallies[name])
        for summary in events[start:end]:
            if isinstance(summary, Summary):
                for name, figures in summary.methods.items():
                    assert_identities(figures, race.tallies[name])
                    # The models alone judge near ties.
                    judged = {"near_tie": figures.near_tie, "first_difference_gap": figures.first_difference_gap}
                    if figures.speedup is not None and figures.speedup_low is None:  # of an older schema
                        judged |= {name: getattr(figures, name) for name in SPEEDUP}
                    assert structs.asdict(figures) == pytest.approx(
                        structs.asdict(folded[name]) | judged | {"peak_bytes": figures.peak_bytes}
                    )


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
