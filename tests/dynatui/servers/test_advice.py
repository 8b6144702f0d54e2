"""Advice: the best number of drafted tokens by load, the best draft, and "no draft pays"."""

import pytest
from msgspec import structs

from decoder.errors import ConfigError
from dynatui.cli.advise import named_device
from dynatui.servers.advice import Advice, advised
from dynatui.servers.costs import source
from dynatui.servers.engines import ENGINES, Band, Engine
from dynatui.servers.profile_file import Costs, Grouped, Profile, StepPoint, Stopped, Trees
from tests.dynatui.servers.profiles import CODE, HEAD, WRITING, acceptance, chains, constant, draft, profile

VLLM, SGLANG, LLAMA_CPP, TRANSFORMERS = (ENGINES[name] for name in ("vllm", "sglang", "llama.cpp", "transformers"))
SLOW = structs.replace(HEAD, weights_bytes=14e9, pass_bytes=14e9, weights=7e9)


def advice(
    given: Profile, engine: Engine = VLLM, streams: tuple[int, int] = (1, 64), gpu: str = "H100", **further: str
) -> Advice:
    return advised(given, source(given, on=named_device(gpu)), engine, streams, **further)


def ks(bands: tuple[Band, ...]) -> list[int]:
    return [band.k for band in bands]


def test_fewer_tokens_are_drafted_the_more_requests_run() -> None:
    found = advice(profile({"head": draft(CODE)}), streams=(1, 1024))
    assert found.deployment is not None
    bands = found.deployment.bands
    assert ks(bands) == sorted(ks(bands), reverse=True)
    assert ks(bands)[0] > 4 > ks(bands)[-1]
    assert [band.first for band in bands] == [1, *(band.last + 1 for band in bands[:-1])]
    assert bands[-1].last == 1024


def test_at_no_load_are_drafts_advised_that_slow_it_down() -> None:
    for rate in (0.3, 0.4, 0.5, 0.6):
        found = advice(profile({"head": draft(constant(rate))}), streams=(1, 1024)).drafts[0]
        assert min(found.best.speedups) >= 1


def test_a_better_draft_drafts_more_tokens_and_comes_first() -> None:
    found = advice(profile({"prose": draft(WRITING), "code": draft(CODE)}))
    code, prose = found.drafts
    assert (code.draft, prose.draft) == ("code", "prose")
    assert code.best.best[0] > prose.best.best[0]
    assert code.gain > prose.gain > 1
    assert found.deployment is not None
    assert found.deployment.draft == "code"


def test_speed_ups_and_break_even_are_those_of_the_model() -> None:
    given = profile({"head": draft(CODE, around=0.2)})
    costs = source(given, on=named_device("H100")).costs["head"]
    chain = advice(given).drafts[0].chains[3]
    plain_s, draft_s = costs.target.seconds(16, 1, 1000), costs.draft.seconds(16, 1, 1000)
    round_s = 4 * draft_s + costs.target.seconds(16, 5, 1000)
    assert chain.length == pytest.approx(1 + sum(CODE[:4]))
    assert chain.interval == pytest.approx((chain.length - 0.2, chain.length + 0.2))
    assert chain.break_even[2] == pytest.approx(round_s / plain_s)
    assert chain.speedups[2] == pytest.approx(chain.length * plain_s / round_s)


def test_no_draft_pays_where_passes_of_the_draft_cost_as_much_as_it_saves() -> None:
    found = advice(profile({"slow": draft(constant(0.3), kind="model", size=SLOW)}))
    assert found.deployment is None
    assert found.drafts[0].k == 0
    assert found.drafts[0].best.speedups == (1.0,) * len(found.loads)
    assert found.commands.advised is None
    assert found.commands.baseline == "vllm serve org/Target-8B"


