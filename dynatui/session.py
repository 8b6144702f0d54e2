"""The parsed command line as one value, the only input of the screen or of a headless run."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from decoder.prompts.prompt import AnyPrompt
from decoder.run.config import RunConfig
from dynatui.keymap import KEYMAP, Keymap

Symbols: TypeAlias = Literal["braille", "block", "ascii"]
SYMBOLS: tuple[Symbols, ...] = get_args(Symbols)
EMBEDDED_TEMPERATURE = 0.6
"""Default temperature of the embedded pair on the screen, since so small a model repeats itself in greedy decoding."""
EMBEDDED_SEED = 7
"""Default seed of the embedded pair: the best of 48 seeds for readable text in few rounds on the first built-in prompt.
"""


@dataclass(frozen=True)
class Models:
    """Models, device and dtypes of a session; None as a model means the model of the embedded pair."""

    target: str | None = None
    draft: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    draft_dtype: str = "auto"
    exact: bool = False
    """Whether passes are batch-invariant, so that the texts of all methods agree in half precision too."""
    compiled: bool = False
    """Whether torch.compile is tried on the forward passes of both models; CUDA only."""
    kernels: bool = True
    """Whether Triton kernels are tried for small parts of rounds; CUDA only."""
    gpu_layers: int | None = None
    """Number of layers that llama.cpp keeps on a GPU, for each GGUF file; None: llama.cpp chooses the number."""
    inflate: str | None = None
    """Number of parameters of a target at whose cost the embedded pair decodes; None: the pair stays as it is."""

    @property
    def embedded(self) -> bool:
        """Whether the models are the pair that comes with the program."""
        return self.target is None


@dataclass(frozen=True)
class View:
    """Settings of the display."""

    speed: float | None = None
    """Playback speed relative to decode time; None: slow enough to read."""
    fps: int | None = None
    """Frames per second; None: 10, or 5 over SSH."""
    theme: str | None = None
    symbols: Symbols = "braille"
    color: bool = True
    mouse: bool = True
    """Whether the app handles the mouse; otherwise the terminal can select and copy text."""
    tour: bool = False
    """Whether the second round is shown slowly, stage by stage."""
    log: Path | None = None
    """Log file for tracebacks and for messages of libraries; None: a file in the user's log folder."""
    keys: Keymap = field(default=KEYMAP, repr=False)


@dataclass(frozen=True)
class Session:
    """All settings of one run of the program."""

    prompts: tuple[AnyPrompt, ...]
    models: Models = field(default_factory=Models)
    config: RunConfig = field(default_factory=RunConfig)
    record: Path | None = None
    """File of the recording; None: no recording."""
    metrics_port: int | None = None
    """Port of the Prometheus metrics; 0: any free port; None: metrics are not served."""
    view: View = field(default_factory=View)
    files: tuple[tuple[str, tuple[AnyPrompt, ...]], ...] = ()
    """Prompt files as (name, prompts); the prompts of the files come before all other prompts of the session."""
    prompt_field: str | None = None
    """Field of the objects in prompt files that holds the prompt; None: the first known field."""
    notes: tuple[str, ...] = ()
    """What was read from the prompt files, in words."""
    set_for_good: frozenset[str] = frozenset()
    """Options set by a settings file or an environment variable; a copied command line must contain all of them."""
