"""feedback: why an address gets nothing.

NAME     feedback, suppression for now
OWNS     the table `suppressions`: an address (lower case), a scope (`all`, or only `bulk`) and a reason
READ BY  delivery: when a request is accepted, and again right before sending
"""
