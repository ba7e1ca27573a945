"""Postroom: every message an application owes its people, delivered from the PostgreSQL it already runs."""
