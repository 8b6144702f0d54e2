"""Findings over many runs: each limit is listed once, with the range of its figures."""

from msgspec import structs

from decoder.analysis.findings import Finding, MethodCase, cases, findings
from decoder.analysis.metrics import RunFold, Tally
from decoder.append_only import TokenLog
from tests.decoder.analysis.timed_tallies import LIMITED, PLAIN, ROUNDS, raced, tally


def told(*runs: dict[str, Tally]) -> list[Finding]:
    """Findings of runs, each compared with plain decoding."""
    races = (raced({**run, "ar": PLAIN}) for run in runs)
    return list(findings(case for number, race in enumerate(races, 1) for case in cases(race, number)))


def where(found: tuple[MethodCase, ...]) -> list[tuple[str, int]]:
    return [(case.method, case.run) for case in found]


def test_one_limit_of_several_methods_and_runs_is_one_finding_with_ranges() -> None:
    slow, slower = LIMITED["draft"], tally(tokens=4, draft_ms=20, verify_ms=4, host_ms=1)
    (finding,) = told({"linear": slow, "fixed": slower}, {"linear": slower})
    assert where(finding.cases) == [("linear", 1), ("fixed", 1), ("linear", 2)]
    assert (
        finding.claim
        == "drafting takes 75% to 80% of a round; if it took no time, decoding would be 4.00 to 5.00 times as fast"
    )
    assert finding.helps.startswith("a smaller draft, or shallower trees")


def test_figures_that_are_written_alike_are_no_range() -> None:
    (finding,) = told({"linear": LIMITED["draft"]}, {"linear": LIMITED["draft"]})
    assert finding.claim == "drafting takes 75% of a round; if it took no time, decoding would be 4.00 times as fast"


def test_each_limit_is_a_finding_the_most_frequent_first() -> None:
    first, second = told({"linear": LIMITED["host"]}, {"linear": LIMITED["draft"]}, {"linear": LIMITED["draft"]})
    assert [where(first.cases), where(second.cases)] == [[("linear", 2), ("linear", 3)], [("linear", 1)]]


def test_what_would_help_next_is_told_with_those_whom_it_would_help() -> None:
    verified = tally(tokens=5, draft_ms=15, verify_ms=9, host_ms=1)
    disagreeing = tally(tokens=3, draft_ms=15, verify_ms=4, host_ms=1)
    (finding,) = told({"linear": verified, "fixed": disagreeing})
    assert [(remedy.partition(",")[0], where(group)) for remedy, group in finding.then] == [
        ("smaller trees", [("linear", 1)]),
        ("a draft that agrees more often (dynatui tune --drafts ranks candidates)", [("fixed", 1)]),
    ]


def test_a_method_for_which_only_another_draft_would_help_is_not_told_to_have_smaller_trees() -> None:
    hopeless = tally(tokens=1, draft_ms=15, verify_ms=4, host_ms=1, levels=1)
    first, second = told({"linear": LIMITED["draft"], "fixed": hopeless})
    assert first.claim.startswith("drafting takes 75%")
    assert second.claim.startswith("drafting takes 75%")
    assert "--methods ar" in second.helps
    assert where(second.cases) == [("fixed", 1)]
    assert "--methods ar" not in first.helps


def test_texts_that_repeat_themselves_are_a_finding_of_their_own() -> None:
    looping = structs.replace(LIMITED["draft"], log=TokenLog().plus([1, 2] * (2 * ROUNDS)))
    *_, last = told({"linear": LIMITED["draft"], "fixed": looping})
    assert "repeats itself" in last.claim
    assert where(last.cases) == [("fixed", 1)]


def test_a_case_knows_whether_its_text_is_that_of_plain_decoding() -> None:
    other = structs.replace(PLAIN, log=TokenLog().plus([0, 1, 99]))
    race = RunFold(tallies={"linear": LIMITED["draft"], "ar": other})
    linear, plain = cases(race, 1)
    assert (linear.compared, linear.difference, plain.compared) == (True, 2, False)
    (alone,) = cases(RunFold(tallies={"linear": LIMITED["draft"]}), 1)
    assert (alone.compared, alone.difference) == (False, None)
