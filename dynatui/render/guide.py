"""Explanations of the screen: the guide panel, and the captions of the tour."""

from functools import lru_cache

from decoder.analysis.metrics import by_depth, drafted_nodes
from decoder.events import Round
from decoder.session.steering import StageName
from dynatui.number_format import counted
from dynatui.render.ink import Row, Rows, framed, titled, wrapped
from dynatui.render.scene import Scene

GUIDE: tuple[tuple[str, str], ...] = (
    ("Round", "The draft proposes a tree of tokens, and the target verifies it in one pass. The accepted path, and one "
     "token of the target's own (the bonus token), become text."),
    ("L-bar", "Tokens per round, that is per pass of the target. Decoding without a draft has L-bar 1. Repetitive text "
     "raises it, so the share of distinct 8-grams is shown beside it."),
    ("Depth acceptance", "How far down the tree the target agreed: accepted depth divided by the depth of the tree. "
     "Run: the mean of the whole run, where a round without a draft counts as 0. Last 10: the mean of the newest "
     "rounds with a draft; curves and history use this mean."),
    ("Acceptance rate", "Accepted guesses divided by drafted guesses, always of the whole run. Short forms: acc. rate, "
     "and depth acc. for depth acceptance."),
    ("History", "This rule moves D0 and τh by the depth acceptance of past rounds. If depth acceptance is above its "
     "target, trees get deeper and τh lower; if it is below its target, trees get shallower and τh higher."),
    ("T, top-p", "Temperature T: 0 is greedy, always the most probable token. If T is above 0, tokens are sampled from "
     "the most probable ones, whose total probability is top-p; a higher T makes the choice more even. The random "
     "noise follows from seed and position and is the same for every method, so one seed gives one text. Only the "
     "method hf has its own noise, so its text is not compared with that of ar."),
    ("Chance", "The draft's estimate of the probability that the target takes this token: if decoding is greedy, its "
     "probability with the exponent sharpness; if tokens are sampled, given the noise. The growth of trees, τh and τl "
     "use this estimate. prob. is the draft's own probability of the token."),
    ("Drawn trees", "The method delayed samples its trees from the draft: L1 tokens in a row, then K paths of L2 "
     "tokens each. x2: the token was sampled twice. A verifier decides by chance which tokens are kept, so that the "
     "text has exactly the target's probabilities. The keys V and D change verifier and drafting. kept: the "
     "probability that the verifier keeps a node, given the tree."),
    ("Light", "The losslessness light shows whether sampled text follows the target's probabilities. It compares how "
     "improbable the tokens are, and how often the most probable token is sampled, with the expected values. Green: "
     "the deviation is within chance. Yellow: chance alone causes such a deviation in one of 40 checks. Red: chance "
     "hardly ever causes it, so there is probably a bug. Grey: too few tokens. A light, not a proof: it does not see "
     "small biases, repeating noise or a target with wrong probabilities."),
    ("z", "Deviation from the expected value, in standard deviations; by chance alone it rarely exceeds 2."),
    ("τh", "If the probability of the draft's best guess after a node (its confidence) is at least τh, the node gets "
     "the fewest children."),
    ("τl", "If the confidence is below τl, the node gets the most children; between τl and τh, it gets a medium "
     "number of children."),
    ("D0", "Base depth: every likely path may grow to this depth; only very likely paths (see rho_deep) may grow "
     "deeper."),
    ("N_max", "Maximum number of drafted nodes per round."),
    ("Limited by", "The rule that kept the most probable further node out of the tree: D0, rho_stop, D_max, N_max, "
     "cost, the context or the length of the text. Turning a knob that does not belong to this rule changes little."),
    ("auto", "A method like dynatree that also adapts the tree to costs. From the measured times of drafting "
     "and verification and from the acceptance rate so far, auto computes how many nodes save time, which may be "
     "none, and drafts that number. If the end of the text has occurred earlier in the text, auto also drafts the "
     "earlier continuation, without a pass of the draft."),
    ("same text", "The text so far equals the text of plain decoding. ~: the texts differ, first at the named token; a "
     "near tie is a difference within rounding. !: the texts differ by more than rounding."),
    ("Tree", "Each guess is to the right of the token that it follows, or in a row below this token; the accepted path "
     "comes first. %: the draft's probability of the guess; path: the draft's probability of the whole path to the "
     "end of the row. →1: the row continues at 1→. repeats 12 tokens: the last 12 tokens of the path and the text "
     "before it repeat earlier text; the target often agrees with such guesses, even if their probability is below "
     "1 %. ● ○: a guess of the draft, accepted or rejected; ◆ ◇: a looked-up guess, accepted or rejected. Below, in "
     "free rows: the trees of the rounds before, or only their accepted paths."),
    ("Curves", "▲ you turned a knob. ┊ the shown round. ┄ the curves of A in the A/B comparison."),
    ("A/B", "Compares two settings of the watched method over the same tokens: both decode this prompt, in turns. "
     "A: the settings before your turns of knobs. B: the present settings. Verdicts are made at 16, 32, 64, 128 "
     "and 256 blocks of 8 tokens with 99 % intervals, so that at most one of 20 pairs of equal settings differs."),
    ("After a turn", "Below the sliders: the knob that you turned, and how nodes, L-bar and tokens/s differ between "
     "the 10 rounds before the turn and the 10 rounds after it, with 95 % intervals. The words hides it mean that "
     "another rule decides, so the knob changes little; the key beside these words frees the knob."),
    ("Time line", "● is the shown round, ▲ a turn of a knob by you. If ● is left of the end, decoding continues "
     "unseen."),
    ("Race", "All methods decode the same prompt, each for the same time. ar is plain decoding, linear a single "
     "chain of guesses, fixed a tree of fixed shape. The first 30 tokens are warm-up. Below the bars: what limits the "
     "watched method most, and what would help."),
    ("Stalled", "A round that lost a third of its time or more, because it waited for a processor or was stopped. The "
     "machine causes this, not the method, so rates exclude stalled rounds; if many rounds stall, rates exclude only "
     "the worst."),
    ("Work by depth", "Number of nodes that were drafted at each depth, and how many of them became text; the others "
     "were wasted."),
    ("What if", "An estimate, for past rounds with sufficiently recorded trees, of the nodes that would have been "
     "drafted and accepted with other values of the knobs."),
)  # fmt: skip


