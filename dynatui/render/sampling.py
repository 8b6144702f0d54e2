"""Panel: does sampled text follow the target's probabilities, and how often are nodes of sampled trees accepted?"""

from collections.abc import Mapping, Sequence

from decoder.analysis.losslessness import LEAST_TOKENS, AtDepth, Deviation, Evidence, Light, colour
from dynatui.knobs import info, turns
from dynatui.number_format import nth, percent, short
from dynatui.render.ink import Column, Ink, Row, Rows, Sheet, best, framed, share, titled, width_of, wrapped
from dynatui.render.scene import Scene
from dynatui.state.run_state import RunState

_LEAST_BAR, _LONGEST_BAR = 10, 24
_LARGEST = 1000
INKS: Mapping[Light, Ink] = {"grey": "dim", "green": "good", "yellow": "warn", "red": "bad"}
_MEANINGS: Mapping[Light, tuple[str, ...]] = {
    "green": ("no sign of a bias; a light, not a proof", "no sign of a bias"),
    "yellow": ("a larger deviation than chance usually gives: see if it stays", "a larger deviation than usual"),
    "red": ("deviation too large for chance: probably a bug in sampling", "probably a bug in sampling"),
}
_VERDICTS: Mapping[Light, str] = {
    "grey": "lossless ?",
    "green": "lossless ✓",
    "yellow": "lossless ?",
    "red": "not lossless ✗",
}
_LIGHT = (
    "A light, not a proof. Surprise: are the tokens as improbable as the target says? Top-1 hits: is the most probable "
    "token sampled as often as it should be? z is the deviation in standard deviations: by chance it stays below 2.5 "
    "in 79 of 80 checks; red begins at 4. The light does not see biases of a few percent, repeating noise, or a target "
    "with wrong probabilities."
)
_BRIEF = (
    "A light, not a proof: it does not see biases of a few percent, noise that repeats, or a target with wrong "
    "probabilities."
)
_DEPTHS = (
    "visits: how often verification reached a sampled node of this depth. L1: distance of draft and target at these "
    "nodes, 0 same, 2 disjoint. kept: how often the verifier kept one of the samples; expected: how often it should "
    "keep one (- if it judges whole paths); at best: how often any lossless verifier could keep one. ▒: the gain of a "
    "better verifier."
)


@framed
def sampling(scene: Scene, width: int, height: int) -> tuple[Row, Rows]:
    lane, title = scene.state.lane, titled("Sampling", "does the text follow the target's probabilities?")
    if lane.evidence.surprise.count == 0:
        return title, wrapped(((_nothing(scene), "dim"),), width)
    body: Rows = [_lit(lane.evidence, width), *_sums(lane.evidence, width)]
    if lane.draft_depths:
        body += _depths(lane.draft_depths, lane.last_turn, height - len(body), width)
    for wordings in ((_LIGHT, _BRIEF), (_DEPTHS,))[: 1 + bool(lane.draft_depths)]:
        explained = (wrapped([(words, "dim")], width) for words in wordings)
        rows = next((rows for rows in explained if len(body) + len(rows) < height), [])
        body += [(), *rows] if rows else []
    return title, body


def light_words(state: RunState) -> tuple[Row, ...]:
    evidence = state.lane.evidence
    if evidence.surprise.count == 0:
        return ()
    return (((_VERDICTS[evidence.light], INKS[evidence.light]),),)


def _nothing(scene: Scene) -> str:
    state = scene.state
    if state.lane.newest is None:
        return "shows whether sampled text follows the target's probabilities, once there is text"
    if not state.lane.settings.get("temperature"):
        live = not (scene.replaying or scene.following)
        key = f"; {scene.keys.cap(turns(info('temperature'))[1])} raises T" if live else ""
        return f"greedy: each token is the most probable one, and nothing is sampled{key}"
    return (
        "the probabilities of the sampled tokens are not recorded: CUDA graphs computed these rounds, the method does "
        "not show its draft, or the recording is older"
    )


def _lit(evidence: Evidence, width: int) -> Row:
    light, tokens = evidence.light, evidence.surprise.count
    few = (f"too few tokens to judge: {tokens} of {LEAST_TOKENS}", f"{tokens} of {LEAST_TOKENS} tokens")
    sure = ("too little to judge: nearly every token was certain", "nearly every token was certain")
    meanings = _MEANINGS.get(light, few if tokens < LEAST_TOKENS else sure)
    head = f"● losslessness light: {light} "
    return ((head, INKS[light]), (best(width - len(head), *(f" {words}" for words in meanings)), "plain"))


def _sums(evidence: Evidence, width: int) -> Rows:
    surprise, prediction = evidence.surprise, evidence.prediction
    row: Row = (*_z("surprise ", surprise), *_z("  top-1 hits ", evidence.top1))
    rows: Rows = [(*row, (best(max(0, width - width_of(row)), f"  over {surprise.count} tokens"), "dim"))]
    if prediction.count:
        came, expected = (tokens / prediction.count for tokens in (evidence.came_tokens, evidence.predicted_tokens))
        difference = f"  {short(came)} came, {short(expected)} expected, over {prediction.count} rounds"
        row = _z("tokens a round ", prediction)
        rows.append((*row, (best(max(0, width - width_of(row)), difference), "dim")))
    return rows


def _z(name: str, deviation: Deviation) -> Row:
    z = deviation.z
    ink: Ink = "plain" if z is None or colour(z) == "green" else INKS[colour(z)]
    written = "-" if z is None else f"{z:+.1f}" if abs(z) < _LARGEST else f"{z:+.0e}"
    return ((name, "plain"), (f"z {written:<4}", ink))


_COLUMNS: tuple[Column[tuple[int, AtDepth]], ...] = (
    Column("depth", 5, lambda row: str(row[0])),
    Column("visits", 8, lambda row: str(row[1].visits)),
    Column("L1", 7, lambda row: short(row[1].mean_l1)),
    Column("kept", 7, lambda row: percent(row[1].share)),
    Column("expected", 10, lambda row: percent(row[1].mean_acceptance)),
    Column("at best", 9, lambda row: percent(row[1].mean_bound)),
)


def _depths(levels: Sequence[AtDepth], last_turn: int, height: int, width: int) -> Rows:
    sheet = Sheet(_COLUMNS, width)
    length = min(_LONGEST_BAR, width - sheet.cells - 2)
    since = f"  since round {nth(last_turn)}" if last_turn else ""
    rows: Rows = [((f"{sheet.heads}{since}", "dim"),)]
    for depth, level in enumerate(levels, 1):
        accepted = round(length * share(level.share, 1.0))
        bound = max(0, round(length * share(level.mean_bound, 1.0)) - accepted)
        bars: Row = (("  ", "plain"), ("█" * accepted, "accepted"), ("▒" * bound, "bar"))
        rows.append(((sheet.row((depth, level)), "plain"), *(bars if length >= _LEAST_BAR else ())))
    more = len(rows) - height
    return rows if more <= 0 else [*rows[: max(0, height - 1)], ((f"+ {more + 1} deeper", "dim"),)][: max(0, height)]
