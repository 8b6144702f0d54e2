"""Tests of the what-if panel: its contents and layout, and that it claims no more than the data support."""

from dataclasses import replace

import pytest
from msgspec import structs

from decoder.analysis.what_if import Grid, GridCell, WhatIf
from dynatui.render import palette
from dynatui.render.ink import in_ascii
from dynatui.render.race import race
from dynatui.render.scene import Scene
from dynatui.render.text import HOT
from dynatui.render.what_if import whatif
from dynatui.render.words import remedy
from dynatui.render.work import work
from dynatui.state.run_state import RunState, apply
from tests.dynatui.scripted_runs import lines, plain_round, run, running, state_of, text_of, tree_round

SURE = GridCell(20, 20, 3.0, 20, 9.0)
TIMED = replace(SURE, seconds=0.02)
TAU_H = (0.5, 0.6, 0.7, 0.8, 0.9)
TAU_L = (0.2, 0.3, 0.4, 0.5, 0.6)
DEPTHS = (3.0, 4.0, 5.0, 6.0, 7.0)


def _what_if(**changed: GridCell) -> WhatIf:
    def cells(table: str) -> tuple[tuple[GridCell, ...], ...]:
        return tuple(tuple(changed.get(f"{table}{row}{column}", SURE) for column in range(5)) for row in range(5))

    return WhatIf(
        Grid("tau_h", TAU_H, DEPTHS, cells("h"), (2, 2)), Grid("tau_l", TAU_L, DEPTHS, cells("l"), (2, 2)), 20
    )


def _panel(found: WhatIf | None, width: int = 80, height: int = 14) -> list[str]:
    return lines(whatif(replace(running(), whatif=found), width, height))


def _said(found: WhatIf) -> str:
    return " ".join(line.strip("│ ").strip() for line in _panel(found, 120, 18))


def test_every_cell_shows_tokens_a_round_and_a_second_and_the_knobs_stand_in_brackets() -> None:
    panel = _panel(_what_if(h00=replace(TIMED, tokens=2.0), h24=replace(TIMED, tokens=4.0, seconds=0.04)))
    assert panel[1].startswith("│ τh draft sure from ↓  D0 base depth →  tokens a round, tokens/s")
    assert panel[2].split() == ["│", "τh\\D0", "3", "4", "[5]", "6", "7", "│"]
    assert panel[3].startswith("│  0.50  ▁2.00 100/s")
    assert panel[5].split()[1] == "[0.70]"
    assert "▇4.00 100/s" in panel[5]


def test_a_bound_has_a_plus_and_what_is_not_known_a_question_mark() -> None:
    bound, doubtful = GridCell(20, 12, 3.2, 11, 9.5), GridCell(20, 4, 9.0, 4, 30.0)
    panel = _panel(_what_if(h20=bound, h21=doubtful))
    assert "▇3.20+ " in panel[5]
    assert "?" in panel[5]
    assert "9.00" not in " ".join(panel)
    assert "20-100% judged" in panel[0]


def test_the_title_says_that_it_is_an_estimate_and_from_how_much() -> None:
    assert "estimate: the last 20 rounds under other knobs, 100% judged" in _panel(_what_if())[0]
    assert "estimate, 100% judged" in _panel(_what_if(), 40)[0]


def _timed(**changed: GridCell) -> WhatIf:
    same = {f"{table}{row}{column}": TIMED for table in "hl" for row in range(5) for column in range(5)}
    return _what_if(**same | changed)


def test_the_fastest_cell_is_told_in_words_although_another_has_more_tokens_a_round() -> None:
    said = _said(_timed(l04=replace(TIMED, tokens=3.4, seconds=0.04), h31=replace(TIMED, tokens=2.7, seconds=0.015)))
    assert "τh 0.80 with D0 4 is estimated to be 20% faster than the knobs as they are, 150 tokens/s." in said


def test_where_no_cell_is_faster_that_is_said() -> None:
    said = _said(_timed(l04=replace(TIMED, tokens=3.01), h31=GridCell(20, 15, 9.0, 20, 9.0, 0.001)))
    assert "No cell is estimated to be faster than the knobs as they are, 150 tokens/s" in said


def limited(found: WhatIf | None) -> Scene:
    rounds = [structs.replace(tree_round(number), draft_s=0.015) for number in range(40)]
    plain = [plain_round("ar", number) for number in range(40)]
    return replace(running(), state=state_of([run(), *rounds, *plain]), whatif=found)


