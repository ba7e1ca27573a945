"""delivery: the queue and its ledger."""
