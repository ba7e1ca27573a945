"""Prometheus metrics of rooms."""

from postroom.runtime.metrics import gauge

SERVED_ROOMS = gauge("postroom_rooms", "Rooms that this worker serves: asleep, waiting or awake", ["server", "state"])
