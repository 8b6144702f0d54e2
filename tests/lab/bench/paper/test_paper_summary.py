"""From blocks to rows: the paper's means, and the lanes that have a speed."""

from collections.abc import Mapping, Sequence
from statistics import pstdev
from typing import Any

import pytest
from msgspec import structs

from decoder.events import Figures
from dynatui.lab.bench.paper.records import PaperExperiment, PaperLane
from dynatui.lab.bench.paper.report import COUNTS, POOLED, TIMES, PaperReport, report
from tests.lab.bench.paper.reports import block, header, row_of

LANES = (
    PaperLane(name="ar", method="ar", family="ar", parameters={}),
    PaperLane(name="linear K=4", method="linear", family="linear", parameters={"k": 4}),
    PaperLane(name="phase 2", method="dynatree", family="dynatree", parameters={"d0": 5.0, "d_max": 8, "rho_deep": 1}),
    PaperLane(name="streaming", method="streaming", family="streaming", parameters={"k": 4}, own_text=True),
)


def figures(tokens: int, rounds: int, seconds: float, **changes: Any) -> Figures:
    given: dict[str, Any] = {
        "rounds": rounds,
        "committed": tokens,
        "drafted": 4 * rounds,
        "accepted": tokens - rounds,
        "target_forwards": rounds,
        "draft_forwards": 3 * rounds,
        "tokens_per_round": tokens / rounds,
        "tokens_per_second": tokens / seconds,
        "tpot_s": seconds / tokens,
        "ttft_s": 0.5,
        "decode_s": seconds,
        "draft_s": seconds / 2,
        "verify_s": seconds / 4,
        "identical_to_ar": True,
        "peak_bytes": 3_000_000,
    }
    return Figures(**given | changes)


def reported(texts: Mapping[str, Sequence[Figures]], at_4: Mapping[str, Any] | None = None) -> PaperReport:
    """A report of each lane's figures by prompt, at length 8, and at length 4 with the changes `at_4`, if given."""
    lengths = (8,) if at_4 is None else (4, 8)
    blocks = [
        block(
            prompt,
            {
                name: [structs.replace(found[prompt], **at_4 or {}), found[prompt]][-len(lengths) :]
                for name, found in texts.items()
            },
        )
        for prompt in range(len(texts["ar"]))
    ]
    names = tuple(lane.name for lane in LANES)
    experiment = PaperExperiment(name="main", data_set="wikitext", most=8, prompts=2, lanes=names, lengths=lengths)
    return report(header(lanes=LANES, experiments=(experiment,)), blocks)


PLAIN = [figures(8, 8, 8.0, speedup=1.0), figures(8, 8, 4.0, speedup=1.0)]
FAST = [figures(8, 2, 2.0, speedup=4.0), figures(8, 4, 2.0, speedup=2.0)]


@pytest.fixture(scope="module")
def linear() -> dict[str, Any]:
    """Figures of a chain beside plain decoding."""
    return {**row_of(reported({"ar": PLAIN, "linear K=4": FAST}), "linear K=4").stats}


def test_every_figure_of_the_report_is_summed_up() -> None:
    more = {"path_length": 3.0, "acceptance_rate": 0.5, "depth_acceptance": 0.5, "distinct_8grams": 1.0}
    every = [figures(8, 2, 2.0, speedup=4.0, **more)]
    assert row_of(reported({"ar": PLAIN[:1], "phase 2": every}), "phase 2").stats.keys() == {*TIMES, *COUNTS, *POOLED}


def test_means_are_over_prompts_of_quotients_except_for_l_bar(linear: dict[str, Any]) -> None:
    found: Any = row_of(reported({"ar": PLAIN}), "ar").stats["tokens_per_second"]
    assert found.value == pytest.approx(1.5)
    assert found.std == pytest.approx(pstdev([1.0, 2.0]))
    assert 1.0 <= found.low < found.value < found.high <= 2.0
    assert linear["speedup"].value == pytest.approx(3.0)
    assert linear["tokens_per_round"].value == pytest.approx(16 / 6)
    assert linear["paper_path_length"].value == pytest.approx(3.0)
    assert linear["tokens_per_round"].std == linear["paper_path_length"].std == pytest.approx(1.0)


