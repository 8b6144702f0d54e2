"""Explanations of the screen and its figures: a panel of large terminals, and part of the help page."""

from collections.abc import Iterable
from functools import lru_cache
from textwrap import wrap

from decoder.analysis.metrics import FIGURES, Figure
from dynatui.render.ink import Row, Rows, column, frame, inside, width_of
from dynatui.render.scene import Scene
from dynatui.render.wrap import wrapped
from dynatui.state.ab_comparison import ASSUMPTION

GUIDE: tuple[tuple[str, str], ...] = (
    ("Round", "The draft proposes a tree of tokens, the target verifies it in one pass. The accepted path, and one "
     "token of the target's own (the bonus token), become text."),
    ("L-bar", "Tokens per round: what one pass of the target yields. 1 is decoding without a draft. Text that repeats "
     "itself inflates it, so the share of distinct 8-grams stands beside it."),
    ("Depth acceptance", "How far down the tree the target agreed: accepted depth over the depth of the tree. Run: the "
     "mean of the whole run, a round without a draft counts as 0. Last 10: the mean of the newest rounds that drafted, "
     "which curves and history go by."),
    ("Acceptance rate", "Accepted guesses over drafted ones, always of the whole run. Short: acc. rate and depth acc."),
    ("History", "Past rounds move D0 and τh to bring depth acceptance to its target: above it, trees get deeper and "
     "τh lower; below it, the other way."),
    ("T, top-p", "Temperature T: 0 is greedy, always the most probable token. Above 0 tokens are sampled, the more "
     "freely the higher T, from the likeliest ones up to the share top-p. The random noise is the same for every "
     "method: it follows from seed and position. So one seed is one text, whatever drafts it; only hf has noise of its "
     "own, and is not compared."),
    ("Chance", "Where tokens are sampled: the draft's estimate that the target takes this token, given the noise. "
     "Trees, τh and τl use it. prob. is the draft's probability of the token without the noise."),
    ("Drawn trees", "The method delayed draws its trees from the draft: L1 tokens one after the other, then K paths of "
     "L2 each; x2 was drawn twice. A verifier decides by chance which draws are kept, so that the text has exactly the "
     "target's probabilities: V and D change verifier and drafting. kept: how likely it keeps a node, given the tree."),
    ("Light", "The losslessness light: whether sampled text keeps to the target's probabilities. Are its tokens as "
     "improbable, and the most probable ones as frequent, as the target says? Green: within chance. Yellow: chance "
     "goes there once in 40 looks. Red: hardly ever, so probably a bug. Grey: too few tokens. A light, not a proof: "
     "small biases, noise that repeats and a target that is wrong itself leave it green."),
    ("z", "Deviation from the expected value in standard deviations: chance stays within 2 or so."),
    ("τh", "Confidence (probability of the draft's best guess) from which a node gets the fewest children."),
    ("τl", "Confidence below which a node gets the most children; in between, some."),
    ("D0", "Base depth: every likely path may grow this deep, only very likely ones (rho_deep) deeper."),
    ("N_max", "Most drafted nodes of a round."),
    ("Limited by", "The rule that kept the most probable further node out of the tree: D0, rho_stop, D_max, N_max, "
     "cost, the context or the length of the text. Turning another knob changes little."),
    ("auto", "A method beside dynatree, which obeys its knobs alone: auto drafts as many nodes as pay, by the "
     "measured times of drafting and verification and by the acceptance rate so far; none where none pays. "
     "It also drafts the continuation of earlier occurrences in the text, without a pass of the draft."),
    ("same text", "The text equals plain decoding's, as far as both have come. ~ it differs, and where; a near tie is "
     "a difference within rounding. ! it differs by more than rounding."),
    ("Tree", "Each guess stands beside the token that it follows, or in a row below it, the accepted path first. %: "
     "its probability as the draft sees it; path: that of all tokens up to the end of the row. →1: the row goes on at "
     "1→. repeats 12 tokens: so many tokens up to the end of the path stand earlier in the text; the target often "
     "agrees, even below 1 %. ● ○: a guess of the draft, accepted or rejected; ◆ ◇: one that was looked up. Below, on "
     "a large screen: the trees of the three rounds before, or their accepted paths alone."),
    ("Curves", "▲ you turned a knob. ┊ the shown round. ┄ A of the A/B comparison."),
    ("A/B", "Figures of the settings before your turn of a knob, or of those that you pinned (A), beside those of the "
     f"present settings (B). {ASSUMPTION}."),
    ("After a turn", "Below the sliders: what you turned, and how nodes, L-bar and tokens/s differ between the 10 "
     "rounds before and the 10 after, with 95 % intervals. hides it: another rule decides, so the knob changes "
     "little; the key beside it frees the knob."),
    ("Time line", "● is the shown round, ▲ a turn of yours. Left of the end, decoding goes on unseen."),
    ("Race", "All methods decode the same prompt, each for the same time. ar is plain decoding, linear a single "
     "chain of guesses, fixed a tree of fixed shape. The first 30 tokens are warm-up. Below: what limits the watched "
     "method most, and what would help."),
    ("Stalled", "A round that lost a third of its time or more, as it waited for a processor or was stopped. That is "
     "the machine's doing, not the method's, so rates leave it out. Where many rounds stall, they leave out only the "
     "worst."),
    ("Work by depth", "Nodes that were drafted at each depth, and how many of them became text: the rest is wasted."),
    ("What if", "An estimate of the nodes that other knobs would have drafted, and of those accepted, in past rounds, "
     "where the recorded trees suffice."),
)  # fmt: skip
"""Terms in plain words, the most needed by a new user first."""
_NAME, _LEAST = 18, 12
_BY_KEY = {figure.key: figure for figure in FIGURES}


