"""Every figure of hand-written rounds, compared with values computed by hand."""

import time
from itertools import accumulate
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoder.analysis.metrics import (
    FIGURES,
    RunFold,
    Tally,
    by_depth,
    differs_by_design,
    first_difference,
    fold,
    tally_round,
    together,
    total,
)
from decoder.analysis.metrics import figures as of_tally
from decoder.analysis.speedup import ENOUGH, WARM_UP_TOKENS
from decoder.analysis.stalls import LEVELS_S
from decoder.append_only import TokenLog
from decoder.events import End, Event, Figures, Knob, Run, Start
from decoder.methods import WHOLE
from decoder.tree import share_of_depth
from tests.decoder.rounds import a_round

RUN = Run(
    version="0", started_at="2026-01-01T00:00:00Z", target="t", draft="d", device="cpu", dtype="float32", seed=0,
    prompt="p", prompt_tokens=[1], max_new_tokens=8, methods={"dynatree": {}, "ar": {}},
)  # fmt: skip


def run_of(method: str) -> Run:
    return msgspec.structs.replace(RUN, methods={method: {}})


FIRST = a_round(tokens=[0, 5, 6, 7, 8], parents=[-1, 0, 0, 1, 3], accepted=[1, 3], committed=[5, 7, 9], t=1.0)
"""Four drafted nodes on three levels; two are accepted."""
SECOND = a_round(tokens=[9, 1, 2], parents=[-1, 0, 0], committed=[3], t=1.5, round=1, position=3, draft_forwards=1)
"""Two drafted nodes on one level; none is accepted."""
DYNATREE: list[Event] = [Start(method="dynatree", prefill_s=0.5), FIRST, SECOND]
AR: list[Event] = [
    Start(method="ar", prefill_s=0.25),
    *(
        a_round("ar", round=index, position=index, t=index + 1.0, committed=[token], draft_s=0.0, draft_forwards=0)
        for index, token in enumerate([5, 7, 9, 3, 4])
    ),
]


def figures(events: list[Event], method: str = "dynatree") -> Figures:
    return fold([RUN, *events]).figures()[method]


def test_figures_of_two_rounds() -> None:
    end = End(method="dynatree", reason="stopped", peak_bytes=77)
    counts = {"rounds": 2, "drafted": 6, "accepted": 2, "committed": 4, "target_forwards": 2, "draft_forwards": 3}
    shares = {"tokens_per_round": 4 / 2, "path_length": 2 / 2, "acceptance_rate": 2 / 6, "depth_acceptance": 1 / 3}
    times = {"decode_s": 1.5, "tokens_per_second": 4 / 1.5, "prefill_s": 0.5, "ttft_s": 1.5, "tpot_s": 1.5 / 4}
    parts = {"draft_s": 0.5, "verify_s": 1.0, "commit_s": 0.25, "host_s": 1.5 - 0.5 - 1.0 - 0.25}
    speedup = {"speedup": None, "speedup_low": None, "speedup_high": None, "speedup_reason": "too few rounds"}
    stalls = {"stalled_rounds": 0, "left_out_rounds": 0, "left_out_s": 0.0}
    text = {"identical_to_ar": True, "first_difference": None, "near_tie": None, "first_difference_gap": None}
    others = {"peak_bytes": 77, "distinct_8grams": None, "joules_per_token": None}
    found = msgspec.structs.asdict(figures([*DYNATREE, end, *AR]))
    assert found == pytest.approx(counts | shares | times | parts | speedup | stalls | text | others)


def test_before_the_first_round_nothing_is_known() -> None:
    found = figures([])
    assert (found.rounds, found.committed, found.decode_s) == (0, 0, 0)
    rates = ("tokens_per_round", "acceptance_rate", "tokens_per_second", "prefill_s", "ttft_s", "tpot_s")
    assert [getattr(found, key) for key in rates] == [None] * 6


def test_a_new_run_begins_from_nothing_and_neither_knobs_nor_a_reader_change_figures() -> None:
    race = fold([RUN, *DYNATREE])
    race.figures().clear()
    assert race.figures()["dynatree"].rounds == 2
    assert race == fold([RUN, *DYNATREE])
    assert fold([RUN, *DYNATREE, RUN]) == RunFold(RUN, fold([RUN]).tallies)
    assert figures([*DYNATREE, RUN, SECOND]).rounds == 1
    knob = Knob(method="dynatree", round=1, name="tau_h", old=0.9, new=0.8, source="user")
    assert figures([*DYNATREE, knob]) == figures(DYNATREE)


