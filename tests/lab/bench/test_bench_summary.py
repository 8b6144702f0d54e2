"""Summaries of samples: texts with a speed, the best contender, and the first difference of a text."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from decoder.analysis.metrics import Tally
from decoder.append_only import TokenLog
from decoder.forward.near_tie import Verdict
from decoder.methods import WHOLE
from dynatui.lab.bench.contenders import Contender, DecodedText, Seen, Work
from dynatui.lab.bench.protocol import Sample
from dynatui.lab.bench.summary import Bandwidth, Samples, comparisons, differences, rows
from dynatui.lab.bench.table import speeds

TEXT = (5, 6, 7, 8)


def contenders(groups: Mapping[str, str], *foreign: str) -> list[Contender]:
    return [
        Contender(name, group, lambda _pair, _ids: DecodedText(Tally()), {}, foreign=name in foreign)
        for name, group in groups.items()
    ]


def sample(
    name: str,
    decode_s: float,
    tokens: Sequence[int] = TEXT,
    *,
    prompt: int = 0,
    repeat: int = 0,
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


def row(samples: Samples, name: str, bandwidth: Bandwidth | None = None) -> Any:
    return next(row for row in rows(samples, seed=0, bandwidth=bandwidth) if row.name == name)


def never(*_given: object) -> Verdict:
    raise AssertionError("there is nothing to judge")


TWO = contenders({"ar": "ar", "dynatree": "dynatree"})
OWN = contenders({"ar": "ar", "streaming": "streaming"})


def two(own_s: float, own: Sequence[int] = TEXT) -> Samples:
    return Samples([sample("ar", 4.0), sample("dynatree", own_s, own)], TWO)


def test_a_row_has_medians_of_totals_and_of_rounds() -> None:
    found = row(two(1.0), "dynatree")
    assert (found.tokens_per_second.value, found.over_ar.value) == (4.0, 4.0)
    assert (found.round_ms, found.draft_ms, found.verify_ms, found.commit_ms) == (500.0, 125.0, 250.0, 31.25)
    assert (found.host_ms, found.host_share, found.rest_share) == (93.75, 0.25, pytest.approx(0.3))
    assert (found.tokens_per_round, found.target_forwards, found.draft_forwards) == (2.0, 1.0, 3.0)
    assert (found.same, found.prompts, found.peak_bytes) == (1, 1, 1000)
    bandwidth = Bandwidth(target_bytes=1000, draft_bytes=100, copy_bytes_per_s=26000.0)
    share = row(two(0.25), "dynatree", bandwidth).bandwidth_share
    assert share == pytest.approx((2 * 1000 + 6 * 100) / 0.25 / 26000)


def test_a_text_that_differs_has_no_speed_on_its_prompt() -> None:
    found = [sample("ar", 4.0, prompt=0), sample("dynatree", 2.0, prompt=0)]
    found += [sample("ar", 4.0, prompt=1), sample("dynatree", 0.001, (5, 6, 9, 8), prompt=1)]
    dynatree = row(Samples(found, TWO), "dynatree")
    assert (dynatree.same, dynatree.prompts, dynatree.over_ar.value) == (1, 2, 2.0)
    none = two(1.0, (5, 6, 7, 9))
    dynatree = row(none, "dynatree")
    assert (dynatree.same, dynatree.tokens_per_second, dynatree.over_ar, dynatree.round_ms) == (0, None, None, None)
    assert comparisons(none, seed=0) == []


@pytest.mark.parametrize(("name", "same"), [("dynatree", (1, 0)), ("ar", (0, 1))])
def test_one_repeat_that_differs_leaves_no_speed_even_of_plain_decoding(name: str, same: tuple[int, int]) -> None:
    texts = {"ar": TEXT, "dynatree": TEXT, name: (5, 6, 7, 9)}
    found = [sample("ar", 4.0), sample("dynatree", 1.0)]
    samples = Samples([*found, *(sample(each, 4.0, texts[each], repeat=1) for each in ("ar", "dynatree"))], TWO)
    assert (row(samples, "ar").same, row(samples, "dynatree").same) == same
    assert row(samples, "dynatree").over_ar is None


def test_differences_are_named_with_float32s_verdict() -> None:
    request = []

    def judge(prompt: int, before: Sequence[int], rivals: tuple[int, int], foreign: bool) -> Verdict:  # noqa: FBT001
        request.append((prompt, tuple(before), rivals, foreign))
        return Verdict(near_tie=True, gap=0.01)

    texts = {"ar": TEXT} | dict.fromkeys(("dynatree", "linear", "generate"), (5, 6, 9, 9))
    names = contenders({name: name for name in texts}, "generate")
    samples = Samples([sample(name, 1.0, text) for name, text in texts.items()], names)
    first, second, _ = differences(samples, judge)
    assert (first.name, first.prompt, first.index, first.near_tie, first.gap) == ("dynatree", 0, 2, True, 0.01)
    assert second.name == "linear"
    assert request == [(0, (5, 6), (7, 9), False), (0, (5, 6), (7, 9), True)], "once for us, once for transformers"


def test_a_text_that_ends_early_differs_without_a_verdict_and_the_same_text_not_at_all() -> None:
    samples = two(1.0, (5, 6))
    (found,) = differences(samples, never)
    assert (found.index, found.near_tie, found.gap) == (2, None, None)
    assert row(samples, "dynatree").tokens_per_second is None
    assert differences(two(1.0), never) == []


def test_a_prompt_that_not_everyone_went_through_does_not_count() -> None:
    found = [sample("ar", 4.0), sample("dynatree", 2.0), sample("ar", 4.0, prompt=1)]
    samples = Samples(found, TWO)
    assert (samples.prompts, len(samples.all())) == ([0], 2)
    assert Samples(found[:1], TWO).prompts == []


def test_everyone_is_compared_with_the_best_of_each_kind() -> None:
    groups = {"ar": "ar", "dynatree": "dynatree", "linear 2": "linear", "linear 3": "linear"}
    groups |= {"fixed 2x2": "fixed", "generate static": "generate"}
    times = (4.0, 1.0, 2.0, 1.5, 1.25, 8.0)
    samples = Samples([sample(name, time) for name, time in zip(groups, times, strict=True)], contenders(groups))
    found = {(line.name, line.kind): (line.than, line.of, line.ratio.value) for line in comparisons(samples, seed=0)}
    assert found == {
        ("ar", "generate"): ("generate static", 1, 2.0),
        ("dynatree", "ar"): ("ar", 1, 4.0),
        ("dynatree", "generate"): ("generate static", 1, 8.0),
        ("dynatree", "linear"): ("linear 3", 2, 1.5),
        ("dynatree", "fixed"): ("fixed 2x2", 1, 1.25),
        ("dynatree", "linear and fixed"): ("fixed 2x2", 3, 1.25),
    }
    assert row(samples, "ar").over_generate.value == 2.0


def test_what_exactness_costs_is_told_by_rounds_whatever_the_texts() -> None:
    """A text that differs at a near tie has no speed, but the times of its rounds still count."""
    names = {"ar": "ar", "dynatree": "dynatree", "ar ~": "not exact", "dynatree ~": "not exact"}
    other = {"ar ~": (5, 6, 7, 9), "dynatree ~": (5, 6, 7, 9)}
    seconds = {"ar": 2.0, "dynatree": 4.0, "ar ~": 1.0, "dynatree ~": 1.0}
    turns = [sample(name, seconds[name], other.get(name, TEXT), group=group) for name, group in names.items()]
    samples = Samples(turns, contenders(names))
    found = {line.kind: (line.name, line.ratio.value) for line in comparisons(samples, seed=0)}
    assert row(samples, "ar ~").tokens_per_second is None
    assert found["ar ~, rounds a second"] == ("ar", 0.5)
    assert found["dynatree ~, rounds a second"] == ("dynatree", 0.25)
    assert found["ar"][0] == "dynatree"


@pytest.mark.parametrize(
    ("text", "until", "same", "by_design", "speed", "told"),
    [
        pytest.param((5, 6, 9, 8), 2, None, True, 2.0, "own", id="differs by design"),
        pytest.param((5, 6, 9, 8), 3, 0, False, None, "0 of 1", id="differs before it may"),
        pytest.param(TEXT, 2, 1, False, 2.0, "1 of 1", id="might differ and does not"),
    ],
)
def test_a_text_that_differs_by_design_has_a_speed_and_is_no_fault(
    *, text: Sequence[int], until: int, same: int | None, by_design: bool, speed: float | None, told: str
) -> None:
    samples = Samples([sample("ar", 4.0), sample("streaming", 2.0, text, same_until=until)], OWN)
    found = row(samples, "streaming")
    assert (found.same, found.by_design, found.over_ar and found.over_ar.value) == (same, by_design, speed)
    assert not row(samples, "ar").by_design
    differing = differences(samples, lambda *_: Verdict(near_tie=False, gap=2.0))
    assert [(each.name, each.index, each.near_tie) for each in differing] == [("streaming", 2, False)] * (not speed)
    shown = speeds(rows(samples, seed=0, bandwidth=None), None)
    assert shown.rows[1][-1] == told
    note = "own: a text that differs from the text of ar by design; its speed counts."
    assert shown.notes == (note,) * by_design
