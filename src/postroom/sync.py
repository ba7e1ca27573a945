"""Postroom from synchronous code: in your own transaction on the connection that you have, or over HTTP with `Client`.

    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO orders (number) VALUES (42)")
        postroom.sync.send(connection, to="ada@example.org", subject="Order 42", text="Thank you.")

A connection is one of psycopg 3, psycopg2, SQLAlchemy (`Connection`, `Session`, `scoped_session`) or Django
(`django.db.connection`). Nothing here begins, commits or rolls back a transaction: a mail is accepted when your
transaction commits, and on a connection in autocommit mode at once. Functions take the same arguments and raise the
same errors as their asynchronous counterparts, because they run them.
"""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from postroom.blocking import run_blocking
from postroom.client.blocking import BlockingClient as Client
from postroom.db.drivers import blocking_connection
from postroom.delivery.send import send as _send
from postroom.events import EventSession

__all__ = ["Client", "EventStore", "send"]

P = ParamSpec("P")
Result = TypeVar("Result")


def _on_connection(
    function: Callable[Concatenate[object, P], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[object, P], Result]:
    """The function for a synchronous connection."""

    @wraps(function)
    def call(connection: object, /, *args: P.args, **keywords: P.kwargs) -> Result:
        return run_blocking(function(blocking_connection(connection), *args, **keywords))

    return call


def _on_session(
    method: Callable[Concatenate[EventSession, P], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate["BlockingEventStore", P], Result]:
    """The method for a synchronous connection."""

    @wraps(method)
    def call(self: "BlockingEventStore", /, *args: P.args, **keywords: P.kwargs) -> Result:
        return run_blocking(method(self.session, *args, **keywords))

    return call


send = _on_connection(_send)


class BlockingEventStore:
    """The event store on your connection, in your transaction, with the methods of `postroom.events.EventSession`.

    wallet = Query.of(tags={"wallet": 1})
    EventStore(connection).decide(wallet, 0, BALANCE, withdraw)
    """

    def __init__(self, connection: object, room: str = "postroom") -> None:
        self.session = EventSession(blocking_connection(connection), room)

    append = _on_session(EventSession.append)
    decide = _on_session(EventSession.decide)
    follow = _on_session(EventSession.follow)
    head = _on_session(EventSession.head)
    project = _on_session(EventSession.project)
    read = _on_session(EventSession.read)


EventStore = BlockingEventStore
