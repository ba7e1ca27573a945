"""db: the embedded server, the pool, named statements and migrations."""
