"""Summaries of samples: texts with a speed, the best contender, and the first difference of a text."""

from collections.abc import Sequence

import pytest

from decoder.analysis.metrics import Tally
from decoder.append_only import TokenLog
from decoder.forward.near_tie import Verdict
from decoder.methods import WHOLE
from dynatui.lab.bench.contenders import Contender, Seen, Trial, Work
from dynatui.lab.bench.protocol import Sample
from dynatui.lab.bench.samples import Bandwidth, Samples
from dynatui.lab.bench.summary import Row, comparisons, differences, rows
from dynatui.lab.bench.table import speeds
from dynatui.lab.frame import Median

TEXT = (5, 6, 7, 8)


def contenders(**groups: str) -> list[Contender]:
    return [Contender(name, group, lambda _pair, _ids: Trial(Tally()), {}) for name, group in groups.items()]


def sample(
    name: str,
    decode_s: float,
    *,
    prompt: int = 0,
    repeat: int = 0,
    tokens: Sequence[int] = TEXT,
    group: str = "",
    same_until: int = WHOLE,
) -> Sample:
    """A text of two rounds; half of the time is verification."""
    tally = Tally(
        rounds=2,
        timed_tokens=len(tokens),
        log=TokenLog().plus(tokens),
        decode_s=decode_s,
        draft_s=decode_s / 4,
        verify_s=decode_s / 2,
        commit_s=decode_s / 16,
        target_forwards=2,
        draft_forwards=6,
        peak_bytes=1000,
    )
    seen = Seen(0.7 * decode_s, Work(), Work())
    return Sample(name, group or name, prompt, repeat, tally, seen=seen, same_until=same_until)


def row(samples: Samples, name: str, bandwidth: Bandwidth | None = None) -> Row:
    return next(row for row in rows(samples, seed=0, bandwidth=bandwidth) if row.name == name)


def value(found: Median | None) -> float:
    assert found is not None
    return found.value


def never(*_given: object) -> Verdict:
    raise AssertionError("there is nothing to judge")


TWO = contenders(ar="ar", dynatree="dynatree")


def test_a_row_has_medians_of_totals_and_of_rounds() -> None:
    samples = Samples([sample("ar", 4.0), sample("dynatree", 1.0)], TWO)
    found = row(samples, "dynatree")
    assert value(found.tokens_per_second) == 4.0
    assert value(found.over_ar) == 4.0
    assert (found.round_ms, found.draft_ms, found.verify_ms, found.commit_ms) == (500.0, 125.0, 250.0, 31.25)
    assert found.host_ms == 93.75
    assert found.host_share == 0.25
    assert found.rest_share == pytest.approx(0.3)
    assert (found.tokens_per_round, found.target_forwards, found.draft_forwards) == (2.0, 1.0, 3.0)
    assert (found.same, found.prompts, found.peak_bytes) == (1, 1, 1000)


def test_a_text_that_differs_has_no_speed_on_its_prompt() -> None:
    found = [sample("ar", 4.0, prompt=0), sample("dynatree", 2.0, prompt=0)]
    found += [sample("ar", 4.0, prompt=1), sample("dynatree", 0.001, prompt=1, tokens=(5, 6, 9, 8))]
    dynatree = row(Samples(found, TWO), "dynatree")
    assert (dynatree.same, dynatree.prompts) == (1, 2)
    assert value(dynatree.over_ar) == 2.0


def test_a_method_whose_every_text_differs_has_no_speed_at_all() -> None:
    samples = Samples([sample("ar", 4.0), sample("dynatree", 1.0, tokens=(5, 6, 7, 9))], TWO)
    found = row(samples, "dynatree")
    assert (found.same, found.tokens_per_second, found.over_ar, found.round_ms) == (0, None, None, None)
    assert comparisons(samples, seed=0) == []


@pytest.mark.parametrize(("name", "same"), [("dynatree", (1, 0)), ("ar", (0, 1))])
def test_one_repeat_that_differs_leaves_no_speed_even_of_plain_decoding(name: str, same: tuple[int, int]) -> None:
    texts = {"ar": TEXT, "dynatree": TEXT, name: (5, 6, 7, 9)}
    found = [sample("ar", 4.0), sample("dynatree", 1.0)]
    samples = Samples([*found, *(sample(each, 4.0, repeat=1, tokens=texts[each]) for each in ("ar", "dynatree"))], TWO)
    assert (row(samples, "ar").same, row(samples, "dynatree").same) == same
    assert row(samples, "dynatree").over_ar is None


def test_differences_are_named_with_float32s_verdict() -> None:
    request = []

    def judge(prompt: int, before: Sequence[int], rivals: tuple[int, int], foreign: bool) -> Verdict:  # noqa: FBT001
        request.append((prompt, tuple(before), rivals, foreign))
        return Verdict(near_tie=True, gap=0.01)

    names = contenders(ar="ar", dynatree="dynatree", linear="linear")
    names.append(Contender("generate", "generate", lambda _pair, _ids: Trial(Tally()), {}, foreign=True))
    texts = {"ar": TEXT} | dict.fromkeys(("dynatree", "linear", "generate"), (5, 6, 9, 9))
    samples = Samples([sample(name, 1.0, tokens=text) for name, text in texts.items()], names)
    first, second, _ = differences(samples, judge)
    assert (first.name, first.prompt, first.index, first.near_tie, first.gap) == ("dynatree", 0, 2, True, 0.01)
    assert second.name == "linear"
    assert request == [(0, (5, 6), (7, 9), False), (0, (5, 6), (7, 9), True)], "once for us, once for transformers"


