"""Panel: does sampled text follow the target's probabilities, and how often are nodes of sampled trees accepted?"""

from collections.abc import Mapping

from decoder.analysis.losslessness import LEAST_TOKENS, AtDepth, Deviation, Evidence, Light, colour
from dynatui.knobs import info, turns
from dynatui.number_format import nth, percent, short
from dynatui.render.ink import Ink, Row, Rows, best, frame, inside, share, width_of, wrapped
from dynatui.render.scene import Scene
from dynatui.state.run_state import RunState

_AIRY = 10
"""Least height of the panel, in rows, at which each statistic has a row of its own."""
_NAME = 16
_BEFORE_BAR = 46
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


def sampling(scene: Scene, width: int, height: int) -> Rows:
    size = width, height
    inner, room = inside(size)
    lane = scene.state.lane
    title: Row = (("Sampling", "title"), (" ─ does the text follow the target's probabilities?", "dim"))
    if lane.evidence.surprise.count == 0:
        return frame(title, wrapped(((_nothing(scene), "dim"),), inner), size)
    body: Rows = [_lit(lane.evidence, inner), *_sums(lane.evidence, inner, airy=room >= _AIRY)]
    explained: list[tuple[str, ...]] = [(_LIGHT, _BRIEF)]
    if lane.draft_depths:
        body += _depths(lane.draft_depths, lane.last_turn, inner, room - len(body))
        explained.append((_DEPTHS,))
    for wordings in explained:
        body += _explained(wordings, inner, room - len(body))
    return frame(title, body, size)


def _explained(wordings: tuple[str, ...], width: int, room: int) -> Rows:
    """The first wording that fits, below a blank row if one more row is free."""
    wrappings = (wrapped(((words, "dim"),), width) for words in wordings)
    rows = next((rows for rows in wrappings if len(rows) <= room), [])
    return [(), *rows] if rows and len(rows) < room else rows


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


def _sums(evidence: Evidence, width: int, *, airy: bool) -> Rows:
    surprise, top1, prediction = evidence.surprise, evidence.top1, evidence.prediction
    rows: Rows = []
    if airy:
        rows.append(_sum("surprise", surprise, _way(_mean(surprise), "nats a token"), width))
        rows.append(_sum("top-1 hits", top1, _way(100 * _mean(top1), "in 100 tokens"), width))
    else:
        row = (*_z("surprise ", surprise), *_z("  top-1 hits ", top1))
        over = f"  over {surprise.count} tokens"
        rows.append((*row, (best(width - width_of(row), f"{over}, in standard deviations", over), "dim")))
    if prediction.count:
        came, expected = (tokens / prediction.count for tokens in (evidence.came_tokens, evidence.predicted_tokens))
        difference = f"{short(came)} came, {short(expected)} expected, over {prediction.count} rounds"
        rows.append(_sum("tokens a round", prediction, (difference, f"{short(came)}, not {short(expected)}"), width))
    return rows


def _way(mean: float, unit: str) -> tuple[str, ...]:
    difference = f"{short(abs(mean))} {unit} {'more' if mean > 0 else 'less'}"
    return f"{difference} than expected", difference


def _sum(name: str, deviation: Deviation, wordings: tuple[str, ...], width: int) -> Row:
    row: Row = (*_z(f"{name:<{_NAME}}", deviation), ("   ", "plain"))
    return (*row, (best(max(0, width - width_of(row)), *wordings), "dim"))


def _z(name: str, deviation: Deviation) -> Row:
    z = deviation.z
    if z is None:
        return ((name, "plain"), ("z -   ", "dim"))
    ink, text = INKS[colour(z)], f"{z:+.1f}" if abs(z) < _LARGEST else f"{z:+.0e}"
    return ((name, "plain"), (f"z {text:<4}", "plain" if ink == "good" else ink))


def _mean(deviation: Deviation) -> float:
    return deviation.total / deviation.count if deviation.count else 0.0


def _depths(levels: tuple[AtDepth, ...], last_turn: int, width: int, room: int) -> Rows:
    if room < 2:
        return []
    length = min(_LONGEST_BAR, width - _BEFORE_BAR - 2)
    since = f"  since round {nth(last_turn)}" if last_turn else ""
    heading: Row = ((f"{'depth':<6}{'visits':>7}{'L1':>7}{'kept':>7}{'expected':>10}{'at best':>9}{since}", "dim"),)
    rows = [_depth(depth, level, length) for depth, level in enumerate(levels, 1)]
    if len(rows) > room - 1:
        rows = [*rows[: room - 2], ((f"+ {len(rows) - room + 2} deeper", "dim"),)]
    return [heading, *rows]


def _depth(depth: int, level: AtDepth, length: int) -> Row:
    figures: Row = (
        (f"{depth:<6}", "dim"),
        (f"{level.visits:>7}{short(level.mean_l1):>7}{percent(level.share):>7}", "plain"),
        (f"{percent(level.mean_acceptance):>10}{percent(level.mean_bound):>9}", "plain"),
    )
    if length < _LEAST_BAR:
        return figures
    accepted_cells = round(length * share(level.share, 1.0))
    bound_cells = max(0, round(length * share(level.mean_bound, 1.0)) - accepted_cells)
    return (*figures, ("  ", "plain"), ("█" * accepted_cells, "accepted"), ("▒" * bound_cells, "bar"))