def test_an_engine_without_a_schedule_is_told_the_best_number_for_all_loads() -> None:
    given = profile({"head": draft(CODE, kind="model")})
    found = advice(given, LLAMA_CPP, (1, 1024))
    assert found.deployment is not None
    assert found.deployment.bands == ()
    assert found.drafts[0].curve.advised[0] == pytest.approx(found.drafts[0].chains[found.deployment.k - 1].speedups[0])
    by_load = advice(given, streams=(1, 1024)).drafts[0].bands
    assert min(ks(by_load)) < found.deployment.k < max(ks(by_load))


def test_a_schedule_begins_at_one_request_also_if_the_loads_do_not() -> None:
    found = advice(profile({"head": draft(CODE)}), streams=(8, 64))
    assert found.deployment is not None
    assert (found.deployment.bands[0].first, found.loads[0]) == (1, 8)
    assert advice(profile({"small": draft(CODE, kind="model")}), TRANSFORMERS).loads == (1,), "it does not batch"


def test_drafts_that_an_engine_or_the_costs_do_not_know_are_left_out_with_the_reason() -> None:
    unknown = draft(CODE, size=None)
    given = profile({"head": draft(CODE), "unknown": unknown}, draft_errors={"broken": "cannot be read"})
    assert set(advice(given).left_out) == {"unknown", "broken"}
    left_out = advice(given, TRANSFORMERS).left_out
    assert left_out["head"] == "Hugging Face transformers does not draft with EAGLE-3 heads"


def test_drawn_tokens_are_advised_where_the_engine_has_them_and_they_are_accepted_more_often() -> None:
    small = draft(WRITING, kind="model", probabilistic=Grouped(**chains(CODE)))
    given = profile({"small": small}, temperature=0.7)
    assert advice(given).drafts[0].rule == "probabilistic"
    assert advice(given, SGLANG).drafts[0].rule == "greedy"
    assert advice(given).drafts[0].gain > advice(given, SGLANG).drafts[0].gain


def test_a_least_probability_is_advised_if_it_saves_more_passes_than_tokens() -> None:
    sure = Stopped(p_min=0.5, rounds=1000, survival=tuple(0.95 * rate for rate in CODE), drafted=2.7)
    small = structs.replace(HEAD, weights_bytes=3e9, pass_bytes=3e9, weights=1.5e9)
    given = profile({"small": draft(CODE, kind="model", size=small, confidence=(sure,))})
    found = advice(given, LLAMA_CPP, (1, 4))
    stop = found.drafts[0].stop
    assert stop is not None
    assert (stop.p_min, stop.k) == (0.5, 8)
    assert stop.length == pytest.approx(1 + 0.95 * sum(CODE))
    assert min(stop.speedups) > max(found.drafts[0].best.speedups)
    assert found.commands.stopped is not None
    assert "--spec-draft-p-min 0.5" in found.commands.stopped.text
    assert "--spec-draft-p-min" not in f"{found.commands.advised} {found.commands.synthetic}"
    useless = structs.replace(given.drafts["small"], confidence=(structs.replace(sure, drafted=7.9),))
    assert advice(profile({"small": useless}), LLAMA_CPP, (1, 4)).drafts[0].stop is None


def test_a_tree_can_pay_only_if_siblings_are_right_where_the_chain_is_not() -> None:
    rarely = Trees(mismatches=900, siblings=(0.004, 0.002, 0.0), continuation=(0.1, 0.0))
    often = Trees(mismatches=900, siblings=(0.45, 0.2, 0.1), continuation=(0.6, 0.3))
    verdicts = {}
    for name, trees in (("rarely", rarely), ("often", often)):
        found = advice(profile({"head": draft(WRITING, trees=trees)}), SGLANG, (1, 4))
        bound = found.drafts[0].tree
        assert bound is not None
        verdicts[name] = bound.pays, found.commands.tree is not None
    assert verdicts == {"rarely": (False, False), "often": (True, True)}
    assert advice(profile({"head": draft(WRITING, trees=often)}), VLLM).drafts[0].tree is None


