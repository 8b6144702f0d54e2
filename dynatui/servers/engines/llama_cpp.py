"""llama.cpp: `--spec-*` of llama-server; options from common/arg.cpp and docs/speculative.md."""

from decoder.models.names import DraftKind, repository
from dynatui.servers.engines.engine import Deployment, Engine, Paste, rates, shell

_TYPES: dict[DraftKind, str] = {
    "model": "draft-simple",
    "eagle3": "draft-eagle3",
    "mtp": "draft-mtp",
    "dflash": "draft-dflash",
    "lookup": "ngram-simple",
}
_GGUF = ".gguf"


def _file(name: str) -> str:
    """The GGUF file of a model, or the name under which it would be converted."""
    return name if name.endswith(_GGUF) else f"{repository(name).rstrip('/').rpartition('/')[2]}{_GGUF}"


def _serve(target: str, most: int, *options: list[str]) -> str:
    return shell(["llama-server", "-m", _file(target), "-np", str(most), "--metrics"], *options)


def _options(deployment: Deployment) -> list[list[str]]:
    kind = deployment.kind
    if kind == "lookup":
        return [["--spec-type", _TYPES[kind], "--spec-ngram-simple-size-m", str(deployment.k)]]
    drafting = [] if kind == "mtp" else [["--spec-draft-model", _file(deployment.draft)]]
    drafting.append(["--spec-type", _TYPES[kind], "--spec-draft-n-max", str(deployment.k)])
    if deployment.p_min is not None:
        drafting.append(["--spec-draft-p-min", f"{deployment.p_min:g}"])
    return drafting


def _speculative(deployment: Deployment) -> Paste:
    models = [deployment.target] if deployment.kind in ("mtp", "lookup") else [deployment.target, deployment.draft]
    others = [name.rstrip("/").rpartition("/")[2] for name in models if not name.endswith(_GGUF)]
    notes: tuple[str, ...] = (f"it reads GGUF files: convert {' and '.join(others)} first",) if others else ()
    if deployment.kind == "lookup":
        notes += ("its lookup needs a repetition of 12 tokens: acceptance may differ",)
    return Paste(_serve(deployment.target, deployment.most, *_options(deployment)), notes)


def _synthetic(deployment: Deployment) -> str:
    accepted = ["--spec-synth-rates", ",".join(f"{rate:g}" for rate in rates(deployment.survival))]
    return _serve(deployment.target, deployment.most, *_options(deployment), accepted)


LLAMA_CPP = Engine(
    name="llama.cpp",
    title="llama.cpp",
    version="0c1e57098 (October 2026)",
    kinds=_TYPES,
    baseline=_serve,
    speculative=_speculative,
    synthetic=_synthetic,
    stops=frozenset({"model", "eagle3", "mtp", "dflash"}),
)
