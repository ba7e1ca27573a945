"""OpenTelemetry, when it is installed and asked for; otherwise nothing, at no cost.

A request's `traceparent` is stored with its delivery, so that the span of an attempt hours later hangs from the span
of the request that caused it.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

_tracer: Any = None


def enable_tracing() -> None:
    """Use the globally configured tracer provider. Needs the extra `tracing`."""
    global _tracer  # noqa: PLW0603 - one switch per process, thrown once at start
    from opentelemetry import trace

    _tracer = trace.get_tracer("postroom")


def span(name: str, *, traceparent: str | None = None, **attributes: Any) -> AbstractContextManager[Any]:
    """A span below the given parent; a null context while tracing is off."""
    if _tracer is None:
        return nullcontext()
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    parent = TraceContextTextMapPropagator().extract({"traceparent": traceparent}) if traceparent else None
    named = {f"postroom.{key}": value for key, value in attributes.items()}
    manager: AbstractContextManager[Any] = _tracer.start_as_current_span(name, context=parent, attributes=named)
    return manager
