"""delivery.mass: cancel, retry or resend all deliveries that a filter selects, in bounded steps.

A mass action is a row of `mass_actions`. Each step is one transaction: it locks the row, reads a window of ids from the
newest to the oldest, changes the deliveries that allow it, and stores the counts with the id where the next step
begins. A step that fails is repeated; a finished one is not. The request that starts an action runs its first steps,
and the workers' maintenance runs the others.

Deliveries accepted after the start are never touched: copies made by a resend are not resent. The audit log gets one
entry, when the action finishes, with the filter and the counts.
"""
