"""rooms: many rooms on several servers.

NAME     rooms: find, create, migrate, move and drop them, by name or by pattern
CALLS    db for schemas and migrations; backup for the copy of a move; delivery to recover the claims of dead workers
CALLED BY `postroom rooms`, and the processes that serve or work for many rooms
SERVERS  POSTROOM_SERVERS, or the one database of POSTROOM_DATABASE_URL, which is named `default`
STATES   ready; pending: it lacks migrations of this version; incompatible: migrated by another version; restoring;
         moving; moved; duplicate: ready on several servers; denied: this role may not use the schema
PROMISES discovery asks all servers at the same time by one statement each. A server that does not respond is reported
         and hides no other. A room that is ready on two servers is reported and served on neither
MOVES    fence, drain, close, copy, commit, open, drop; see `rooms/moving.py`. Triggers that exist only during a move
         refuse writes, so that accepting pays nothing for it. At every moment at most one server accepts writes. A
         killed move is continued by the same command, or undone before its commit; until then the room refuses writes
         as a read-only server does. The copy has the same rows, compared table by table, and keeps its archive.
         Grants of other roles are not copied
SERVES   `postroom serve --rooms`: each room at `/rooms/<name>/`, or at a host of its own, see `rooms/address.py`. A
         room is opened by its first request and closed when it is idle or moves. SMTP clients log in with the name
         of their room; bounces find theirs by the key that signed the return path. Keys and sessions, forms and links
         are stored or signed per room, so another room refuses them; only the dashboard of POSTROOM_SCHEMA lists all
         rooms. Listings are read from the replica of each server (POSTROOM_SERVER_REPLICAS)
WORKERS  a worker of many rooms (`Fleet`) shares a pool and a listening connection per server. A room without work
         sleeps; it wakes by a notification, at the time of its next work, after a write that the server has counted,
         or for its hourly upkeep, or by commands in the stream with its name. The mail that wakes it goes first, and
         loops begin when they have work (`rooms/wake.py`). One mailbox of bounces serves all rooms
DOCTOR   `cli/fleet_checks.py`: servers, migrations, moves, limits and processes of all rooms
LIMITS   a table of servers has direct URLs: behind a transaction pooler a role has one search path, so one room
FAILURES `ServerUnknown`, `ServerUnreachable`, `RoomNotFound`, `RoomExists`, `DeliveriesWaiting`, `MoveUnfinished`,
         `RoomNotReady`
"""
