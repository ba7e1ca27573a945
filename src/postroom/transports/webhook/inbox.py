"""The URL that stands for the capture inbox."""

CAPTURE_URL = "http://inbox.invalid/"
"""Nothing can live there (RFC 2606). A transport with an inbox puts what is sent there into it."""