# Comparison with ar


def test_without_ar_nothing_is_compared_and_no_text_with_one_that_it_cannot_be_compared_with() -> None:
    found = fold([run_of("dynatree"), *DYNATREE]).figures()["dynatree"]
    assert (found.speedup, found.identical_to_ar, found.first_difference, found.near_tie) == (None, None, None, None)
    ar = fold([*DYNATREE, *AR]).tallies["ar"]
    found = of_tally(msgspec.structs.replace(ar, log=TokenLog().plus([99])), ar, same_until=None)
    assert (found.identical_to_ar, found.first_difference, found.speedup) == (None, None, 1)


@pytest.mark.parametrize(("same_until", "identical"), [(0, None), (2, None), (3, False), (WHOLE, False)])
def test_a_difference_counts_only_among_the_tokens_that_must_be_ars(same_until: int, identical: bool | None) -> None:  # noqa: FBT001 - a parameter of the test
    other = [msgspec.structs.replace(event, committed=[8]) if event is AR[3] else event for event in AR]
    tallies = fold([*DYNATREE, *other]).tallies
    found = of_tally(tallies["dynatree"], tallies["ar"], same_until=same_until)
    assert (found.identical_to_ar, found.first_difference) == (identical, 2)
    assert differs_by_design(found) == (identical is None)


def test_the_table_of_figures_names_each_figure_once_and_in_order() -> None:
    assert [figure.key for figure in FIGURES] == [item.name for item in msgspec.structs.fields(Figures)]
    told = {figure.key: figure.formula for figure in FIGURES}
    assert f"fewer than {WARM_UP_TOKENS} tokens" in told["speedup_reason"]
    assert f"before {ENOUGH} turns" in told["speedup_reason"]
    assert f"at least {1000 * LEVELS_S[0]:.0f} ms" in told["stalled_rounds"]


@pytest.mark.parametrize(
    ("tokens", "reference", "index"), [([1, 2, 3], [1, 2], None), ([], [1], None), ([1, 5, 6], [1, 2, 3], 1)]
)
def test_the_first_common_difference_counts(tokens: list[int], reference: list[int], index: int | None) -> None:
    assert first_difference(tokens, reference) == index


# Drafts


def test_the_root_of_algorithm_1_is_a_drafted_node_and_a_level() -> None:
    event = a_round("alg1", tokens=[5, 6, 7], parents=[-1, 0, 0], accepted=[0], committed=[5, 1])
    found = fold([run_of("alg1"), event]).figures()["alg1"]
    assert (found.drafted, found.accepted, found.acceptance_rate, found.depth_acceptance) == (3, 1, 1 / 3, 1 / 2)


def test_a_round_that_drafted_nothing_has_no_depth_and_a_method_that_never_drafts_no_acceptance() -> None:
    assert figures([a_round(), FIRST]).depth_acceptance == pytest.approx((0 + 2 / 3) / 2)
    found = figures([*DYNATREE, *AR], "ar")
    assert (found.drafted, found.acceptance_rate, found.depth_acceptance) == (0, None, None)
    assert (found.tokens_per_round, found.path_length) == (1, 0)


def test_what_a_method_cannot_know_stays_unknown() -> None:
    told = ("draft_s", "verify_s", "commit_s", "target_forwards", "draft_forwards")
    derived = ("drafted", "accepted", "path_length", "acceptance_rate", "depth_acceptance", "host_s")
    unknown: dict[str, Any] = dict.fromkeys(told)
    event = a_round("hf", committed=[1, 2], **unknown)
    found = fold([run_of("hf"), event]).figures()["hf"]
    assert [getattr(found, key) for key in (*told, *derived)] == [None] * 11
    assert (found.rounds, found.committed, found.tokens_per_round) == (1, 2, 2)


def test_the_burst_that_came_with_the_prompt_is_no_part_of_the_rates() -> None:
    bursts = [a_round("hf", committed=[1, 2, 3], t=0.0), a_round("hf", committed=[4, 5], t=1.0, round=1, position=3)]
    found = fold([run_of("hf"), Start(method="hf", prefill_s=2.0), *bursts]).figures()["hf"]
    assert (found.committed, found.tokens_per_second, found.tpot_s, found.ttft_s) == (5, 2.0, 0.5, 2.0)


