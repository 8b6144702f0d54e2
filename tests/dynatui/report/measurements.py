"""Made-up reports of measured speeds."""

from decoder.bench.arithmetic import Arithmetic, Shape
from decoder.bench.report import Record, Report, RoundsReport, Setup
from decoder.bench.rounds import Growth, Rounds
from decoder.bench.statistics import Median
from decoder.bench.summary import Comparison, Difference, Row
from decoder.events import Figures
from tests.decoder.bench.machines import MACHINE


def setup(target: str = "big", name: str = "tree") -> Setup:
    return Setup(
        started_at="2026-01-01T00:00:00Z",
        machine=MACHINE,
        target=target,
        draft="small",
        device="cpu",
        dtype="float32",
        draft_dtype="float32",
        contenders={"ar": {}, name: {}},
        prompts=[[1, 2], [3]],
        max_new_tokens=64,
        repeats=1,
        seed=0,
    )


def row(name: str, speed: float) -> Row:
    return Row(
        name=name,
        group=name,
        prompts=2,
        same=2,
        tokens_per_second=Median(value=speed, low=speed - 1, high=speed + 1),
        over_ar=Median(value=speed / 100, low=None, high=None),
        over_generate=None,
        tokens_per_round=2.5,
        round_ms=3.25,
        draft_ms=1.0,
        verify_ms=2.0,
        commit_ms=0.125,
        host_ms=0.125,
        host_share=0.1,
        rest_share=None,
        target_forwards=1.0,
        draft_forwards=2.0,
        peak_bytes=500_000_000,
        bandwidth_share=None,
        waits=None,
    )


def records(count: int, name: str, waited: float = 0.0) -> list[Record]:
    one = Record(
        contender=name,
        group=name,
        prompt=0,
        repeat=0,
        figures=Figures(),
        models_s=None,
        target_work=None,
        draft_work=None,
        kv_bytes=None,
        waits=None,
        waited=waited,
    )
    return [one] * count


def speed_report(target: str = "big", name: str = "tree", turns: int = 4, waited: float = 0.0) -> Report:
    """A made-up report on ar and one method, on two prompts."""
    ratios = ((1.5, 1.4, 1.6), (0.8, 0.7, 0.9), (1.0, 0.9, 1.1))
    compared = [
        Comparison(name=name, than=than, of=of, kind=than, ratio=Median(value=value, low=low, high=high))
        for than, of, (value, low, high) in zip(("ar", "linear", "fixed"), (1, 6, 3), ratios, strict=True)
    ]
    return Report(
        setup=setup(target, name),
        load_after=0.6,
        rows=[row("ar", 100.0), row(name, 150.0)],
        best_generate=None,
        comparisons=compared,
        differences=[
            Difference(name=name, prompt=0, index=7, near_tie=True, gap=0.001),
            Difference(name=name, prompt=1, index=9, near_tie=False, gap=2.0),
            Difference(name=name, prompt=1, index=9, near_tie=None, gap=None),
        ],
        texts={0: [1], 1: [2]},
        samples=records(turns, name, waited),
    )


def rounds_report() -> RoundsReport:
    """A made-up report on trees of one size after texts of two lengths."""
    shape = Shape(matrices=1, head=1, attention=1)
    sizes = [
        Rounds(
            name="2x4",
            context=context,
            rows=4.0,
            levels=2.0,
            round_ms=Median(value=4.5, low=4.25, high=4.75),
            draft_ms=1.0,
            level_ms=0.5,
            verify_ms=3.0,
            commit_ms=0.25,
            host_ms=0.25,
            bandwidth_share=None,
            waits=None,
            tokens_per_second={1.0: 222.0},
            multiply_adds=None,
            kv_bytes=2_000_000,
            peak_bytes=500_000_000,
        )
        for context in (64, 256)
    ]
    grown = Growth(
        name="2x4",
        context=256,
        over=64,
        round=Median(value=1.25, low=1.2, high=1.3),
        level=1.1,
        verify=1.3,
        multiply_adds=1.2,
        beyond=None,
        kv_bytes=1,
        peak_bytes=1,
    )
    return RoundsReport(
        setup=setup(),
        load_after=None,
        arithmetic=Arithmetic(shape, shape),
        rounds=sizes,
        growth=[grown],
        samples=records(4, "tree"),
    )