def test_a_text_that_ends_early_differs_without_a_verdict() -> None:
    samples = Samples([sample("ar", 1.0), sample("dynatree", 1.0, tokens=(5, 6))], TWO)
    (found,) = differences(samples, never)
    assert (found.index, found.near_tie, found.gap) == (2, None, None)
    assert row(samples, "dynatree").tokens_per_second is None


def test_the_same_texts_have_no_differences() -> None:
    assert differences(Samples([sample("ar", 1.0), sample("dynatree", 1.0)], TWO), never) == []


def test_a_prompt_that_not_everyone_went_through_does_not_count() -> None:
    found = [sample("ar", 4.0), sample("dynatree", 2.0), sample("ar", 4.0, prompt=1)]
    samples = Samples(found, TWO)
    assert samples.prompts == [0]
    assert len(samples.all()) == 2
    assert Samples(found[:1], TWO).prompts == []


def test_everyone_is_compared_with_the_best_of_each_kind() -> None:
    names = contenders(ar="ar", dynatree="dynatree")
    names += [Contender(name, group, lambda _pair, _ids: Trial(Tally()), {}) for name, group in KINDS]
    times = {"ar": 4.0, "dynatree": 1.0, "linear 2": 2.0, "linear 3": 1.5, "fixed 2x2": 1.25, "generate static": 8.0}
    samples = Samples([sample(name, time) for name, time in times.items()], names)
    found = {(line.name, line.kind): (line.than, line.of, line.ratio.value) for line in comparisons(samples, seed=0)}
    assert found == {
        ("ar", "generate"): ("generate static", 1, 2.0),
        ("dynatree", "ar"): ("ar", 1, 4.0),
        ("dynatree", "generate"): ("generate static", 1, 8.0),
        ("dynatree", "linear"): ("linear 3", 2, 1.5),
        ("dynatree", "fixed"): ("fixed 2x2", 1, 1.25),
        ("dynatree", "linear and fixed"): ("fixed 2x2", 3, 1.25),
    }
    ar = row(samples, "ar")
    assert value(ar.over_generate) == 2.0


KINDS = [("linear 2", "linear"), ("linear 3", "linear"), ("fixed 2x2", "fixed"), ("generate static", "generate")]


def test_the_share_of_the_memory_limit_counts_the_weights_of_all_forward_passes() -> None:
    bandwidth = Bandwidth(target_bytes=1000, draft_bytes=100, copy_bytes_per_s=26000.0)
    samples = Samples([sample("ar", 1.0), sample("dynatree", 0.25)], TWO)
    assert row(samples, "dynatree", bandwidth).bandwidth_share == pytest.approx((2 * 1000 + 6 * 100) / 0.25 / 26000)


def test_what_exactness_costs_is_told_by_rounds_whatever_the_texts() -> None:
    """A text that differs at a near tie has no speed, but the times of its rounds still count."""
    names = {"ar": "ar", "dynatree": "dynatree", "ar ~": "not exact", "dynatree ~": "not exact"}
    other = {"ar ~": (5, 6, 7, 9), "dynatree ~": (5, 6, 7, 9)}
    seconds = {"ar": 2.0, "dynatree": 4.0, "ar ~": 1.0, "dynatree ~": 1.0}
    turns = [sample(name, seconds[name], group=group, tokens=other.get(name, TEXT)) for name, group in names.items()]
    samples = Samples(turns, contenders(**names))
    found = {line.kind: (line.name, line.ratio.value) for line in comparisons(samples, seed=0)}
    assert row(samples, "ar ~").tokens_per_second is None
    assert found["ar ~, rounds a second"] == ("ar", 0.5)
    assert found["dynatree ~, rounds a second"] == ("dynatree", 0.25)
    assert found["ar"][0] == "dynatree"


def test_a_text_that_differs_by_design_has_a_speed_and_is_no_fault() -> None:
    samples = Samples([sample("ar", 4.0), sample("streaming", 2.0, tokens=(5, 6, 9, 8), same_until=2)], OWN)
    found = row(samples, "streaming")
    assert (found.same, found.by_design, row(samples, "ar").by_design) == (None, True, False)
    assert value(found.over_ar) == 2.0
    assert differences(samples, never) == []
    told = speeds(rows(samples, seed=0, bandwidth=None), None)
    assert told.rows[1][-1] == "own"
    assert told.notes == ("own: a text that differs from the text of ar by design; its speed counts.",)


def test_a_text_that_differs_before_it_may_has_no_speed_and_is_judged() -> None:
    samples = Samples([sample("ar", 4.0), sample("streaming", 2.0, tokens=(5, 6, 9, 8), same_until=3)], OWN)
    found = row(samples, "streaming")
    assert (found.same, found.by_design, found.over_ar) == (0, False, None)
    (difference,) = differences(samples, lambda *_: Verdict(near_tie=False, gap=2.0))
    assert (difference.name, difference.index, difference.near_tie) == ("streaming", 2, False)


def test_a_text_that_might_differ_and_does_not_is_told_to_be_the_same() -> None:
    samples = Samples([sample("ar", 4.0), sample("streaming", 2.0, same_until=2)], OWN)
    found = row(samples, "streaming")
    assert (found.same, found.by_design) == (1, False)
    assert speeds(rows(samples, seed=0, bandwidth=None), None).rows[1][-1] == "1 of 1"


OWN = contenders(ar="ar", streaming="streaming")