def test_memory_of_the_draft_is_told_in_tokens_of_kv_cache() -> None:
    memory = advice(profile({"head": draft(CODE)}), gpu="H100").drafts[0].memory
    assert memory is not None
    assert memory.tokens == pytest.approx((0.9 * 80e9 - 16e9) / 131072)
    assert memory.tokens_left == pytest.approx((0.9 * 80e9 - 16.9e9) / (131072 + 4096))


def test_a_group_of_contexts_has_its_own_acceptance_and_its_own_costs() -> None:
    groups = {"<1k": acceptance(CODE), ">=16k": acceptance(WRITING)}
    short, long = advice(profile({"head": draft(CODE, by_context=groups)})).drafts[0].contexts
    assert (short.context, long.context) == ("<1k", ">=16k")
    assert short.speedups[0] > long.speedups[0]
    same = advice(profile({"head": draft(CODE, by_context=dict.fromkeys(groups, acceptance(CODE)))})).drafts[0].contexts
    assert same[1].best[-1] > same[0].best[-1], "longer texts make reading the larger part of a step (MagicDec)"


def test_a_category_is_advised_by_its_own_rounds() -> None:
    given = profile({"head": draft(WRITING, by_category={"code": acceptance(CODE)}), "other": draft(CODE)})
    found = advice(given, category="code")
    assert found.drafts[0].chains[-1].length == pytest.approx(1 + sum(CODE))
    assert found.left_out == {"other": "no rounds of category 'code'"}
    with pytest.raises(ConfigError, match="no draft has rounds of category 'poems'; give one of code"):
        advice(given, category="poems")


def test_lookups_cost_no_pass_and_a_round_without_a_match_no_rows() -> None:
    given = profile({"lookup": draft(constant(0.5), kind="lookup", size=None)})
    assert advice(given).drafts[0].chains[0].break_even[0] == pytest.approx(1, rel=1e-2)
    seldom = structs.replace(given.drafts["lookup"], drafted=(0.1,) * 8)
    often, rare = (advice(profile({"lookup": each}), streams=(512, 512)) for each in (given.drafts["lookup"], seldom))
    assert rare.drafts[0].chains[-1].break_even[0] < often.drafts[0].chains[-1].break_even[0]


POINTS = tuple(
    StepPoint(running=load, k=k, step_s=1e-3 * (10 + 0.2 * load + (2 + 0.1 * load) * k), steps=50)
    for load in (1, 8, 32)
    for k in (0, 4)
)


def test_costs_come_from_the_best_source_and_are_named() -> None:
    here = Costs(source="measured", device="cpu", target_s={1: 0.01, 16: 0.02}, draft_s={"head": 0.001})
    given = profile({"head": draft(CODE)}, costs=here)
    served = source(given, points=POINTS, on=named_device("H100"))
    assert served.words.startswith("steps of a running server: 6 readings, 1 to 32 running requests, K 0, 4")
    drafting = [structs.replace(each, k=each.k + 1) for each in POINTS]
    assert (served.at_most, source(given, points=drafting).at_most) == (False, True)
    timed = source(given, step_s=0.0377, draft_s=(0.026,), drafting_s=0.035)
    given_times = "37.70 ms a step, 35.00 ms more with drafts, 26.00 ms more for each token of head"
    assert timed.words == f"given times: {given_times}; the same at every load"
    of_device = source(given, on=named_device("2xH100"))
    assert of_device.words == "the data sheet of 2xH100 (roofline)"
    assert (timed.at_most, of_device.at_most, source(given).at_most) == (True, True, False)
    measured = source(given)
    assert measured.words == "passes measured on cpu, without what a server adds"
    assert measured.costs["head"].draft.seconds(1, 1) == pytest.approx(0.001)
    for costs in (None, Costs(source="measured")):
        with pytest.raises(ConfigError, match="the profile has no costs of passes; give --roofline DEVICE"):
            source(structs.replace(given, costs=costs))
