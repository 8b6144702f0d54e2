"""Counts the events of a run under vLLM's metric names and labels, for dashboards made for vLLM; serves them to this
machine.

Unlike vLLM's metrics, these have a label `method`, so each method of a run appears like a separate server. As in vLLM,
each round with drafted tokens counts as one draft, and each round gives one latency between tokens.
"""

import errno
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from threading import Thread

from decoder.analysis.metrics import drafted_nodes
from decoder.errors import ConfigError
from decoder.events import Event, Round, Run, Start
from dynatui.clean import clean_line

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0)
"""Upper bounds of the histograms' buckets; a round of a small pair on a GPU takes about 1 ms, the first bound."""
_LABELS = ("model_name", "engine", "method")
_ENGINE = "0"
_ADDRESS = "127.0.0.1"
_PATH = "/metrics"
_PATIENCE_S = 2.0
"""Longest wait for the next bytes of a request."""
_POLL_S = 0.1
_REASONS = {errno.EADDRINUSE: "another program uses it", errno.EACCES: "only an administrator may open it"}
logger = logging.getLogger(__name__)


class Exporter:
    """Metrics of all runs of a process, which one thread updates and another serves; no count ever decreases.

    A method has no series for figures that it does not report.
    """

    def __init__(self) -> None:
        from prometheus_client import (  # noqa: PLC0415 - not needed without a port
            CollectorRegistry,
            Counter,
            Histogram,
            disable_created_metrics,
        )

        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library does not annotate it
        self.url = ""
        self.registry = CollectorRegistry(auto_describe=True)
        counter = partial(Counter, labelnames=_LABELS, registry=self.registry)
        histogram = partial(Histogram, labelnames=_LABELS, buckets=BOUNDS_S, registry=self.registry)
        prompts = "Prompt tokens, counted when the first round after the prompt is complete."
        self._prompt_tokens = counter("vllm:prompt_tokens", prompts)
        self._generated = counter("vllm:generation_tokens", "Generated tokens.")
        self._drafts = counter("vllm:spec_decode_num_drafts", "Rounds in which at least one token was drafted.")
        drafted = "Drafted tokens: all nodes of the draft trees."
        self._drafted = counter("vllm:spec_decode_num_draft_tokens", drafted)
        self._accepted = counter("vllm:spec_decode_num_accepted_tokens", "Accepted drafted tokens.")
        self._by_position = counter(
            "vllm:spec_decode_num_accepted_tokens_per_pos",
            "Accepted drafted tokens by position in the draft; the first position is 0.",
            labelnames=(*_LABELS, "position"),
        )
        first = "Time of the prefill and the first round, by the method's own clock."
        self._first_s = histogram("vllm:time_to_first_token_seconds", first)
        later = "Time of a round by the method's own clock; all tokens of a round appear at once."
        self._later_s = histogram("vllm:inter_token_latency_seconds", later)
        self._target, self._prompt = "", 0
        """Name of the target and number of prompt tokens in the current run."""
        self._prefill_s, self._decoded_s = dict[str, float](), dict[str, float]()
        """Prefill time, and decode time so far, of the current text, by method."""

    def take(self, event: Event) -> None:
        """Counts an event; to be called by one thread only."""
        match event:
            case Run():
                self._target, self._prompt = clean_line(event.target), len(event.prompt_tokens)
            case Start():
                self._prefill_s[event.method] = event.prefill_s
                for metric in (self._prompt_tokens, self._generated, self._first_s, self._later_s):
                    metric.labels(*self._labels(event))
            case Round():
                self._round(event, self._labels(event))
            case _:
                pass

    def _labels(self, event: Start | Round) -> tuple[str, ...]:
        return self._target, _ENGINE, event.method

    def _round(self, event: Round, labels: tuple[str, ...]) -> None:
        self._generated.labels(*labels).inc(len(event.committed))
        if event.draft_forwards is not None:
            drafted = drafted_nodes(event)
            self._drafts.labels(*labels).inc(drafted > 0)
            self._drafted.labels(*labels).inc(drafted)
            self._accepted.labels(*labels).inc(len(event.accepted))
            for position in range(len(event.accepted)):
                self._by_position.labels(*labels, position).inc()
        first, later = self._first_s.labels(*labels), self._later_s.labels(*labels)
        if event.round > 0:
            later.observe(event.t - self._decoded_s.get(event.method, 0.0))
        else:
            first.observe(self._prefill_s.get(event.method, 0.0) + event.t)
            self._prompt_tokens.labels(*labels).inc(self._prompt)
        self._decoded_s[event.method] = event.t


@contextmanager
def exporting(port: int | None) -> Iterator[Exporter | None]:
    """Serves at a port of this machine (0: any free port; None: serves nothing) until the context ends; raises
    ConfigError if the port cannot be opened.
    """
    if port is None:
        yield None
        return
    exporter = Exporter()
    try:
        server = _server(port, exporter)
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror)
        raise ConfigError(
            f"metrics_port is {port}, which cannot be opened: {reason}; give another port, or 0 for any free port",
            "metrics_port",
        ) from None
    exporter.url = f"http://{_ADDRESS}:{server.server_port}{_PATH}"
    thread = Thread(target=server.serve_forever, args=(_POLL_S,), name="dynatui-metrics", daemon=True)
    thread.start()
    try:
        yield exporter
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _server(port: int, exporter: Exporter) -> ThreadingHTTPServer:
    from prometheus_client import MetricsHandler  # noqa: PLC0415 - not needed without a port

    class Handler(MetricsHandler):
        timeout = _PATIENCE_S
        registry = exporter.registry

        def do_GET(self) -> None:  # noqa: N802 - the library calls this name
            """The response is always plain text, whatever format the request accepts."""
            del self.headers["Accept"]  # OpenMetrics output may lose colons in names: issue 1177 of prometheus_client
            if self.path.partition("?")[0] == _PATH:
                super().do_GET()
            else:
                self.send_error(HTTPStatus.NOT_FOUND, f"this server has only {_PATH}")

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Logs all errors except those of broken connections; standard error belongs to the screen."""
            del request, client_address
            if not isinstance(sys.exception(), OSError):
                logger.exception("metrics were not served")

    return Server((_ADDRESS, port), Handler)