def guide(_scene: Scene, width: int, height: int) -> Rows:
    """The guide panel: explanations of the first terms, as many as fit."""
    return _page(width, height)


@lru_cache(maxsize=4)
def _page(width: int, height: int) -> Rows:
    inner, room = inside((width, height))
    entries = [wrapped(((f"{term}  ", "strong"), (meaning, "dim")), inner) for term, meaning in GUIDE]
    airy = sum(map(len, entries)) + len(entries) - 1 <= room
    rows: Rows = []
    for entry in entries:
        gap: Rows = [()] if airy and rows else []
        if rows and len(rows) + len(gap) + len(entry) > room:
            break
        rows += [*gap, *entry]
    hint = "" if len(rows) >= sum(map(len, entries)) else " ─ ? tells more"
    return frame((("How to read this", "title"), (hint, "dim")), rows, (width, height))


def explained(keys: Iterable[str], width: int, height: int) -> Rows:
    """A blank row, then explanations of the figures, as many as fit."""
    rows: Rows = [()]
    for key in keys:
        explanation = _rows(_BY_KEY[key], width)
        if len(rows) + len(explanation) > height:
            break
        rows += explanation
    return rows if len(rows) > 1 else []


def led_by(keys: Iterable[str]) -> list[str]:
    """The keys of all figures, the given keys first."""
    first = list(keys)
    return [*first, *(key for key in _BY_KEY if key not in first)]


def _rows(figure: Figure, width: int) -> Rows:
    """Name and formula of a figure, and in the same row, if it fits, its name in other engines."""
    row: Row = ((column(figure.label, _NAME), "strong"), (f"= {figure.formula}", "plain"))
    if not figure.elsewhere:
        return [row]
    elsewhere = f"elsewhere: {figure.elsewhere}"
    joint: Row = (*row, (f"   {elsewhere}", "dim"))
    if width_of(joint) <= width:
        return [joint]
    indent = _NAME + len("= ")
    lines = wrap(elsewhere, max(_LEAST, width - indent))
    return [row, *(((" " * indent + words, "dim"),) for words in lines)]
