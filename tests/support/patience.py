"""Timeouts of tests: the time after which a test treats something as stuck.

They are never measured: a busy machine may pause for seconds, and no test may fail for that.
"""

PATIENCE_S = 60
