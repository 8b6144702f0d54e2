"""llama.cpp: `--spec-*`; options from common/arg.cpp and docs/speculative.md."""

from decoder.models.names import DraftKind, repository
from dynatui.servers.engines.engine import WITHIN, Deployment, Engine, Paste, rates, shell

_NAMES: dict[DraftKind, str] = {
    "model": "draft-simple",
    "eagle3": "draft-eagle3",
    "mtp": "draft-mtp",
    "dflash": "draft-dflash",
    "lookup": "ngram-simple",
}
_GGUF = ".gguf"


def _served(server: Deployment) -> Paste:
    options = [["llama-server", "-m", _file(server.target), "-np", str(server.most), "--metrics"]]
    kind, notes = server.kind, list[str]()
    if server.k and kind not in WITHIN:
        options.append(["--spec-draft-model", _file(server.draft)])
    if server.k:
        drafted = "--spec-ngram-simple-size-m" if kind == "lookup" else "--spec-draft-n-max"
        options.append(["--spec-type", _NAMES[kind], drafted, str(server.k)])
    if server.p_min is not None and kind != "lookup":
        options.append(["--spec-draft-p-min", f"{server.p_min:g}"])
    if server.synthetic:
        options.append(["--spec-synth-rates", ",".join(f"{rate:g}" for rate in rates(server.survival))])
    models = [server.target] if kind in WITHIN else [server.target, server.draft]
    if others := [_name(model) for model in models if not model.endswith(_GGUF)]:
        notes.append(f"it reads GGUF files: convert {' and '.join(others)} first")
    if kind == "lookup":
        notes.append("its lookup needs a repetition of 12 tokens: acceptance may differ")
    return Paste(shell(*options), tuple(notes))


def _file(model: str) -> str:
    """The GGUF file of a model, or the name under which it would be converted."""
    return model if model.endswith(_GGUF) else f"{_name(repository(model))}{_GGUF}"


def _name(model: str) -> str:
    return model.rstrip("/").rpartition("/")[2]


LLAMA_CPP = Engine(
    "llama.cpp",
    "llama.cpp",
    "0c1e57098 (October 2026)",
    _NAMES,
    _served,
    synthetic=True,
    stops={"model", "eagle3", "mtp", "dflash"},
)
