"""events: facts.

NAME     events, what happened and who did it
OWNS     the table `audit_log`: append-only, refused by trigger otherwise
CALLED BY  every service whose use-case is a person's decision
FAILURES   none of its own: it stands or falls with the caller's transaction
"""
