"""schedule: messages at a person's local time.

NAME     schedule, people and what falls due on their own clocks: birthdays, anniversaries, reminders
OWNS     users, user_occasions, scheduled_events, schedule_state
STATES   PENDING → PROCESSING → COMPLETED or FAILED. PROCESSING → PENDING when a lease ran out before the handover;
         FAILED → COMPLETED when a dead letter was brought back and sent
FILES    civil     days of the calendar; local time is converted in `runtime.zones`
         kinds     what occurs when; a new kind is one class
         plan      which occurrence comes next, as a pure decision
         planner   plans for many people in one transaction
         handover  where an event goes and what it says
         agenda    events across people: list, move, cancel
         engine    claim, delivery and what follows, in one transaction
         metrics   what is behind, for Prometheus and `postroom doctor`
CALLED BY  app (Scheduler), http, cli
CALLS    delivery (accept, `withdraw_deliveries`), mail's template `birthday`
FAILURES   BadInput, UserNotFound, OccasionNotFound, ScheduledEventNotFound,
           VersionConflict; ClaimLost undoes a handover that came too late

Once per occurrence. An event's key names person, kind and occurrence (`birthday:<user>:2027`) and is unique for good,
so no move, correction or second scheduler makes a second greeting; the delivery carries the same key. What follows an
event is planned in the transaction that hands it over, so no failure ends the chain.

Where planning happens. In Python only, because only one place may turn local time into instants. The API plans in the
transaction that stores the person. Plain SQL on `users` or `user_occasions` leaves `planned_version` behind `version`,
and the sweep plans within seconds, as of when it was written (`unplanned_since`), so that nothing that falls due before
the sweep is lost; until then nothing of a changed person is claimed. So does a process that was told other times of day
than the schedulers. New people who come with a PENDING event of their own keep it, until they change. Now and then an
audit looks for whoever lost an event, and plans it again; other rules of time (`refresh`) plan everybody anew, except
whom the sweep has yet to plan for.

Moves lose nothing. What is planned and unsent keeps its occurrence even where its hour, or its day, is over: it goes
out at once. A date that is corrected to a day that is over is not made up for. Deleting a person or an occasion, by
whatever way, cancels what still waits to leave, and ends its dead letters (`cancel_greetings`).

Mail of the schedule goes out in the lane `bulk`: with one-click List-Unsubscribe, and not at all to a person who has
unsubscribed. Such an event ends FAILED with the reason of the suppression (`explain_suppression`); the chain goes on.

Moved by hand. `moved_from` keeps the local time of the rule; planning then keeps the target's local time and takes zone
and words of the person. A cancelled event ends FAILED, its key stays used, and what follows is planned with it.

Late is measured from when something could first have been sent: its time, or the move that brought it past its time.
Planning during an outage, or correcting a name in it, makes nothing less late.
"""
