"""Facts on the token under the cursor, the most important first, since a small panel omits the last ones."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from decoder.analysis.metrics import Tally, drafted_nodes, first_difference
from decoder.events import Round
from decoder.methods import root_is_drafted
from dynatui.knobs import info
from dynatui.number_format import counted, ms, nth, percent, short
from dynatui.render.ink import DOT, Ink, Row, Rows, fit, fitting, framed, joined, share, titled, width_of, wrapped
from dynatui.render.rounds import (
    chance_percent,
    draws_after,
    is_drawn,
    kept_chance,
    looked_up,
    piece_text,
    probability,
    round_of,
)
from dynatui.render.scene import Scene
from dynatui.render.words import is_alone, shape_sentence, tie_words, written
from dynatui.state.run_state import RunState
from dynatui.state.tokens import Token

_LABEL = 8
Part: TypeAlias = str | Row
"""A part of a fact; of each fact, the most important part comes first, since a narrow panel omits the last parts."""


@framed
def inspect(scene: Scene, width: int, height: int) -> tuple[Row, Rows]:
    token, state = scene.inspected, scene.newest_state
    if token is None:
        hint = "put the cursor on a token of the text to see here why it was chosen"
        return titled("Why this token"), [((hint, "dim"),)]
    event = round_of(state, token)
    index = scene.cursor if event is None else position(event, token)
    tally = state.race.tallies.get(scene.state.watched, Tally())
    facts = {"token": _origin(token)} if event is None else _facts(scene, token, event)
    return titled("Why this token", f"index {index} of {len(tally.tokens)} tokens"), _rows(facts, width, height)


def position(event: Round, token: Token) -> int:
    """Number of tokens generated before this token."""
    return event.position + token.depth - 1


def rivals(event: Round, token: Token) -> list[int]:
    """The rejected nodes at the token's position, most probable first."""
    token_node = node_of(event, token)
    if token.origin == "plain":
        return []
    if token_node is not None:
        parent = event.parents[token_node]
    else:
        parent = event.accepted[-1] if event.accepted else -1 if root_is_drafted(event.method) else 0
    children = (node for node, above in enumerate(event.parents) if above == parent and node not in (token_node, 0))
    siblings = [0] if parent == -1 and token_node is None else children
    return sorted(siblings, key=lambda node: (-event.logprobs[node], node))


def node_of(event: Round, token: Token) -> int | None:
    """The token's node in the round's tree; None if the token was not drafted."""
    return token.node if token.node is not None and token.node < len(event.tokens) else None


def _facts(scene: Scene, token: Token, event: Round) -> dict[str, Sequence[Part]]:
    state, drawn = scene.newest_state, is_drawn(event)
    sampled = bool(scene.state.lane.setting("temperature", event.round))
    lost = [_node_row(event, node) for node in rivals(event, token)]
    lost[:1] = [(("lost: ", "dim"), *row) for row in lost[:1]]
    facts: dict[str, Sequence[Part]] = {"token": _origin(token, event)}
    facts["draft"] = _drew(event, token) if drawn else _draft(event, token, sampled=sampled)
    if drawn:
        facts["verify"] = _verify(scene.state, event, token)
    facts["target"] = [*_target(state, event, token), *lost]
    facts |= {"knobs": _knobs(scene.state, event, token), "round": _cost(event, token)}
    if sampled and event.draft_logprobs and scene.state.run:
        source = f"decided by seed {scene.state.run.seed} and the position in the text"
        facts["noise"] = [source, "chances are estimates by the draft, given this noise"]
    return facts


def _rows(facts: Mapping[str, Sequence[Part]], width: int, height: int) -> Rows:
    """One row for each fact; while spare rows remain, a long fact gets several rows."""
    rows: Rows = []
    spare = height - len(facts)
    for label, parts in facts.items():
        contents: list[Row] = [((part, "plain"),) if isinstance(part, str) else part for part in parts or ["-"]]
        whole = wrapped(joined(contents, DOT), width - _LABEL)
        if len(whole) - 1 > spare:
            whole = [_cut(contents, width - _LABEL)]
        spare -= len(whole) - 1
        rows += [((f"{label if row is whole[0] else '':<{_LABEL}}", "dim"), *row) for row in whole]
    return rows


