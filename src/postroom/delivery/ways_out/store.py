"""One function per statement of `queries.sql`, under the same name."""

from postroom.db.queries import column, load, model
from postroom.delivery.ways_out.model import NewOutage, OldestMail, Slice, WayOut

QUERIES = load("postroom.delivery.ways_out")

count_workers = QUERIES["count_workers"].one_as(column("workers", int))
end_outage = QUERIES["end_outage"].has
list_new_outages = QUERIES["list_new_outages"].many_as(model(WayOut))
list_ways_out = QUERIES["list_ways_out"].many_as(model(WayOut))
measure_oldest = QUERIES["measure_oldest"].many_as(model(OldestMail))
record_attempts = QUERIES["record_attempts"].exec
record_probe = QUERIES["record_probe"].maybe_as(model(NewOutage))
release_unreached = QUERIES["release_unreached"].one_as(model(Slice))
take_probe = QUERIES["take_probe"].has
