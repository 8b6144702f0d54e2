"""From blocks to cells: the paper's means, and the lanes that have a speed."""

from collections.abc import Mapping
from statistics import pstdev
from typing import Any

import pytest
from msgspec import structs

from decoder.events import Figures
from dynatui.lab.bench.paper.records import LaneResult, PaperExperiment, PaperLane, PromptResult
from dynatui.lab.bench.paper.report import COUNTS, POOLED, TIMES, LaneSummary, PaperReport, report
from tests.lab.bench.paper.reports import cell_of, header

AR = PaperLane(name="ar", method="ar", family="ar", parameters={})
LINEAR = PaperLane(name="linear K=4", method="linear", family="linear", parameters={"k": 4})
TREE = PaperLane(
    name="phase 2", method="dynatree", family="dynatree", parameters={"d0": 5.0, "d_max": 8, "rho_deep": 0.5}
)
OWN = PaperLane(name="streaming", method="streaming", family="streaming", parameters={"k": 4}, own_text=True)


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


def reported(
    texts: Mapping[str, list[list[Figures]]], lanes: tuple[PaperLane, ...] = (AR, LINEAR, TREE, OWN)
) -> PaperReport:
    """A report of each lane's figures; `texts` has for each lane and prompt the figures at both lengths, or at one."""
    lengths = (4, 8)[-len(texts["ar"][0]) :]
    experiment = PaperExperiment(
        name="main", data_set="wikitext", most=8, prompts=2, lanes=tuple(lane.name for lane in lanes), lengths=lengths
    )
    blocks = [
        PromptResult(
            experiment=0,
            prompt=prompt,
            repeat=0,
            prompt_tokens=3,
            turns=tuple(
                LaneResult(lane=name, at=tuple(found[prompt]), kv_bytes=2_000_000, waited=0.1)
                for name, found in texts.items()
            ),
        )
        for prompt in range(len(texts["ar"]))
    ]
    return report(header(lanes=lanes, experiments=(experiment,)), blocks)


def cell(found: PaperReport, lane: str, length: int = 8) -> LaneSummary:
    return cell_of(found, lane, length=length)


PLAIN = [[figures(8, 8, 8.0, speedup=1.0)], [figures(8, 8, 4.0, speedup=1.0)]]
FAST = [[figures(8, 2, 2.0, speedup=4.0)], [figures(8, 4, 2.0, speedup=2.0)]]


@pytest.fixture(scope="module")
def linear() -> dict[str, Any]:
    """Figures of a chain beside plain decoding."""
    return cell(reported({"ar": PLAIN, "linear K=4": FAST}), "linear K=4").stats


def test_every_figure_of_the_report_is_summed_up() -> None:
    every = [[figures(8, 2, 2.0, speedup=4.0, path_length=3.0, acceptance_rate=0.5, depth_acceptance=0.5,
                      distinct_8grams=1.0)]]  # fmt: skip
    assert cell(reported({"ar": PLAIN[:1], "phase 2": every}), "phase 2").stats.keys() == {*TIMES, *COUNTS, *POOLED}


def test_means_are_over_prompts_of_quotients_except_for_l_bar(linear: dict[str, Any]) -> None:
    found: Any = cell(reported({"ar": PLAIN}), "ar").stats["tokens_per_second"]
    assert found.value == pytest.approx(1.5)
    assert found.std == pytest.approx(pstdev([1.0, 2.0]))
    assert 1.0 <= found.low < found.value < found.high <= 2.0
    assert linear["speedup"].value == pytest.approx(3.0)
    assert linear["tokens_per_round"].value == pytest.approx(16 / 6)
    assert linear["paper_path_length"].value == pytest.approx(3.0)
    assert linear["tokens_per_round"].std == linear["paper_path_length"].std == pytest.approx(1.0)


