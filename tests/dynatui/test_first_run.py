"""A first run without options needs few target passes; tested by passes, which do not depend on the machine's load."""

from statistics import fmean

from decoder.engine import Engine
from decoder.events import Figures, Summary
from decoder.run.config import RunConfig
from decoder.run.loading import load_pair
from decoder.run.race import decode
from dynatui.prompts.load import embedded
from dynatui.session import EMBEDDED_SEED, EMBEDDED_TEMPERATURE

OTHER_SEEDS = (0, 1, 2)


def decoded(engine: Engine, seed: int, *methods: str) -> Figures:
    """Figures of DynaTree on the first prompt, with the default preset of a first run."""
    config = RunConfig(("dynatree", *methods), seed=seed, temperature=EMBEDDED_TEMPERATURE)
    (summary,) = (event for event in decode(engine, embedded()[0], config) if isinstance(event, Summary))
    figures = summary.methods["dynatree"]
    assert figures.committed == config.max_new_tokens
    return figures


def test_the_first_prompt_takes_fewer_passes_at_the_seed_that_was_chosen_for_it() -> None:
    engine = load_pair()
    chosen, *others = (decoded(engine, seed).target_forwards or 0 for seed in (EMBEDDED_SEED, *OTHER_SEEDS))
    assert 0 < chosen < fmean(others)


def test_the_first_text_is_that_of_plain_decoding() -> None:
    assert decoded(load_pair(), EMBEDDED_SEED, "ar").identical_to_ar