@framed
def guide(_scene: Scene, width: int, height: int) -> tuple[Row, Rows]:
    return _page(width, height)


@lru_cache(maxsize=4)
def _page(width: int, height: int) -> tuple[Row, Rows]:
    """The title, and the terms of which the whole explanation fits, with blank rows between them if all terms fit."""
    entries = [wrapped(((f"{term}  ", "strong"), (meaning, "dim")), width) for term, meaning in GUIDE]
    needed = sum(map(len, entries))
    gap: Rows = [()] * (needed + len(entries) - 1 <= height)
    rows: Rows = []
    for entry in entries:
        between = gap if rows else []
        if not rows or len(rows) + len(between) + len(entry) <= height:
            rows += [*between, *entry]
    return titled("How to read this", "? tells more" if len(rows) < needed else ""), rows


IDEA = (
    "A small draft model guesses several tokens ahead, as a tree. A large target model checks them all at once and "
    "keeps the path that it would have written itself: the same text, sooner."
)
_LEAST_BESIDE = 2


def caption(scene: Scene, width: int, room: int) -> Rows:
    """A blank row, then the caption; empty if the whole caption does not fit."""
    held, idle = scene.held_stage, scene.touring or scene.state.lane.newest is None
    text = _of_stage(held.name, held.event) if held else IDEA if idle else ""
    rows = [(), *wrapped(((text, "strong"),), width)] if text else []
    return rows if len(rows) + _LEAST_BESIDE <= room else []


def _of_stage(name: StageName, event: Round) -> str:
    drafted, accepted, committed = drafted_nodes(event), len(event.accepted), len(event.committed)
    if name == "drafted":
        if not drafted:
            return "1 of 3, drafted: no guess this time, the target decodes alone."
        return (
            f"1 of 3, drafted: the small model has guessed {counted(drafted, 'token')}, as a tree of "
            f"{counted(len(by_depth(event)), 'level')}. None of it is text yet."
        )
    if name == "verified":
        none = "None of the guesses is the model's own choice"
        agreed = f"{accepted} of the guesses, on one path, are the model's own choice too" if accepted else none
        return f"2 of 3, verified: the large model has checked all guesses in one pass. {agreed}."
    return (
        f"3 of 3, committed: the path, and one more token by the target, are now part of the text. "
        f"{counted(committed, 'token')} for one pass."
    )