@pytest.mark.parametrize("found", [None, _timed(), _timed(h31=replace(TIMED, tokens=2.7, seconds=0.015))])
def test_race_work_and_what_if_name_the_same_remedy(found: WhatIf | None) -> None:
    scene = limited(found)
    helps = remedy(scene)
    assert helps is not None
    panels = {draw: " ".join(" ".join(lines(draw(scene, 150, 40))).split()) for draw in (race, work, whatif)}
    assert helps.helps in panels[race]
    assert f"What would help: {helps.whole}." in panels[work]
    if found is not None:
        assert helps.helps in panels[whatif] or helps.hint in panels[whatif]


def test_smaller_trees_are_no_remedy_where_no_other_size_is_estimated_to_be_faster() -> None:
    unknown, settled = (remedy(limited(found)) for found in (None, _timed()))
    assert unknown is not None
    assert settled is not None
    assert "trees" in unknown.whole
    assert "trees" not in settled.whole


def test_the_best_cell_is_told_in_words() -> None:
    said = _said(_what_if(l04=replace(SURE, tokens=3.4, drafted=12.0)))
    assert (
        "τl 0.20 with D0 7 would have given 3.40 tokens a round, 12.0 drafted; "
        "the knobs as they are give 3.00 tokens a round, 9.0 drafted." in said
    )


def test_a_gain_that_is_a_bound_is_called_so() -> None:
    said = _said(_what_if(h33=GridCell(20, 15, 3.4, 15, 12.0)))
    assert "τh 0.80 with D0 6 would have given at least 3.40 tokens a round, at least 12.0 drafted;" in said


def test_two_bounds_are_not_compared() -> None:
    present, other = GridCell(20, 15, 3.1, 15, 9.0), GridCell(20, 15, 3.4, 15, 9.0)
    assert "; it is unknown which gives more." in _said(_what_if(h22=present, l22=present, h33=other))


def test_the_same_for_less_is_told() -> None:
    said = _said(_what_if(h02=replace(SURE, drafted=5.0)))
    assert "No cell certainly gives more; τh 0.50 with D0 5 gives the same, 5.0 drafted: the knobs as they are" in said


def test_where_nothing_is_better_that_is_said() -> None:
    assert "No cell certainly gives more: the knobs as they are give 3.00 tokens a round, 9.0 drafted." in _said(
        _what_if()
    )


def test_where_too_little_is_known_nothing_is_claimed() -> None:
    doubtful = GridCell(20, 2, 3.0, 2, 9.0)
    assert "The recorded trees do not suffice yet" in _said(_what_if(h22=doubtful, l22=doubtful))


@pytest.mark.parametrize(
    ("size", "tables"), [((160, 14), 2), ((100, 14), 2), ((80, 24), 2), ((80, 14), 1), ((60, 4), 0)]
)
def test_as_many_tables_as_there_is_room_for(size: tuple[int, int], tables: int) -> None:
    panel = "\n".join(_panel(_what_if(), *size))
    assert ("τh\\D0" in panel) + ("τl\\D0" in panel) == tables
    assert "No cell certainly" in panel


def test_a_narrow_panel_keeps_the_columns_around_the_knobs() -> None:
    assert _panel(_what_if(), 36)[2].split() == ["│", "τh\\D0", "4", "[5]", "6", "│"]


def test_the_most_tokens_have_the_colour_of_what_is_good_and_none_that_of_what_is_slow() -> None:
    found = _what_if(h20=replace(SURE, tokens=1.0), h21=replace(SURE, tokens=2.0), h24=replace(SURE, tokens=4.0))
    inks = {text: ink for row in whatif(replace(running(), whatif=found), 80, 14) for text, ink in row}
    roles = {text: palette._ATTRIBUTES[inks[text]][0] for text in ("▁1.00", "▃2.00", "▅3.00", "▇4.00")}
    assert roles["▇4.00"] == palette._ATTRIBUTES["good"][0]
    assert not set(roles.values()) & {palette._ATTRIBUTES[ink][0] for ink in HOT[-2:]}


def test_in_ascii_the_heat_can_still_be_told() -> None:
    found = _what_if(h20=replace(SURE, tokens=1.0), h21=replace(SURE, tokens=2.0), h24=replace(SURE, tokens=4.0))
    row = text_of(in_ascii(whatif(replace(running(), whatif=found), 80, 14))[5])
    assert row.isascii()
    assert all(figure in row for figure in ("_1.00", ".2.00", "=3.00", "#4.00"))


def test_what_is_missing_is_explained() -> None:
    assert "appear after the first rounds" in " ".join(_panel(None, 120))
    plain = apply(apply(RunState(), run(("ar",))), plain_round("ar", 0))
    assert "ar has no tree with knobs" in " ".join(lines(whatif(Scene(state=plain), 78, 8)))


def test_under_an_automatic_number_of_nodes_the_panel_says_what_it_takes_for_granted() -> None:
    said = [_said(found) for found in (_what_if(), replace(_what_if(), by_costs=True))]
    assert ["auto drafts only nodes that save time" in one for one in said] == [False, True]
