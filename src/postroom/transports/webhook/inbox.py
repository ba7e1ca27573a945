"""The URL of the capture inbox."""

CAPTURE_URL = "http://inbox.invalid/"
"""A reserved name (RFC 2606). A transport with an inbox stores requests to this URL there."""
