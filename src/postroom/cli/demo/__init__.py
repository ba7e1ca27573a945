"""`postroom demo`: a story on the running system that leaves a dashboard full of real rows.

    command.py     the command: refuses rooms that are not for development, plays the scenes, prints the summary
    story.py       the state that scenes share: the room, the names of this run, and waiting for facts
    people.py      invented people at reserved domains
    scenes.py      sign-ups, birthdays, orders, failures
    campaign.py    a campaign with bounces, opens, clicks and unsubscribes
    subscriber.py  a webhook subscriber that fails and recovers
    takeover.py    a worker process that is killed while it sends
    view.py        the story in the terminal

Mail is accepted, sent and tracked as in production; the capture transport keeps it in the inbox. Every name of a run
contains a number of its own, so the demo can be played again.
"""
