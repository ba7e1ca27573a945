"""outbox.publishers: publishers to other systems that need no table. See `postroom.outbox`."""
