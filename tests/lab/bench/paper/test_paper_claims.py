"""Each claim is judged by the interval of a ratio on the same prompts, or reported as undecided."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from decoder.analysis.interval import Interval, Verdict
from dynatui.lab.bench import paper as published
from dynatui.lab.bench.paper.claims import TESTS, claims, claims_table, judged, left_out, paper_quotient
from dynatui.lab.bench.paper.report import PaperReport, report
from tests.lab.bench.paper import reports
from tests.lab.bench.paper.reports import altered, paper_report, request

PAPER = {line["name"]: line for line in published.lines_of("claims.csv")}
TEN = request(prompts=10, sets=("wikitext",))
TEN = structs.replace(TEN, experiments=TEN.experiments[:1])


def by_name(report: PaperReport) -> dict[str, Any]:
    found = claims(report)
    assert len({claim.name for claim in found}) == len(found)
    return {claim.name: claim for claim in found}


@pytest.fixture(scope="module")
def usual() -> dict[str, Any]:
    return by_name(paper_report(TEN))


@pytest.fixture(scope="module")
def both() -> PaperReport:
    """A report of two data sets."""
    return paper_report(request(prompts=6))


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


def test_every_claim_of_the_paper_is_tested_on_each_data_set_that_was_measured(
    usual: dict[str, Any], both: PaperReport
) -> None:
    assert list(usual) == list(PAPER) == list(TESTS)
    assert {claim.data_set for claim in claims(both)} == {"WikiText-2", "PG-19-style (books_test)"}
    first = report(both.header, [block for block in both.blocks if block.experiment == 0])
    assert {claim.data_set for claim in claims(first)} == {"WikiText-2"}


def with_speeds(speed: Callable[[str, int], float]) -> PaperReport:
    """A report of speeds by lane and prompt."""
    return altered(paper_report(TEN), lambda block, turn: {"tokens_per_second": speed(turn.lane, block.prompt)})


def better_and_uncertain(lane: str, prompt: int) -> float:
    """K=5 is faster than DynaTree; K=8 is faster in the mean, with a wide interval."""
    return 100 / {"linear K=5": 0.95, "linear K=8": 0.5 if prompt % 2 else 1.3}.get(lane, 1.0)


def one_text_is_shorter(block: Any, turn: Any) -> dict[str, int]:
    return {"committed": 1499} if (turn.lane, block.prompt) == ("alg1", 0) else {}


PARTED = {("alg1", 3), ("phase 1", 2)}
OTHERS = {name: {(name, prompt) for prompt in range(10)} for name in ("linear K=5", "linear K=8")}
BOTH = OTHERS["linear K=5"] | OTHERS["linear K=8"]


@pytest.mark.parametrize(
    ("name", "made", "verdict", "tested"),
    [
        ("lossless", lambda: paper_report(TEN), "holds", "110 of 110 texts of 11 lanes"),
        ("lossless", lambda: paper_report(TEN, different={("alg1", 3)}), "does not hold", "1 of alg1"),
        (
            "lossless",
            lambda: paper_report(TEN, different=PARTED, near_ties=PARTED),
            "cannot tell",
            "texts whose first difference from ar's text is at a near tie: 2",
        ),
        ("lossless", lambda: altered(paper_report(TEN), one_text_is_shorter), "does not hold", "1 of alg1"),
        ("lowest_tpot", lambda: paper_report(TEN), "holds", "Time per token of fixed D8 B3 over that of phase 3,"),
        ("lowest_tpot", lambda: paper_report(TEN, slower={"phase 3": 1.2}), "does not hold", ""),
        ("beats_hf", lambda: paper_report(TEN, slower={"assisted 20/.4": 0.8}), "does not hold", ""),
        ("lower_ttft", lambda: paper_report(TEN), "does not hold", "Time to the first tokens of ar over"),
        (
            "beats_linear",
            lambda: paper_report(TEN, different=OTHERS["linear K=8"]),
            "holds",
            "Tokens/s of phase 3 over that of linear K=5",
        ),
        ("beats_linear", lambda: paper_report(TEN, different=BOTH), "cannot tell", "There is no prompt on which"),
        (
            "beats_linear",
            lambda: reports.left_out(paper_report(TEN), "linear K=5", range(3, 10)),
            "cannot tell",
            "Tokens/s of phase 3 over that of linear K=8",
        ),
        ("beats_linear", lambda: with_speeds(better_and_uncertain), "does not hold", "over that of linear K=5"),
        (
            "history_gains",
            lambda: paper_report(TEN, different={("phase 3", 1), ("phase 2", 2)}),
            "holds",
            "on 8 prompts",
        ),
        ("gain_grows", lambda: paper_report(TEN), "holds", "at T=1500, divided by the same quotient at T=100"),
        ("memory", lambda: paper_report(TEN), "cannot tell", "the process (on a CPU"),
        ("memory", lambda: paper_report(structs.replace(TEN, device="cuda")), "holds", "Peak memory of the GPU"),
    ],
)
def test_a_claim_is_judged_by_the_texts_that_are_ar_s_against_all_rivals(
    name: str, made: Callable[[], PaperReport], verdict: Verdict, tested: str
) -> None:
    found = by_name(made())[name]
    assert found.verdict == verdict
    assert tested in found.tested
    if verdict == "holds" and name == "memory":
        assert found.here.high == pytest.approx(6316 / 6110)


def test_few_prompts_tell_nothing_but_a_text_that_differs_and_one_length_no_growth() -> None:
    two = request(prompts=2, sets=("wikitext",), lengths=(64,))
    found = by_name(paper_report(two, different={("alg1", 0)}))
    assert found.pop("lossless").verdict == "does not hold"
    assert {claim.verdict for claim in found.values()} == {"cannot tell"}
    assert "too few to tell" in found["beats_fixed"].tested
    assert found.keys() == PAPER.keys() - {"lossless", "gain_grows"}


def test_claims_without_their_lanes_are_left_out(both: PaperReport) -> None:
    found = by_name(paper_report(request(prompts=6, lanes=("ar", "linear K=5", "auto"), sets=("wikitext",))))
    assert found.keys() == {"lossless"}
    assert claims(report(both.header, [])) == []
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


def test_the_table_has_a_row_a_claim_and_a_doubtful_number_a_mark_and_its_note(both: PaperReport) -> None:
    found = claims(both)
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
    short = by_name(paper_report(request(prompts=1, lengths=(64, 128), sets=("wikitext",))))
    assert short["faster_than_ar"].doubt == "at T=1500"
    assert short["depth_dominates"].doubt.startswith("at T=1500; the numbers of phase 1 are from the authors' logs")
    assert short["lossless"].doubt == ""


def test_sampled_texts_settle_nothing_of_what_is_claimed_of_greedy_ones(both: PaperReport) -> None:
    sampled = paper_report(request(prompts=1, temperature=0.6))
    assert claims(sampled) == []
    why = "The paper's claims are about greedy decoding; here tokens were sampled, so no claim is judged."
    assert (left_out(sampled), left_out(both)) == (why, None)


def test_a_spread_decides_only_where_it_is_clear() -> None:
    def around_1000(before: float) -> Callable[[str, int], float]:
        def speed(lane: str, prompt: int) -> float:
            far = {"phase 2": before * (1 + prompt / 10), "phase 3": 10 * (2 - prompt / 10)}
            return 1000 + far.get(lane, 0) * (-1 if prompt % 2 else 1)

        return speed

    clear, unclear = (by_name(with_speeds(around_1000(before)))["history_stabilises"] for before in (100, 11))
    assert clear.verdict == "holds"
    assert clear.here.value == pytest.approx(10, rel=0.2)
    assert "The interval covers 99%" in clear.tested
    assert unclear.verdict == "cannot tell"


def test_depth_is_compared_with_breadth_step_by_step(usual: dict[str, Any]) -> None:
    found, faster = usual["depth_dominates"], by_name(paper_report(TEN, slower={"phase 1": 0.95}))["depth_dominates"]
    assert (found.verdict, found.paper) == ("holds", pytest.approx(1.152, abs=0.001))
    assert found.here.value == pytest.approx(1.19, abs=0.01)
    assert faster.here.value == pytest.approx(found.here.value * 0.95**2)
