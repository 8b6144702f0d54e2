"""The parsed command line as one value, the only input of the screen or of a headless run."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from decoder.methods.dynatree import DynaTree
from decoder.prompt import AnyPrompt
from decoder.run.config import RunConfig
from dynatui.keymap import KEYMAP, Keymap

Symbols: TypeAlias = Literal["braille", "block", "ascii"]
SYMBOLS: tuple[Symbols, ...] = get_args(Symbols)
EMBEDDED_TEMPERATURE = 0.6
"""Default temperature of the embedded pair on the screen: in greedy decoding, such small models repeat themselves."""
EMBEDDED_SEED = 7
"""One of the best of 48 seeds for readable text in few rounds on the first built-in prompt."""
DEMO = DynaTree(d0=6, tau_h=0.7, tau_l=0.35, rho_stop=0.03, rho_deep=0.15, tau=0, n_max=16, selection="best")
"""DynaTree's parameters on the screen if the user chooses none: trees of up to 16 drafted nodes, large enough to show
how they grow, with the history rule. The presets draft smaller trees, which are faster on a CPU.
"""


@dataclass(frozen=True)
class Models:
    """Models and how they are loaded; `target` and `draft` are None for the embedded pair."""

    target: str | None = None
    draft: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    draft_dtype: str = "auto"
    exact: bool = False
    """Whether forward passes are batch-invariant."""
    compiled: bool = False
    kernels: bool = True
    gpu_layers: int | None = None
    """Layers of each GGUF file that llama.cpp keeps on a GPU; None: llama.cpp chooses."""
    inflate: str | None = None
    """Number of parameters, such as 2.8B, to which the embedded pair is enlarged to be as slow as larger models."""

    @property
    def embedded(self) -> bool:
        return self.target is None


@dataclass(frozen=True)
class View:
    speed: float | None = None
    """Speed of decoding or playback; 1: full or recorded speed. None: a readable speed for replays of runs and for the
    embedded pair on a screen, else 1.
    """
    fps: int | None = None
    """Frames per second; None: 10, or 5 over SSH."""
    theme: str | None = None
    symbols: Symbols = "braille"
    color: bool = True
    mouse: bool = True
    """Whether the app takes clicks and drags; if not, the terminal can select and copy text."""
    tour: bool = False
    """Whether the second round is shown slowly, stage by stage."""
    log: Path | None = None
    """Log file; None: a file in the user's log folder."""
    keys: Keymap = field(default=KEYMAP, repr=False)


@dataclass(frozen=True)
class Session:
    prompts: tuple[AnyPrompt, ...]
    models: Models = field(default_factory=Models)
    config: RunConfig = field(default_factory=RunConfig)
    record: Path | None = None
    metrics_port: int | None = None
    """0: any free port; None: metrics are not served."""
    view: View = field(default_factory=View)
    files: tuple[tuple[str, tuple[AnyPrompt, ...]], ...] = ()
    """(name, prompts) of each prompt file; these come before all other prompts of the session."""
    prompt_field: str | None = None
    """Field with the prompt in the JSON objects of prompt files; None: the first known field."""
    notes: tuple[str, ...] = ()
    """Remarks on what was read from the prompt files."""
    set_for_good: frozenset[str] = frozenset()
    """Options set by a settings file or environment variable: a copied command line has them even at default values."""
