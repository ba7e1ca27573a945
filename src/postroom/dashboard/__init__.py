"""dashboard: web pages for operators.

NAME     dashboard, pages drawn on the server: overview, deliveries, dead letters, inbox
OWNS     `ended_sessions`; sessions are signed cookies, figures are read when they are asked for
STATES   a session is good for twelve hours, until its key is revoked, or until its owner signs out
CALLED BY  `cli.listeners` (`build_dashboard`), as a site of the HTTP application; `endpoints` is the table of pages
CALLS    the services of delivery and of the capture inbox; its own statements only read
FAILURES   what the API answers as a problem becomes a page with the same status and the same sentence; a bug answers
         500 with a reference that the log knows as well; below /v1 an unknown path stays a problem document

HOSTILE INPUTS  everything shown was written by strangers: subjects, names, replies of servers, HTML
         pages        escaped by the templates; no script, style or picture but our own (Content-Security-Policy)
         HTML bodies  cleaned, then shown as a document of their own: sandboxed, without scripts, forms or the network
         forms        a session's token and the browser's word that the form was ours; addresses to return to are local
         sign-in      wrong keys are counted per address; the cookie holds no part of the key

The pages work without a script. With it, the overview follows along by server-sent events.
"""

from postroom.dashboard.endpoints import build_dashboard

__all__ = ["build_dashboard"]
