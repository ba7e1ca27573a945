"""One function per statement of `queries.sql`, under the same name."""

from postroom.db.queries import column, load, model
from postroom.tracking.model import BulkMailStatus, ClickedLink, DeliveryEngagement, LinkFigures

QUERIES = load("postroom.tracking")

delete_old_engagements = QUERIES["delete_old_engagements"].exec
find_engagement = QUERIES["find_engagement"].maybe_as(lambda row: DeliveryEngagement(**row))
find_standing = QUERIES["find_standing"].one_as(lambda row: BulkMailStatus(**row))
list_clicks = QUERIES["list_clicks"].search_as(model(ClickedLink))
list_links = QUERIES["list_links"].many_as(model(LinkFigures))
record_hits = QUERIES["record_hits"].one_as(column("recorded", int))
resubscribe = QUERIES["resubscribe"].one_as(column("is_news", bool))
unsubscribe = QUERIES["unsubscribe"].one_as(column("is_news", bool))
