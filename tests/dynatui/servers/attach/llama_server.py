"""llama.cpp's server with its metrics, of the package xllamacpp: TARGET [DRAFT K TYPE]; prints its URL."""

import sys
import threading

import xllamacpp


def main(target: str, draft: str = "", drafted: str = "0", kind: str = "") -> None:
    params = xllamacpp.CommonParams()
    params.verbosity, params.warmup, params.fit_params = 0, False, False
    params.n_parallel, params.n_ctx, params.endpoint_metrics = 1, 1024, True
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.model.path = target
    models = [params]
    if draft:
        drafting = params.speculative.draft
        drafting.mparams.path, drafting.n_max = draft, int(drafted)
        models.append(drafting)
    if kind:
        params.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
    for model in models:
        model.cpuparams.n_threads = model.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)  # noqa: T201 - for the test
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
