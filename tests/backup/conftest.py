"""Fixtures of an object store on loopback."""

from tests.support.object_store import bucket, s3_endpoint

__all__ = ["bucket", "s3_endpoint"]
