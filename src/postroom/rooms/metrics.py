"""Prometheus metrics of rooms.

| metric                | meaning                                                                             |
|-----------------------|-------------------------------------------------------------------------------------|
| postroom_rooms        | rooms of this worker process, by server and state (asleep, waiting, awake)            |
"""

from prometheus_client import Gauge

from postroom.runtime.metrics import REGISTRY

SERVED_ROOMS = Gauge(
    "postroom_rooms", "Rooms that this worker serves: asleep, waiting or awake", ["server", "state"], registry=REGISTRY
)
