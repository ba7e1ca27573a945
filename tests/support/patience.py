"""How long a test waits before it takes something for stuck, or a client of its own for left alone.

Never what is measured: a machine that builds may stop for seconds anywhere, and no test may fail for that.
"""

PATIENCE_S = 60
