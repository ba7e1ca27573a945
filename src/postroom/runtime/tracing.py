"""OpenTelemetry, if it is installed and enabled; otherwise without cost.

The `traceparent` of the span that accepts a mail is stored with its delivery, so that the span of a later attempt, in
another process, is its child: one trace shows who asked for a mail, its claims, and the server's reply.
"""

import os
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import entry_points
from typing import Any

import structlog

from postroom.runtime.extra import extra_needed

_log = structlog.get_logger()
_tracer: Any = None


def enable_tracing() -> None:
    """Create spans from now on. Needs the extra `tracing`.

    A tracer provider that the process already has (from `opentelemetry-instrument`, for example) is used. Otherwise
    the SDK's provider is set up, with the exporter of OTEL_TRACES_EXPORTER (default: `otlp`); resource, sampling and
    addresses come from the standard OTEL_* variables.
    """
    global _tracer  # noqa: PLW0603 - one switch per process, set once at start
    with extra_needed("POSTROOM_TRACING", "tracing"):
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        os.environ.setdefault("OTEL_SERVICE_NAME", "postroom")
        provider = TracerProvider()
        name = os.environ.get("OTEL_TRACES_EXPORTER", "otlp")
        if name == "otlp":  # the standard's name for both; each package has its own
            name = "otlp_proto_grpc" if os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") == "grpc" else "otlp_proto_http"
        found = entry_points(group="opentelemetry_traces_exporter", name=name)
        for exporter in found:
            provider.add_span_processor(BatchSpanProcessor(exporter.load()()))
        if not found:
            _log.warning("spans_not_exported", exporter=name, reason="no installed package has this exporter")
        trace.set_tracer_provider(provider)
    _tracer = trace.get_tracer("postroom")


def is_tracing() -> bool:
    """True if spans are created."""
    return _tracer is not None


def current_traceparent() -> str | None:
    """The span in which this code runs, of Postroom or of the application; None without OpenTelemetry."""
    if _tracer is None and "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent")


def ended_span(name: str, *, since: float, traceparent: str, **attributes: Any) -> None:
    """Record a span that ends now and began at this time of the monotonic clock; nothing while tracing is off."""
    if _tracer is None:
        return
    began_ns = time.time_ns() - int((time.monotonic() - since) * 1e9)
    parent, named = _context(traceparent), _named(attributes)
    _tracer.start_span(name, context=parent, attributes=named, start_time=began_ns).end()


def span(name: str, *, traceparent: str | None = None, **attributes: Any) -> AbstractContextManager[Any]:
    """A span with the given parent; a null context, which gives None, while tracing is off."""
    if _tracer is None:
        return nullcontext()
    parent = _context(traceparent) if traceparent else None
    manager: AbstractContextManager[Any] = _tracer.start_as_current_span(
        name, context=parent, attributes=_named(attributes)
    )
    return manager


def _context(traceparent: str) -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({"traceparent": traceparent})


def _named(attributes: dict[str, Any]) -> dict[str, Any]:
    return {f"postroom.{key}": value for key, value in attributes.items()}