def _cut(parts: Sequence[Row], width: int) -> Row:
    """As many whole parts as fit; if the first part alone does not fit, it is cut with an ellipsis."""
    if width_of(parts[0]) > width:
        return (*fit(parts[0], width - 1), ("…", "dim"))
    return fitting([parts[0], *((*DOT, *part) for part in parts[1:])], width)


def _origin(token: Token, event: Round | None = None) -> list[Part]:
    name: Row = ((f" {piece_text(token.text)} ", "caret"), (" ", "plain"))
    match token.origin:
        case "accepted":
            token_node = node_of(event, token) if event else None
            from_lookup = event is not None and token_node is not None and looked_up(event, token_node)
            guess = "looked up in the text" if from_lookup else "a guess of the draft"
            place = f"round {nth(token.round)}, depth {token.depth}"
            return [(*name, (f"{guess}, accepted", "accepted")), place]
        case "bonus":
            guesses = counted(token.depth - 1, "guess", "es")
            after = f"{guesses} accepted before it" if token.depth > 1 else "nothing was accepted"
            return [(*name, ("the target's own", "bonus")), f"round {nth(token.round)}", after]
        case _:
            return [(*name, ("written by a method that does not show its draft", "plain"))]


def _draft(event: Round, token: Token, *, sampled: bool) -> list[Part]:
    if event.draft_forwards is None:
        return ["this method does not report its draft"]
    if drafted_nodes(event) == 0:
        return ["guessed nothing in this round"]
    rival_nodes, token_node = rivals(event, token), node_of(event, token)
    if token_node is None:
        if rival_nodes:
            return [f"did not propose it: {counted(len(rival_nodes), 'guess', 'es')} here, all wrong"]
        return ["the tree ends before it: all guesses on the way were right"]
    better = [node for node in rival_nodes if event.logprobs[node] > event.logprobs[token_node]]
    rank = "its first choice" if not better else f"its choice {len(better) + 1}"
    ranked = f"{rank} of {len(rival_nodes) + 1}" if rival_nodes else "its only guess here"
    chance = _drafted_chance(event, token_node)
    if event.draft_logprobs:
        how = "with this noise" if sampled else "estimated"
        chance = f"{chance_percent(probability(event.draft_logprobs[token_node]))}, {chance} {how}"
    verb = "found it in the text: " if looked_up(event, token_node) else "gave it "
    parts: list[Part] = [f"{verb}{chance}, {ranked}"]
    return [*parts, (("preferred ", "plain"), *_node_row(event, rival_nodes[0]))] if better else parts


def _drew(event: Round, token: Token) -> list[Part]:
    token_node, draws = node_of(event, token), draws_after(event, token.depth - 1)
    if token_node is None:
        rival_count = draws.count if draws else len(rivals(event, token))
        others = f"this token is not among the {rival_count} tokens drawn here"
        return [others if rival_count else "drew nothing here: the tree ends before it"]
    count = max([1, *event.drawn[token_node : token_node + 1]])
    often = "once" if count == 1 else f"{count} times"
    if draws is not None:
        often = "in its only draw here" if draws.count == 1 else f"{often} in {draws.count} draws here"
    chance = _drafted_chance(event, token_node)
    return [f"drew it {often}", f"each draw picks it with chance {chance}"]