def test_the_paper_s_acceptance_divides_by_k_or_by_the_base_depth_and_two() -> None:
    found = reported({"ar": PLAIN, "linear K=4": FAST, "phase 2": FAST})
    assert cell(found, "linear K=4").stats["paper_acceptance"].value == pytest.approx((8 / 8 + 8 / 16) / 2)
    assert cell(found, "phase 2").stats["paper_acceptance"].value == pytest.approx((8 / 14 + 8 / 28) / 2)
    assert "paper_acceptance" not in cell(found, "ar").stats


def test_shares_of_a_round_and_units(linear: dict[str, Any]) -> None:
    means = {key: found.value for key, found in linear.items()}
    assert means["nodes_per_round"] == means["draft_forwards_per_round"] + 1 == 4
    assert means["round_ms"] == pytest.approx((1000 + 500) / 2)
    assert means["draft_ms"] == pytest.approx(means["round_ms"] / 2)
    assert (means["ttft_ms"], means["tpot_ms"], means["peak_mb"], means["kv_mb"]) == (500, 250, 3, 2)


def test_a_text_that_differs_has_counts_but_no_speed() -> None:
    other = [FAST[0], [structs.replace(FAST[1][0], identical_to_ar=False)]]
    found = cell(reported({"ar": PLAIN, "linear K=4": other}), "linear K=4")
    assert (found.prompts, found.same) == (2, 1)
    assert (found.stats["tokens_per_second"].value, found.stats["tokens_per_second"].low) == (4.0, None)
    assert found.stats["tokens_per_round"].value == pytest.approx(16 / 6)


@pytest.mark.parametrize(
    ("lane", "changes", "texts", "same"),
    [
        ("linear K=4", {"committed": 7}, [0, 1], 1),
        ("linear K=4", {"identical_to_ar": False}, [1, 1], 0),
        ("streaming", {"identical_to_ar": None}, [1, 1], 2),
    ],
    ids=["ended early", "all differ", "differ by design"],
)
def test_only_texts_of_ar_s_length_that_do_not_differ_wrongly_have_a_speed(
    lane: str, changes: dict[str, Any], texts: list[int], same: int
) -> None:
    other = [
        [structs.replace(each, **changes) if changed else each for each in these]
        for these, changed in zip(FAST, texts, strict=True)
    ]
    found = cell(reported({"ar": PLAIN, lane: other}), lane)
    assert found.same == same
    assert (not found.stats.keys() & {*TIMES}) == (same == 0)
    assert found.stats.keys() >= {"rounds", "tokens_per_round"}


def test_memory_is_that_of_the_longest_text() -> None:
    two = [[structs.replace(these[0], peak_bytes=None), these[0]] for these in PLAIN]
    found = reported({"ar": two})
    assert not cell(found, "ar", length=4).stats.keys() & {"peak_mb", "kv_mb"}
    assert cell(found, "ar", length=8).stats.keys() >= {"peak_mb", "kv_mb"}


def test_repeats_of_a_prompt_count_as_one_and_a_lane_that_was_left_out_has_no_cell() -> None:
    once = reported({"ar": PLAIN})
    again = structs.replace(once.blocks[0], repeat=1)
    repeated = report(once.header, [*once.blocks, again])
    assert {each.lane for each in repeated.cells} == {"ar"}
    assert cell(repeated, "ar").prompts == 2
    assert cell(repeated, "ar").stats["tokens_per_second"].value == pytest.approx(1.5)


def test_disturbed_turns_are_counted_what_is_missing_is_told_and_the_load_is_that_of_the_last_block() -> None:
    whole = reported({"ar": PLAIN})
    assert (whole.complete, whole.disturbed) == (True, 2)
    assert not report(whole.header, whole.blocks[:1]).complete
    loaded = [structs.replace(each, load=load) for each, load in zip(whole.blocks, (0.5, 2.5), strict=True)]
    assert report(whole.header, loaded).load_after == 2.5
    assert report(whole.header, whole.blocks).load_after is report(whole.header, []).load_after is None
