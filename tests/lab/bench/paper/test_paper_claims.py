"""Each claim is judged by the interval of a ratio on the same prompts, or reported as undecided."""

from typing import Any

import pytest
from msgspec import structs

from decoder.analysis.interval import Interval, Verdict
from dynatui.lab.bench.paper import published
from dynatui.lab.bench.paper.claims import TESTS, claims, claims_table, judged, left_out, paper_quotient
from dynatui.lab.bench.paper.report import PaperReport, report
from tests.lab.bench.paper import reports
from tests.lab.bench.paper.reports import altered, paper_report, request

PAPER = {line["name"]: line for line in published.lines_of("claims.csv")}
TEN = request(prompts=10, sets=("wikitext",))


def by_name(report: PaperReport) -> dict[str, Any]:
    found = claims(report)
    assert len({claim.name for claim in found}) == len(found)
    return {claim.name: claim for claim in found}


@pytest.fixture(scope="module")
def usual() -> dict[str, Any]:
    return by_name(paper_report(TEN))


@pytest.mark.parametrize(
    ("found", "prompts", "below", "verdict"),
    [
        (Interval(value=1.2, low=1.1, high=1.3), 10, False, "holds"),
        (Interval(value=0.8, low=0.7, high=0.9), 10, False, "does not hold"),
        (Interval(value=1.0, low=0.9, high=1.1), 10, False, "cannot tell"),
        (Interval(value=1.2, low=1.1, high=1.3), 10, True, "does not hold"),
        (Interval(value=0.8, low=0.7, high=0.9), 10, True, "holds"),
        (Interval(value=1.2, low=1.1, high=1.3), 4, False, "cannot tell"),
        (Interval(value=1.2, low=None, high=None), 10, False, "cannot tell"),
        (None, 0, False, "cannot tell"),
    ],
)
def test_a_verdict_needs_the_whole_interval_and_enough_prompts(
    *, found: Interval | None, prompts: int, below: bool, verdict: Verdict
) -> None:
    assert judged(found, prompts, below=below) == verdict


def test_every_claim_of_the_paper_is_tested_on_each_data_set_that_was_measured(usual: dict[str, Any]) -> None:
    assert list(usual) == list(PAPER) == list(TESTS)
    whole = paper_report(request(prompts=6))
    assert {claim.data_set for claim in claims(whole)} == {"WikiText-2", "PG-19-style (books_test)"}
    first = report(whole.header, [block for block in whole.blocks if block.experiment == 0])
    assert {claim.data_set for claim in claims(first)} == {"WikiText-2"}


def test_a_claim_about_rivals_holds_only_against_all_of_them() -> None:
    found = by_name(reports.left_out(paper_report(TEN), "linear K=5", range(3, 10)))["beats_linear"]
    assert found.tested.startswith("Tokens/s of phase 3 over that of linear K=8")
    assert found.verdict == "cannot tell"


def test_a_rival_that_is_better_decides_though_one_that_is_uncertain_is_better_in_the_mean() -> None:
    def speed(lane: str, prompt: int) -> float:
        uncertain = 0.5 if prompt % 2 else 1.3
        return 100 / {"linear K=5": 0.95, "linear K=8": uncertain}.get(lane, 1.0)

    report = altered(paper_report(TEN), lambda block, turn: {"tokens_per_second": speed(turn.lane, block.prompt)})
    found = by_name(report)["beats_linear"]
    assert found.verdict == "does not hold"
    assert found.tested.startswith("Tokens/s of phase 3 over that of linear K=5")


def test_memory_of_a_process_on_a_cpu_settles_nothing(usual: dict[str, Any]) -> None:
    assert usual["memory"].verdict == "cannot tell"
    on_gpu = by_name(paper_report(structs.replace(TEN, device="cuda")))["memory"]
    assert on_gpu.verdict == "holds"
    assert on_gpu.here.high == pytest.approx(6316 / 6110)


def test_the_gain_is_compared_between_the_longest_and_the_shortest_texts(usual: dict[str, Any]) -> None:
    found = usual["gain_grows"]
    assert found.verdict == "holds"
    assert "T=1500" in found.tested
    assert "T=100" in found.tested
    assert "gain_grows" not in by_name(paper_report(request(prompts=6, lengths=(64,), sets=("wikitext",))))