def _verify(state: RunState, event: Round, token: Token) -> list[Part]:
    token_node, draws = node_of(event, token), draws_after(event, token.depth - 1)
    place = state.lane.setting("verifier", event.round)
    name = "the verifier" if place is None else written(info("verifier"), place)
    if token_node is not None:
        chance = kept_chance(event, token_node)
        verdict = f"{name} kept it{'' if chance is None else f': {chance_percent(chance)} likely, given this tree'}"
    elif draws is not None:
        verdict = f"{name} kept no guess; this token is sampled from the rest of the target's distribution"
    elif rivals(event, token):
        verdict = f"{name} kept no guess"
    else:
        verdict = "nothing to verify here: the target alone sampled this token"
    if draws is None:
        return [verdict]
    bound = f"no lossless verifier keeps one more often than {chance_percent(draws.bound)} of the time"
    often = "an unknown share" if draws.acceptance is None else chance_percent(draws.acceptance)
    statement = f"keeps one of {counted(draws.count, 'such draw')} {often} of the time; {bound}"
    distance = f"L1 distance of draft and target {short(draws.l1)}: 0 same, 2 disjoint"
    return [verdict, statement, distance]


def _target(state: RunState, event: Round, token: Token) -> list[Part]:
    heat = state.lane.setting("temperature", event.round)
    choice = f"sampled this at T {written(info('temperature'), heat)}" if heat else "chose exactly this"
    if is_alone(state, state.watched):
        return [choice, "noise differs from that of ar: not compared"]
    return [*_compared(state, event, token, choice), *(["all methods have the same noise"] if heat else [])]


def _compared(state: RunState, event: Round, token: Token, choice: str) -> list[Part]:
    tally, ar = state.race.tallies.get(state.watched), state.race.tallies.get("ar")
    first = position(event, token)
    last = first + (len(event.committed) - 1 if token.origin == "plain" else 0)
    if tally is None or ar is None or state.watched == "ar":
        return [choice]
    differs, figures = first_difference(tally.tokens, ar.tokens), state.figures()[state.watched]
    ink: Ink = "warn" if figures.identical_to_ar is False else "dim"
    if differs is not None and first > differs:
        return [choice, (("not ar's text: ", ink), (f"first difference at token {differs}", "plain"))]
    if differs is not None and differs <= last:
        return [choice, ((f"ar has a different token here{tie_words(figures, ': ')}", ink),)]
    return [choice if last >= len(ar.tokens) else f"{choice}, as did ar"]


def _node_row(event: Round, node: int) -> Row:
    return ((piece_text(event.pieces[node]), "strong"), (f" {_drafted_chance(event, node)}", "plain"))


def _drafted_chance(event: Round, node: int) -> str:
    return chance_percent(probability(event.logprobs[node]))


def _knobs(state: RunState, event: Round, token: Token) -> list[Part]:
    if event.knobs is None:
        return [shape_sentence(state, event) or "no τh, τl, D0 in this method"]
    knobs = event.knobs
    values = f"τh {short(knobs.tau_h)} τl {short(knobs.tau_l)} D0 {short(knobs.d0, 1)}"
    token_node = node_of(event, token)
    guesses = [*rivals(event, token), *([] if token_node is None else [token_node])]
    if not guesses:
        return [values]
    best = max(probability(event.logprobs[node]) for node in guesses)
    side = "over τh" if best >= knobs.tau_h else "under τl" if best < knobs.tau_l else "between"
    return [values, f"best guess {chance_percent(best)}, {side}: {counted(len(guesses), 'guess', 'es')}"]


def _cost(event: Round, token: Token) -> list[Part]:
    drafted, accepted = drafted_nodes(event), len(event.accepted)
    parts = {"draft": event.draft_s, "verify": event.verify_s, "commit": event.commit_s}
    split = [f"{name} {ms(part)}" for name, part in parts.items() if part is not None]
    whole = f"{ms(token.spent_s * max(1, len(event.committed)))} ms"
    facts: list[Part] = [f"{whole}: {' '.join(split)}" if split else whole]
    if event.stalled_s:
        facts.append(f"{ms(event.stalled_s)} ms without a processor")
    if drafted and event.draft_forwards is not None:
        facts.append(f"{accepted} of {drafted} used, {percent(share(accepted, drafted))}")
    return facts