def test_drafted_and_accepted_nodes_are_counted_depth_by_depth() -> None:
    assert by_depth(FIRST) == ((2, 1), (1, 1), (1, 0))
    assert by_depth(SECOND) == ((2, 0),)
    assert by_depth(a_round("ar")) == ()
    # An untrusted recording may claim an accepted root, which nobody drafted.
    assert by_depth(msgspec.structs.replace(SECOND, accepted=[0])) == ((2, 0),)


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(data=st.data(), method=st.sampled_from(["dynatree", "alg1"]))
def test_depths_agree_with_the_totals(data: st.DataObject, method: str) -> None:
    """Random trees with random accepted paths."""
    parents = [-1, *(data.draw(st.integers(0, node)) for node in range(data.draw(st.integers(0, 12))))]
    node, path = data.draw(st.integers(0, len(parents) - 1)), list[int]()
    while node > 0 or (node == 0 and method == "alg1"):
        path.insert(0, node)
        node = parents[node]
    nodes = len(parents)
    event = a_round(method, tokens=[0] * nodes, parents=parents, accepted=path, committed=[0] * (len(path) + 1))
    run = msgspec.structs.replace(RUN, methods={method: {}})
    found, levels = fold([run, event]).figures()[method], by_depth(event)
    assert (found.drafted, found.accepted) == (sum(pair[0] for pair in levels), sum(pair[1] for pair in levels))
    assert [kept for _, kept in levels] == [1] * len(path) + [0] * (len(levels) - len(path))
    assert found.depth_acceptance == (share_of_depth(path, len(levels)) if found.drafted else None)


def test_long_runs_are_folded_quickly() -> None:
    """A fold many times slower than this limit would visibly delay the screen."""
    tree: dict[str, Any] = {"tokens": list(range(65)), "parents": [-1, *range(16), *[16] * 48], "accepted": [1, 2, 3]}
    rounds = [a_round(round=index, committed=[1, 2, 3, 4], t=index + 1.0, **tree) for index in range(2000)]
    events = [msgspec.structs.replace(event, method=name) for event in rounds for name in ("dynatree", "linear")]
    began = time.process_time()
    race = fold([RUN, *events])
    assert time.process_time() - began < 2
    assert race.tallies["dynatree"].by_depth[0] == (2000, 2000)


def test_distinct_8grams_look_across_rounds() -> None:
    bursts = [a_round(committed=[1, 2], t=float(index + 1), round=index, position=2 * index) for index in range(8)]
    assert figures(list(bursts)).distinct_8grams == 2 / 9


def a_text(method: str, took: list[float], lost: dict[int, float] | None = None, burst: int = 1) -> list[Event]:
    """Rounds of `burst` tokens with durations `took`; `lost` gives the seconds that a round lost to a stall."""
    stalled, ends = lost or {}, list(accumulate(took))
    return [
        a_round(method, round=index, position=index * burst, t=end, committed=[5] * burst, stalled_s=stalled.get(index))
        for index, end in enumerate(ends)
    ]


def test_a_stalled_round_is_left_out_of_rates_and_of_nothing_else() -> None:
    usual, long = [0.01] * 20, [*[0.01] * 9, 1.07, *[0.01] * 10]
    ar = a_text("ar", usual)
    before = fold([RUN, *a_text("dynatree", usual, burst=2), *ar]).figures()["dynatree"]
    found = fold([RUN, *a_text("dynatree", long, {9: 1.06}, burst=2), *ar]).figures()["dynatree"]
    assert [found.tokens_per_second, found.tpot_s] == pytest.approx([before.tokens_per_second, before.tpot_s])
    assert (found.stalled_rounds, found.left_out_rounds) == (1, 1)
    assert found.left_out_s == pytest.approx(1.07)
    assert found.decode_s == pytest.approx(1.26)
    assert (found.rounds, found.committed, found.tokens_per_round) == (20, 40, 2.0)
    assert found.host_s == pytest.approx(1.26 - 20 * (0.25 + 0.5 + 0.125))


