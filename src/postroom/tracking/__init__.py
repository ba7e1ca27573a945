"""tracking: what people, and their machines, do with mail after it has arrived.

NAME      tracking, opens, clicks and unsubscriptions by signed links
OWNS      open_events, click_events (by month), engagements (one row per delivery: its firsts), unsubscriptions.
CALLS     feedback (`merge_suppressions`, `lift_suppressions`: unsubscriptions only), stats (`add_stats`), events
LINKS     are signed and carry everything they need (`tokens`): they keep working after the queue has forgotten the
          mail. `links` puts them into HTML: `plan` once per template, `weave` once per mail.
ANSWERS   are public endpoints of the HTTP application (`public`). A pixel or a redirect never waits for the database:
          hits gather in memory, bounded, and are written together every tenth of a second (`buffer`). An unsubscribe
          answers only after its commit; the page then offers four reasons, and the suppression keeps the chosen one.
REPORTS   clicks by link of a campaign and by person, as JSON and CSV (`api`, `cli`).
MACHINES  are recognised where that is possible (`agents`); both kinds are kept, and counted apart.
FAILURES  database away: pixels and redirects go on, hits wait in memory, the oldest leave when there are too many,
          counted and logged; an unsubscribe is refused with 503, so that nobody believes what is not so. A forged link:
          the pixel as ever and nothing recorded; a page that says so for all others. A hit that no constraint foresaw
          is dropped alone, with a log line, and does not hold up its neighbours.
HOSTILE INPUTS  everything: anybody may ask for any path with any header.
"""