def test_the_paper_s_acceptance_divides_by_k_or_by_the_base_depth_and_two() -> None:
    found = reported({"ar": PLAIN, "linear K=4": FAST, "phase 2": FAST})
    assert row_of(found, "linear K=4").stats["paper_acceptance"].value == pytest.approx((8 / 8 + 8 / 16) / 2)
    assert row_of(found, "phase 2").stats["paper_acceptance"].value == pytest.approx((8 / 14 + 8 / 28) / 2)
    assert "paper_acceptance" not in row_of(found, "ar").stats


def test_shares_of_a_round_and_units(linear: dict[str, Any]) -> None:
    means = {key: found.value for key, found in linear.items()}
    assert means["nodes_per_round"] == means["draft_forwards_per_round"] + 1 == 4
    assert means["round_ms"] == pytest.approx((1000 + 500) / 2)
    assert means["draft_ms"] == pytest.approx(means["round_ms"] / 2)
    assert (means["ttft_ms"], means["tpot_ms"], means["peak_mb"], means["kv_mb"]) == (500, 250, 3, 230)


@pytest.mark.parametrize(
    ("lane", "changes", "prompts", "same"),
    [
        ("linear K=4", {"committed": 7}, [1], 1),
        ("linear K=4", {"identical_to_ar": False}, [1], 1),
        ("linear K=4", {"identical_to_ar": False}, [0, 1], 0),
        ("streaming", {"identical_to_ar": None}, [0, 1], 2),
    ],
    ids=["ended early", "one differs", "all differ", "differ by design"],
)
def test_only_texts_of_ar_s_length_that_do_not_differ_wrongly_have_a_speed(
    lane: str, changes: dict[str, Any], prompts: list[int], same: int
) -> None:
    other = [structs.replace(each, **changes) if at in prompts else each for at, each in enumerate(FAST)]
    found = row_of(reported({"ar": PLAIN, lane: other}), lane)
    assert (found.prompts, found.same) == (2, same)
    assert (not found.stats.keys() & {*TIMES}) == (same == 0)
    assert found.stats.keys() >= {"rounds", "tokens_per_round"}
    if same == 1:
        assert (found.stats["tokens_per_second"].value, found.stats["tokens_per_second"].low) == (4.0, None)


def test_memory_is_that_of_the_longest_text() -> None:
    found = reported({"ar": PLAIN}, at_4={"peak_bytes": None})
    assert not row_of(found, "ar", length=4).stats.keys() & {"peak_mb", "kv_mb"}
    assert row_of(found, "ar", length=8).stats.keys() >= {"peak_mb", "kv_mb"}


def test_repeats_of_a_prompt_count_as_one_and_a_lane_that_was_left_out_has_no_row() -> None:
    once = reported({"ar": PLAIN})
    repeated = report(once.header, [*once.blocks, structs.replace(once.blocks[0], repeat=1)])
    assert {row.lane.name for row in repeated.rows} == {"ar"}
    assert row_of(repeated, "ar").prompts == 2
    assert row_of(repeated, "ar").stats["tokens_per_second"].value == pytest.approx(1.5)


def test_disturbed_turns_are_counted_what_is_missing_is_told_and_the_load_is_that_of_the_last_block() -> None:
    whole = reported({"ar": PLAIN})
    assert (whole.complete, whole.disturbed, whole.load_after) == (True, 0, 0.7)
    waited = [structs.replace(turn, waited=0.1) for turn in whole.blocks[1].turns]
    part = report(whole.header, [structs.replace(whole.blocks[1], load=2.5, turns=tuple(waited))])
    assert (part.complete, part.disturbed, part.load_after) == (False, 1, 2.5)
    assert report(whole.header, []).load_after is None
