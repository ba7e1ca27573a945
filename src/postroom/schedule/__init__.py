"""schedule: messages at a person's local time.

NAME     schedule, people and events due at their local time: birthdays, anniversaries, reminders
OWNS     users, user_occasions, scheduled_events, schedule_state
STATES   PENDING → PROCESSING → COMPLETED or FAILED. PROCESSING → PENDING when a lease expires before the handover;
         FAILED → COMPLETED when a dead letter is redriven and sent
FILES    civil     days of the calendar; local time is converted in `runtime.zones`
         kinds     the occurrences of each kind; a new kind is one class
         plan      the next occurrence, as a pure decision
         planner   plans for many people in one transaction
         handover  destination and content of an event
         scheduled_events  events across people: list, move, cancel
         engine    claim, delivery and next event, in one transaction
         metrics   the backlog, for Prometheus and `postroom doctor`
CALLED BY  app (Scheduler), http, cli
CALLS    delivery (accept, `withdraw_deliveries`), mail's template `birthday`
FAILURES   BadInput, UserNotFound, OccasionNotFound, ScheduledEventNotFound, VersionConflict;
           ClaimLost rolls back a handover whose claim has expired

Once per occurrence. An event's key contains person, kind and occurrence (`birthday:<user>:2027`) and stays unique, so
no move, correction or second scheduler creates a second greeting; the delivery has the same key. The next event is
planned in the transaction that hands over the current one, so a failed event does not end the series.

Planning happens only in Python, because one place converts local time to UTC. The API plans in the transaction that
stores the person. SQL that writes `users` or `user_occasions` leaves `planned_version` behind `version`. The sweep then
plans within seconds, as of the time of the write (`unplanned_since`), so that events due before the sweep are not lost;
until then no event of that person is claimed. A process with other times of day than the schedulers leaves its people
to the sweep too. A new person who is inserted with a PENDING event keeps it until the person changes. An audit plans
missing events every 15 minutes. `refresh` plans everyone again after a change of time zone data or times of day, except
people whom the sweep has yet to plan.

Moves lose no event. A planned event keeps its occurrence when a move to another zone puts its time in the past: it is
sent at once. A date that is corrected to a past day is not sent. Deleting a person or an occasion, also in SQL, cancels
its queued deliveries and ends its dead letters (`cancel_greetings`).

Mail of the schedule uses the bulk lane: with one-click List-Unsubscribe, and not to people who have unsubscribed. Their
events end FAILED with the reason of the suppression (`explain_suppression`); the series continues.

Moved events. `moved_from` keeps the local time of the rule; planning then keeps the local time of the target and uses
the person's zone and texts. A cancelled event ends FAILED, its key stays used, and the next event is planned with it.

Lateness is measured from the time an event could first have been sent: its target, or the move that put the target in
the past. Planning or correcting a name during an outage does not reset it.
"""
