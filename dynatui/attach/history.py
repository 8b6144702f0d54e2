"""Makes events by comparing each metrics page with the previous pages. Knows neither network nor clock."""

from collections.abc import Iterator, Sequence

from dynatui.attach.address import without_query
from dynatui.attach.counters import Counts, counted, remembered, restarted
from dynatui.attach.events import LONGEST_NAME, MOST_MODELS, Reading, Server
from dynatui.attach.exposition import Page, parsed
from dynatui.attach.figures import figures, gauges, with_drafts
from dynatui.attach.servers import Kind
from dynatui.attach.waste import Judgement, as_event, judged


class History:
    def __init__(self) -> None:
        self._kind: Kind | None = None
        self._server: Server | None = None
        self._page: Page = {}
        self._read_at: float | None = None
        self._total, self._began = Counts(), 0.0
        self._drafts: int | None = None
        self._judgement = Judgement()

    def read(self, url: str, kind: Kind, lines: Sequence[str], t: float) -> Iterator[Server | Reading]:
        """The events of a page read at `t` seconds; raises a NotMetricsError if the page is malformed."""
        page = parsed(lines, kind.counters, kind.gauges)
        if kind != self._kind:
            self._kind, self._page, self._read_at = kind, {}, None
            self._total, self._began = Counts(), t
            self._drafts, self._judgement = None, Judgement()
        yield from self._introduced(kind, url, page, t)
        first = self._read_at is None
        anew = restarted(kind, self._page, page)
        now = gauges(kind, page)
        steady = now.drafts if self._drafts in (None, now.drafts) else None
        counts = Counts() if first else with_drafts(kind, counted(kind, self._page, page), steady)
        self._total, self._drafts = self._total.plus(counts), now.drafts
        seconds = 0.0 if self._read_at is None else t - self._read_at
        self._judgement = judged(kind, Judgement() if anew else self._judgement, counts, t - seconds, t)
        self._page, self._read_at = page if anew else remembered(self._page, page), t
        yield Reading(
            t=t,
            restarted=anew,
            interval=figures(kind, counts, seconds, now),
            session=figures(kind, self._total, t - self._began),
            drafting=now.drafting,
            wasted=as_event(kind, self._judgement),
        )

    def _introduced(self, kind: Kind, url: str, page: Page, t: float) -> Iterator[Server]:
        labels = (dict(label_set) for series in page.values() for label_set in series)
        names = {label_set[kind.model][:LONGEST_NAME] for label_set in labels if kind.model in label_set}
        models = sorted(names - {""})[:MOST_MODELS]
        server = Server(t=t, kind=kind.name, url=without_query(url)[:LONGEST_NAME], models=models)
        previous = self._server
        if previous is None or (previous.kind, previous.url, previous.models) != (
            server.kind,
            server.url,
            server.models,
        ):
            self._server = server
            yield server
