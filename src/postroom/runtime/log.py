"""Structured logs: `noun_verbed` and fields, one line each.

Addresses, subjects and bodies never appear at info or above. Values of keys that could hold a secret are removed at
every level, so that a careless call cannot leak one.
"""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog

_SECRETS = ("password", "secret", "token", "authorization", "api_key", "cookie")
_PERSONAL = ("email", "address", "recipient", "subject", "body")


def configure_logging(level: str, style: str, *, stream: TextIO | None = None) -> None:
    """Configure structlog and the standard library's logging; `style` is auto, json or text."""
    out = stream or sys.stderr
    text = style == "text" or (style == "auto" and out.isatty())
    renderer: Any = structlog.dev.ConsoleRenderer(colors=out.isatty()) if text else structlog.processors.JSONRenderer()
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            guard,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(
            out
        ),  # one write per line, because several processes share the stream
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(level=logging.WARNING, stream=out, force=True, format="%(levelname)s %(name)s %(message)s")


def guard(_logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Remove secrets at every level, and personal data above debug."""
    for key in list(event):
        lowered = key.lower()
        if any(word in lowered for word in _SECRETS) or (
            method != "debug" and any(lowered == word or lowered.endswith(f"_{word}") for word in _PERSONAL)
        ):
            event[key] = "[hidden]"
    return event
