"""The method `hf`: assisted generation of the library transformers. The library's loop does not return before the text
ends, but this module runs the loop one burst of tokens at a time.

The library's function `generate` runs in a separate thread, which waits inside the streamer until the engine's thread
requests the next burst; the two threads never run at the same time. The rounds within a burst cannot be observed, so
most fields of an outcome are None.
"""

import copy
import threading
from collections.abc import Sequence
from dataclasses import asdict
from queue import SimpleQueue
from typing import Any

import torch
from transformers import StoppingCriteria, StoppingCriteriaList
from transformers.generation.streamers import BaseStreamer

from decoder.errors import ModelError, first_line
from decoder.forward.language_model import LanguageModel, fit
from decoder.forward.token_choice import require_choices
from decoder.models.pair import Pair
from decoder.sampling.settings import Sampling
from decoder.session.protocol import AtStage, Outcome, Session, TokenLimit, go_on
from decoder.session.steering import Turn
from decoder.system.device import Stopwatch
from decoder.tree import TokenTree

CLOSE_TIMEOUT_S = 2.0


class _Bursts(BaseStreamer, StoppingCriteria):
    """Passes bursts of tokens from the thread of `generate` to the engine's thread; can stop `generate`."""

    def __init__(self) -> None:
        self.stopping = False
        self.requests = threading.Semaphore(0)
        self.answers: SimpleQueue[list[int] | BaseException | None] = SimpleQueue()
        """A burst; or, when `generate` has ended, None or the error that ended it."""
        self._prompt_seen = False

    def put(self, value: torch.Tensor) -> None:
        """Called first with the prompt, then with each burst."""
        if not self._prompt_seen:
            self._prompt_seen = True
            return
        self.answers.put(value.flatten().tolist())
        self.requests.acquire()

    def end(self) -> None:
        """Needs no action: `generate` returns next, and its thread ends."""

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        """Stopping criterion of `generate`."""
        del scores
        return torch.full((input_ids.shape[0],), self.stopping, dtype=torch.bool, device=input_ids.device)

    def next(self) -> list[int] | None:
        """Returns the next burst, or None if `generate` has ended. Raises the error that ended `generate`."""
        self.requests.release()
        answer = self.answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer


def as_wide_as(draft: LanguageModel, width: int) -> Any:
    """The draft's module, with `width` token ids like the target. If two models have different numbers of token ids,
    transformers assumes that they have different tokenizers.
    """
    conversion = fit(draft, width)
    if conversion is None:
        return draft.hf.module
    module = copy.deepcopy(draft.hf.module)
    module.resize_token_embeddings(width, mean_resizing=False)
    rows = module.get_input_embeddings().weight
    with torch.no_grad():
        rows[conversion.known :] = rows[conversion.instead]

    def fitted(_module: Any, _given: Any, output: Any) -> None:
        output.logits = conversion.logits(output.logits[..., : conversion.known])

    module.register_forward_hook(fitted)
    return module


def drawn_by(sampling: Sampling, seed: int) -> dict[str, Any]:
    """Arguments of `generate`; if tokens are sampled, also seeds torch's random generator."""
    if sampling.greedy:
        return {"do_sample": False}
    torch.manual_seed(seed)
    return {"do_sample": True, **asdict(sampling)}


class AssistedSession(Session):
    """Assisted generation with transformers' default settings; sampling uses torch's random numbers."""

    def __init__(
        self, pair: Pair, prompt_ids: Sequence[int], max_new_tokens: int, sampling: Sampling, seed: int
    ) -> None:
        self.text = list(prompt_ids)
        self._pair = pair
        self._max_new_tokens = max_new_tokens
        self._sampling, self._seed = sampling, seed
        self._limit = TokenLimit(pair.eos, max_new_tokens)
        self._stopwatch = Stopwatch(pair.target.device)
        self._bursts = _Bursts()
        self._first: list[int] | None = None
        self._assistant = as_wide_as(pair.draft_model, pair.target.width)
        self._thread = threading.Thread(target=self._generate, name="hf-assisted", daemon=True)

    def prefill(self) -> float:
        """Reads the prompt and decodes the first burst; the returned seconds include both."""
        start = self._stopwatch.now()
        self._thread.start()
        self._first = self._bursts.next()
        return self._stopwatch.now() - start

    def step(self, turns: tuple[Turn, ...], at_stage: AtStage = go_on) -> Outcome:
        del turns, at_stage
        start = self._stopwatch.now()
        burst, self._first, round_s = self._first, None, 0.0
        if burst is None:
            burst = self._bursts.next()
            round_s = self._stopwatch.now() - start
        if burst is None:
            raise RuntimeError("transformers' generate ended before end-of-text and before its length limit")
        root = TokenTree([self.text[-1]])
        committed, finished = self._limit.cut(burst)
        self.text.extend(committed)
        return Outcome(
            tree=root, accepted=[], committed=committed, round_s=round_s, target_forwards=1, finished=finished
        )

    def close(self) -> None:
        self._bursts.stopping = True
        self._bursts.requests.release()
        if self._thread.is_alive():
            self._thread.join(CLOSE_TIMEOUT_S)

    def _generate(self) -> None:
        ended: BaseException | None = None
        self._bursts.requests.acquire()
        try:
            if not self._bursts.stopping:
                self._run()
        except BaseException as error:  # noqa: BLE001 - the engine's thread receives the error and raises it
            ended = error
        self._bursts.answers.put(ended)

    def _run(self) -> None:
        pair = self._pair
        ids = torch.tensor([self.text], device=pair.target.device)
        module = pair.target.hf.module
        checked = module.register_forward_hook(_require_choices)
        try:
            module.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                assistant_model=self._assistant,
                **drawn_by(self._sampling, self._seed),
                max_new_tokens=self._max_new_tokens,
                streamer=self._bursts,
                stopping_criteria=StoppingCriteriaList([self._bursts]),
            )
        except ValueError as error:  # transformers raises ValueError for models that it does not support
            raise ModelError(
                f"hf does not run with {pair.target_name} and {pair.draft_name}: {first_line(error)}; "
                "leave hf out of --methods",
                "methods",
            ) from error
        finally:
            checked.remove()


def _require_choices(_module: Any, _inputs: Any, output: Any) -> None:
    """Forward hook of the target: without it, transformers would choose a token whose logit is NaN."""
    require_choices(output.logits.flatten(0, -2))