def test_methods_of_a_run_leave_out_alike() -> None:
    """1 of 20 rounds of `ar` stalled and 10 of `dynatree`: leaving out only the round of `ar` would favour `ar`."""
    took, lost = [0.01, 0.05] * 10, dict.fromkeys(range(1, 20, 2), 0.04)
    race = fold([RUN, *a_text("ar", [*[0.01] * 19, 0.05], {19: 0.04}), *a_text("dynatree", took, lost)])
    found = race.figures()
    assert [found[name].left_out_rounds for name in ("dynatree", "ar")] == [0, 0]
    assert found["ar"].tokens_per_second == pytest.approx(20 / 0.24)
    alone = fold([RUN, *a_text("ar", [0.01] * 20), *a_text("dynatree", [1.0], {0: 0.9})]).figures()["dynatree"]
    assert (alone.tokens_per_second, alone.speedup, alone.tpot_s, alone.left_out_rounds) == (None, None, None, 1)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(
    took=st.lists(st.floats(0, 10), min_size=1, max_size=30),
    burst=st.integers(1, 4),
    plain=st.lists(st.floats(1e-3, 10), min_size=1, max_size=30),
)
def test_without_stalls_rates_are_of_all_to_the_last_digit(took: list[float], burst: int, plain: list[float]) -> None:
    events = [*a_text("dynatree", took, burst=burst), *a_text("ar", plain)]
    found = fold([RUN, *events]).figures()
    ends = list(accumulate(took))
    timed = sum(burst for before, end in zip([0.0, *ends], ends, strict=False) if end > before)
    rate = timed / ends[-1] if ends[-1] else None
    one = found["dynatree"]
    assert (one.tokens_per_second, one.tpot_s) == (rate, ends[-1] / timed if timed else None)
    assert (one.stalled_rounds, one.left_out_rounds, one.left_out_s) == (0, 0, 0)


def test_the_totals_of_texts_are_those_of_one_text_with_all_their_rounds() -> None:
    tree = a_round(tokens=[0, 1, 2], parents=[-1, 0, 1], accepted=[1], committed=[1, 5])
    stalled = a_round(t=2.0, stalled_s=1.5, draft_s=None)
    texts = [tally_round(Tally(prefill_s=0.5), tree), tally_round(Tally(prefill_s=0.25), stalled)]
    both = together(texts)
    assert (both.rounds, both.drafted, both.accepted, both.levels) == (2, 2, 1, 2)
    assert (both.decode_s, both.draft_s, both.verify_s, both.prefill_s) == (3.0, None, 1.0, 0.75)
    assert both.by_depth == ((1, 1), (1, 0))
    assert list(both.tokens) == [1, 5, 5]
    assert (both.stalls.rounds, both.rated.decode_s, both.rated.timed_tokens) == (1, 1.0, 2)


def test_figures_of_texts_are_ratios_of_sums_and_means_by_rounds_and_rated_time() -> None:
    one = Figures(
        rounds=10, committed=30, drafted=40, accepted=20, depth_acceptance=0.5, decode_s=0.1, tokens_per_second=300.0
    )
    other = Figures(
        rounds=30,
        committed=60,
        drafted=60,
        accepted=30,
        depth_acceptance=0.9,
        decode_s=1.3,
        left_out_s=1.0,
        tokens_per_second=200.0,
    )
    both = total([one, other])
    assert (both.rounds, both.committed, both.tokens_per_round, both.acceptance_rate) == (40, 90, 90 / 40, 0.5)
    assert both.depth_acceptance == pytest.approx((10 * 0.5 + 30 * 0.9) / 40)
    assert both.tokens_per_second == pytest.approx((30 + 60) / (0.1 + 0.3))
    assert (both.speedup, both.identical_to_ar, total([one]).tokens_per_second) == (None, None, 300.0)
    assert total([one, msgspec.structs.replace(other, drafted=None)]).acceptance_rate is None


@pytest.mark.parametrize(
    ("texts", "same"),
    [((True, True), True), ((True, False), False), ((None, True), True), ((None, None), None)],
)
def test_texts_are_those_of_plain_decoding_if_all_compared_ones_are(
    texts: tuple[bool | None, ...], *, same: bool | None
) -> None:
    entries = [Figures(identical_to_ar=each, first_difference=3 if each is False else None) for each in texts]
    assert total(entries).identical_to_ar is same
    by_design = total([*entries, Figures(first_difference=3)])
    assert differs_by_design(by_design) is (same is not False)
