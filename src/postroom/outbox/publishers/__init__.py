"""outbox.publishers: the ways out of the database that need no table of their own. See `postroom.outbox`."""
