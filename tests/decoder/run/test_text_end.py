"""At the end of a text, drafted, accepted and committed tokens are cut alike; what a run tells keeps its laws."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoder import RunConfig, load_pair
from decoder.events import LENGTH, Draws, End, Round, Verification
from decoder.run.text_end import within
from decoder.tree import depths
from dynatui.record.reader import read_events
from tests import tiny
from tests.decoder.every_decoder import TOKENIZERS
from tests.decoder.laws.lawful import assert_consistent, assert_lawful
from tests.decoder.laws.races import TWICE
from tests.decoder.makers import TinyModels, methods_of, play
from tests.decoder.rounds import a_round

TRACES = Path(__file__).parents[2] / "traces"


@st.composite
def rounds(draw: st.DrawFn) -> tuple[Round, int]:
    """A verified round with all fields of a tree, and the number of tokens left in its text."""
    parents = [-1, *(draw(st.integers(max(0, node - 3), node - 1)) for node in range(1, draw(st.integers(1, 24))))]
    path, above = list[int](), 0
    for _ in range(draw(st.integers(0, len(parents)))):
        children = [node for node, parent in enumerate(parents) if parent == above and node]
        if not children:
            break
        above = draw(st.sampled_from(children))
        path.append(above)
    method = draw(st.sampled_from(["dynatree", "alg1"]))
    if method == "alg1" and (path or draw(st.booleans())):
        path = [0, *path]
    left = draw(st.integers(1, 26))
    ended = draw(st.integers(1, len(path) + 1))
    nodes = len(parents)
    event = a_round(
        method,
        parents,
        tokens=list(range(100, 100 + nodes)),
        logprobs=[-float(node) for node in range(nodes)],
        draft_logprobs=[-float(node) - 1 for node in range(nodes)],
        pieces=[str(node) for node in range(nodes)],
        drawn=[1] * nodes,
        origins=["root" if node == 0 else "draft" for node in range(nodes)],
        accepted=path,
        committed=[*(100 + node for node in path), 7][: min(left, ended)],
        limited_by="d0",
        verification=Verification(
            surprise=0.0,
            surprise_variance=1.0,
            top1=0.0,
            top1_variance=1.0,
            predicted_tokens=math.fsum([0.5**depth for depth in depths(parents)]),
            reach=[0.5**depth for depth in depths(parents)],
            path=[Draws(count=1, accepted=True, l1=0.1, acceptance=0.5, bound=0.6) for _ in path],
        ),
    )
    return event, left


@given(rounds())
def test_every_committed_token_but_the_last_is_an_accepted_node_and_trees_are_cut_once(
    case: tuple[Round, int],
) -> None:
    told, left = within(*case), case[1]
    assert [told.tokens[node] for node in told.accepted] == told.committed[:-1]
    assert told.committed == case[0].committed
    assert within(told, left) == told, "what is cut is cut once"
    found = told.verification
    assert found is not None
    assert len(found.reach) == len(told.tokens)
    assert found.predicted_tokens in (None, pytest.approx(math.fsum(found.reach)))
    assert len(found.path) <= max(len(told.accepted), left - 1)


@given(rounds())
def test_of_the_tree_every_node_stays_that_the_text_has_room_for_and_no_other(case: tuple[Round, int]) -> None:
    event, left = case
    told = within(event, left)
    first = event.method == "alg1"
    levels = {token: depth + first for token, depth in zip(event.tokens, depths(event.parents), strict=True)}
    assert told.tokens == [token for token in event.tokens if levels[token] < left or token == event.tokens[0]]
    by_token = {token: node for node, token in enumerate(event.tokens)}
    for node, token in enumerate(told.tokens):
        before = by_token[token]
        above, above_before = told.parents[node], event.parents[before]
        assert (above, above_before) == (-1, -1) or told.tokens[above] == event.tokens[above_before]
        for name in ("logprobs", "draft_logprobs", "pieces", "drawn", "origins"):
            assert getattr(told, name)[node] == getattr(event, name)[before]
    beyond = told.tokens != event.tokens or any(levels[event.tokens[node]] >= left for node in event.accepted)
    assert told.limited_by == (LENGTH if beyond else "d0")


@pytest.mark.parametrize("trace", sorted(TRACES.glob("*.jsonl")), ids=lambda path: path.stem)
def test_the_identities_hold_in_recordings_of_every_schema(trace: Path) -> None:
    assert_consistent(read_events(trace))


@pytest.mark.parametrize("place", [3, 9, 16])
def test_the_laws_hold_where_end_of_text_comes_first(tiny_models: TinyModels, place: int) -> None:
    end = tiny_models.generate(tiny_models.pair("neox"), "float32", TWICE, 40)[place]
    engine = tiny_models.loaded(tiny_models.ending("neox", eos_token_id=end), "float32")
    race = play(engine, RunConfig(methods_of("neox"), 40), TWICE)
    assert all(event.reason == "eos" for event in race.events if isinstance(event, End))
    assert_lawful(race, engine)


@pytest.mark.parametrize("name", ["llama", "gemma"])
def test_every_method_tells_the_decoding_of_its_tokens_with_byte_fallback(name: str, tmp_path: Path) -> None:
    tokenizer = TOKENIZERS[name]()
    target = tiny.build(tiny.FAMILIES["llama"](vocab_size=len(tokenizer)), seed=1)
    models = {"target": target, "draft": tiny.kin(target, 2)}
    paths = [str(tiny.save(tmp_path / role, model, tokenizer)) for role, model in models.items()]
    engine = load_pair(*paths, device="cpu", dtype="float32")
    race = play(engine, RunConfig(("ar", "linear", "dynatree"), 60), "สวัสดี the tree")
    assert_lawful(race, engine)
    drafted = {piece for event in race.events if isinstance(event, Round) for piece in event.pieces}
    assert any(piece.startswith("<0x") for piece in drafted)
    assert "\N{REPLACEMENT CHARACTER}" not in drafted
