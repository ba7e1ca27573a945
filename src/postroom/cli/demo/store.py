"""One function per statement of `queries.sql`."""

from postroom.db.queries import column, columns, load

QUERIES = load("postroom.cli.demo")


count_repeated = QUERIES["count_repeated"].one_as(column("repeated", int))
count_started = QUERIES["count_started"].one_as(columns("started", "lanes"))
find_ambiguous = QUERIES["find_ambiguous"].maybe_as(column("delivery_id", int))
has_worker = QUERIES["has_worker"].one_as(column("is_there", bool))
list_outcomes = QUERIES["list_outcomes"].many_as(dict)
list_recent_transports = QUERIES["list_recent_transports"].many_as(column("transport", str))
list_sent_mail = QUERIES["list_sent_mail"].many_as(columns("delivery_id", "email"))
