"""tracking: opens, clicks and unsubscribes of delivered mail.

NAME      tracking, opens, clicks and unsubscribes by signed links
OWNS      open_events, click_events (by month), engagements (first open and click per delivery), unsubscriptions.
CALLS     feedback (`merge_suppressions`, `lift_suppressions`: unsubscribes only), stats (`add_stats`), events
LINKS     are signed and self-contained (`tokens`): they stay valid after retention deletes the delivery.
          `links` puts them into HTML: `plan` once per template, `weave` once per mail.
ANSWERS   are public endpoints of the HTTP application (`public`). A pixel or a redirect never waits for the database:
          hits are collected in a bounded buffer and written in batches every tenth of a second (`buffer`). An
          unsubscribe responds after its commit; the page then offers four reasons, and the suppression stores one.
REPORTS   clicks by link of a campaign and by person, as JSON and CSV (`api`, `cli`).
MACHINES  are recognised where possible (`agents`); hits of people and machines are stored and counted separately.
FAILURES  database unavailable: pixels and redirects still work, hits stay in memory, and a full buffer drops the
          oldest, counted and logged; an unsubscribe fails with 503, so that it is never confirmed without being stored.
          A forged link: the pixel is served and nothing recorded; all other links show an error page. A hit that
          violates a constraint is dropped alone, with a log line; the rest of its batch is written.
HOSTILE INPUTS  all: anyone may request any path with any header.
"""
