"""rooms: many rooms on several servers.

NAME     rooms: find, create, migrate, move and drop them, by name or by pattern
CALLS    db for schemas and migrations
CALLED BY `postroom rooms`, and the processes that serve or work for many rooms
SERVERS  POSTROOM_SERVERS, or the one database of POSTROOM_DATABASE_URL, which is named `default`
STATES   ready; pending: it lacks migrations of this version; incompatible: migrated by another version; restoring;
         moving; moved; duplicate: ready on several servers; denied: this role may not use the schema
PROMISES discovery asks all servers at the same time by one statement each. A server that does not respond is reported
         and hides no other. A room that is ready on two servers is reported and served on neither
LIMITS   a table of servers has direct URLs: behind a transaction pooler a role has one search path, so one room
FAILURES `ServerUnknown`
"""
