"""Tracing: no spans while off, children of the stored parent while on."""

import asyncio
import gzip
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import ClassVar
from urllib.request import urlopen

import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.support.command_line import postroom as run_command
from tests.support.command_line import running
from tests.support.smtp_server import smtp_server

import postroom
from postroom.db.pool import Pool
from postroom.http.service import create_key
from postroom.runtime import tracing

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    memory = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    monkeypatch.setattr(tracing, "_tracer", None)
    yield memory
    provider.shutdown()


def test_while_off_nothing_happens(exporter: InMemorySpanExporter) -> None:
    """Without `enable_tracing` a span is a null context."""
    with tracing.span("attempt", traceparent=PARENT):
        pass
    assert exporter.get_finished_spans() == ()


def test_attempt_span_is_a_child_of_the_request(exporter: InMemorySpanExporter) -> None:
    """The stored traceparent becomes the parent, also hours later in another process."""
    tracing.enable_tracing()
    with tracing.span("attempt", traceparent=PARENT, delivery_id=42):
        pass
    (span,) = exporter.get_finished_spans()
    assert span.name == "attempt"
    assert span.parent is not None
    assert f"{span.parent.trace_id:032x}" == PARENT.split("-")[1]
    assert span.attributes is not None
    assert span.attributes["postroom.delivery_id"] == 42


def test_a_server_exports_the_spans_of_its_requests(database_url: str) -> None:
    """The exporter of the standard variable is used."""
    settings = {
        "POSTROOM_DATABASE_URL": database_url,
        "POSTROOM_HTTP_ADDR": "127.0.0.1:0",
        "POSTROOM_TRACING": "1",
        "OTEL_TRACES_EXPORTER": "console",
    }
    with running("serve", settings=settings) as server:
        url = server.line(lambda line: "Postroom answers at" in line).rpartition(" ")[2]
        with urlopen(f"{url}/healthz") as answer:
            assert answer.status == 200
        assert server.stop() == 0
        spans = server.rest()
    assert '"name": "GET /healthz"' in spans
    assert '"service.name": "postroom"' in spans


class Collector(BaseHTTPRequestHandler):
    """A collector of OTLP over HTTP."""

    spans: ClassVar[list[Span]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.spans.extend(span for scope in resource.scope_spans for span in scope.spans)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        """No lines in the output of the tests."""


@pytest.fixture
def collector() -> Iterator[str]:
    Collector.spans.clear()
    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


async def _worked(database_url: str, collector: str) -> None:
    """Send what is due by a real worker that exports its spans."""
    async with smtp_server() as server:
        settings = {
            **_exporting(database_url, collector),
            "POSTROOM_TRANSPORT": "smtp",
            "POSTROOM_SMTP_RELAY": f"smtp://127.0.0.1:{server.port}?tls=none",
        }
        done = await asyncio.to_thread(run_command, "work", "--until-empty", settings=settings)
    assert done.returncode == 0, done.stderr


def _exporting(database_url: str, collector: str) -> dict[str, str]:
    return {
        "POSTROOM_DATABASE_URL": database_url,
        "POSTROOM_HTTP_ADDR": "127.0.0.1:0",
        "POSTROOM_TRACING": "1",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector,
    }


async def test_one_trace_leads_from_the_application_to_the_reply(
    database_url: str, pool: Pool, collector: str, exporter: InMemorySpanExporter
) -> None:
    """A mail that is sent inside a span of the application is claimed and attempted in its trace, elsewhere."""
    async with pool.acquire() as connection:
        with trace.get_tracer("shop").start_as_current_span("order"):
            await postroom.send(connection, to="ada@example.org", subject="Order 42", text="Thank you.")
    (order,) = exporter.get_finished_spans()
    assert order.context is not None
    await _worked(database_url, collector)
    claim, attempt = Collector.spans
    for span in (claim, attempt):
        assert span.trace_id.hex() == f"{order.context.trace_id:032x}"
        assert span.parent_span_id.hex() == f"{order.context.span_id:016x}"
    assert (claim.name, attempt.name) == ("claim", "attempt")
    assert claim.start_time_unix_nano < claim.end_time_unix_nano <= attempt.end_time_unix_nano
    found = {each.key: each.value for each in attempt.attributes}
    assert found["postroom.outcome"].string_value == "sent"
    assert (found["postroom.reply.stage"].string_value, found["postroom.reply.code"].int_value) == ("final", 250)
    claimed = {each.key: each.value for each in claim.attributes}
    assert claimed["postroom.claim_id"] == found["postroom.claim_id"]


async def test_one_trace_leads_from_a_request_to_the_reply(database_url: str, pool: Pool, collector: str) -> None:
    """Both processes export by OTLP: the request that accepted a mail is the parent of its claim and its attempt."""
    key, _ = await create_key(pool, "traced", scopes=["deliveries:write"], actor="test")
    with running("serve", settings=_exporting(database_url, collector)) as server:
        said = await asyncio.to_thread(server.line, lambda line: "Postroom answers at" in line)
        async with postroom.Client(said.rpartition(" ")[2], key) as client:
            await client.deliveries.send(to="ada@example.org", subject="Order 42", text="Thank you.")
        assert await asyncio.to_thread(server.stop) == 0
    await _worked(database_url, collector)
    [request] = [span for span in Collector.spans if span.name == "POST /v1/deliveries"]
    children = [span for span in Collector.spans if span.parent_span_id == request.span_id]
    assert {span.name for span in children} == {"claim", "attempt"}
    assert {span.trace_id for span in children} == {request.trace_id}