def test_few_prompts_tell_nothing_but_a_text_that_differs() -> None:
    found = by_name(paper_report(request(prompts=2, sets=("wikitext",)), different={("alg1", 0)}))
    assert found.pop("lossless").verdict == "does not hold"
    assert {claim.verdict for claim in found.values()} == {"cannot tell"}
    assert "too few to tell" in found["beats_fixed"].tested


def test_claims_without_their_lanes_are_left_out() -> None:
    found = by_name(paper_report(request(prompts=6, lanes=("ar", "linear K=5", "auto"), sets=("wikitext",))))
    assert found.keys() == {"lossless"}
    assert claims(report(paper_report().header, [])) == []
    found = by_name(paper_report(request(lanes=("ar", "linear K=5", "phase 3"), sets=("wikitext",))))
    assert "beats_linear" in found
    assert not {"lowest_tpot", "fewer_rounds", "beats_fixed"} & found.keys(), "one of their kinds was not measured"


def test_the_paper_s_quotients_are_of_its_own_numbers() -> None:
    def at(row: str, figure: str) -> Any:
        return next(line["value"] for line in known if (line["row"], line["figure"]) == (row, figure))

    for data_set, linear in (("WikiText-2", "Linear K8"), ("PG-19", "Linear K5")):
        known = [line for line in published.lines_of("published.csv") if line["data_set"] == data_set]
        rivals = {"beats_linear": linear, "beats_fixed": "Fixed D8B3", "faster_than_ar": "AR"}
        speed = "tokens_per_second"
        quotients = {name: f"{at('DynaTree', speed)}/{at(row, speed)}" for name, row in rivals.items()}
        quotients["lowest_tpot"] = f"{at('Fixed D8B3', 'tpot_ms')}/{at('DynaTree', 'tpot_ms')}"
        quotients["memory"] = f"{at('DynaTree', 'peak_mb')}/{at('AR', 'peak_mb')}"
        rounds = min(float(at(row, "rounds")) for row in (linear, "Fixed D8B3"))
        quotients["fewer_rounds"] = f"{rounds:g}/{at('DynaTree', 'rounds')}"
        for name, quotient in quotients.items():
            assert paper_quotient(PAPER[name][data_set]) == paper_quotient(quotient), name
    assert paper_quotient("8/2 / 3/6") == 8
    assert paper_quotient("") is None


def test_the_table_has_a_row_a_claim_and_a_doubtful_number_a_mark_and_its_note() -> None:
    found = claims(paper_report(request(prompts=6)))
    table = claims_table(found, ["a note"])
    assert table.notes[-1] == "a note"
    assert [row[2] for row in table.rows] == [claim.verdict for claim in found]
    cells: dict[Any, Any] = {(row[0], row[1]): row[4] for row in table.rows}

    def note(name: str, data_set: str) -> str:
        mark = cells[PAPER[name]["says"], data_set].mark
        return next((each for each in table.notes if mark and each.startswith(f"[{mark}]")), "")

    books = "PG-19-style (books_test)"
    assert "127.9" in note("gain_grows", "WikiText-2")
    assert "; relative to an undisturbed AR the quotient is 1.44" in note("faster_than_ar", books)
    assert "D_max=9" in note("beats_linear", books)
    assert note("faster_than_ar", "WikiText-2") == ""
    assert cells[PAPER["lossless"]["says"], "WikiText-2"] is None


def test_a_claim_that_was_tested_at_another_length_than_the_paper_s_says_so(usual: dict[str, Any]) -> None:
    assert (usual["faster_than_ar"].doubt, usual["beats_hf"].doubt[:8]) == ("", "at T=500")
    short = by_name(paper_report(request(prompts=6, lengths=(64, 128), sets=("wikitext",))))
    assert short["faster_than_ar"].doubt == "at T=1500"
    assert short["depth_dominates"].doubt.startswith("at T=1500; the numbers of phase 1 are from the authors' logs")
    assert short["lossless"].doubt == ""


def test_sampled_texts_settle_nothing_of_what_is_claimed_of_greedy_ones() -> None:
    report = paper_report(request(prompts=6, temperature=0.6))
    assert claims(report) == []
    assert (
        left_out(report) == "The paper's claims are about greedy decoding; here tokens were sampled, so no claim "
        "is judged."
    )
    assert left_out(paper_report(TEN)) is None


def test_a_text_of_another_length_is_not_lossless() -> None:
    def shorter(lane: str, prompt: int) -> dict[str, int]:
        return {"committed": 1499} if (lane, prompt) == ("alg1", 0) else {}

    found = by_name(altered(paper_report(TEN), lambda block, turn: shorter(turn.lane, block.prompt)))["lossless"]
    assert found.verdict == "does not hold"
    assert "1 of alg1" in found.tested


def with_speeds(before: float, own: float) -> PaperReport:
    """A report in which the speeds of phases 2 and 3 alternate around 1000, by about `before` and `own`."""

    def speed(lane: str, prompt: int) -> float:
        far = {"phase 2": before * (1 + prompt / 10), "phase 3": own * (2 - prompt / 10)}
        return 1000 + far.get(lane, 0) * (-1 if prompt % 2 else 1)

    return altered(paper_report(TEN), lambda block, turn: {"tokens_per_second": speed(turn.lane, block.prompt)})


def test_a_spread_decides_only_where_it_is_clear() -> None:
    clear, unclear = (by_name(with_speeds(before, 10))["history_stabilises"] for before in (100, 11))
    assert clear.verdict == "holds"
    assert clear.here.value == pytest.approx(10, rel=0.2)
    assert "The interval covers 99%" in clear.tested
    assert unclear.verdict == "cannot tell"


PARTED = {("alg1", 3), ("phase 1", 2)}
OTHERS = {name: {(name, prompt) for prompt in range(10)} for name in ("linear K=5", "linear K=8")}


@pytest.mark.parametrize(
    ("name", "changes", "verdict", "tested"),
    [
        pytest.param("lossless", {}, "holds", "110 of 110 texts of 11 lanes", id="equal texts"),
        pytest.param("lossless", {"different": {("alg1", 3)}}, "does not hold", "1 of alg1", id="another text"),
        pytest.param(
            "lossless",
            {"different": PARTED, "near_ties": PARTED},
            "cannot tell",
            "texts whose first difference from ar's text is at a near tie: 2",
            id="texts that part at near ties",
        ),
        pytest.param(
            "lowest_tpot", {}, "holds", "Time per token of fixed D8 B3 over that of phase 3,", id="the best rival"
        ),
        pytest.param("lowest_tpot", {"slower": {"phase 3": 1.2}}, "does not hold", "", id="slower than a rival"),
        pytest.param("beats_hf", {"slower": {"assisted 20/.4": 0.8}}, "does not hold", "", id="slower than assisted"),
        pytest.param("lower_ttft", {}, "does not hold", "", id="later first tokens"),
        pytest.param(
            "beats_linear",
            {"different": OTHERS["linear K=8"]},
            None,
            "Tokens/s of phase 3 over that of linear K=5",
            id="a text of its own is no rival",
        ),
        pytest.param(
            "beats_linear",
            {"different": OTHERS["linear K=5"] | OTHERS["linear K=8"]},
            "cannot tell",
            "There is no prompt on which",
            id="no rival is left",
        ),
        pytest.param(
            "history_gains", {"different": {("phase 3", 1), ("phase 2", 2)}}, None, "on 8 prompts", id="other texts"
        ),
    ],
)
def test_a_claim_is_judged_by_the_texts_that_are_ar_s(
    name: str, changes: dict[str, Any], verdict: Verdict | None, tested: str
) -> None:
    found = by_name(paper_report(TEN, **changes))[name]
    assert verdict in (None, found.verdict)
    assert tested in found.tested


def test_depth_is_compared_with_breadth_step_by_step(usual: dict[str, Any]) -> None:
    found, faster = usual["depth_dominates"], by_name(paper_report(TEN, slower={"phase 1": 0.95}))["depth_dominates"]
    assert (found.verdict, found.paper) == ("holds", pytest.approx(1.152, abs=0.001))
    assert found.here.value == pytest.approx(1.19, abs=0.01)
    assert faster.here.value == pytest.approx(found.here.value * 0.95**2)
