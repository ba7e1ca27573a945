"""dropins.django: an e-mail backend for Django, so that `send_mail` and everything built on it goes through Postroom.

    EMAIL_BACKEND = "postroom.dropins.django.EmailBackend"
    INSTALLED_APPS += ["postroom.dropins.django"]                       # makes the room, checks, shows deliveries
    POSTROOM = {"ROOM": "postroom"}                                     # the site's own PostgreSQL holds the room
    POSTROOM = {"URL": "http://127.0.0.1:8025", "KEY": "pr_…"}          # or Postroom is elsewhere

NAME     EmailBackend
FILES    message   what a Django message means as a delivery
         database  acceptance inside the site's own transaction, on Django's connection
         web       acceptance over HTTP
         backend   the seam that Django calls
         room, migrations, checks, models, admin, management       the app: `manage.py migrate` makes the room, also in
                   test databases; `manage.py check --database default`; a read-only page of deliveries in the admin;
                   `manage.py postroom …`
PROMISES in the site's own database a mail is part of the transaction that sends it: committed with it, gone with it. A
         mail that is refused leaves the transaction as it was. Over HTTP a mail that is counted is committed, and the
         same message sent again after an error is one mail, whatever became of the first try.
SETTINGS `POSTROOM`: ROOM (schema, "postroom"), DATABASE (alias, "default"), SOURCE ("django"), or URL and KEY; TIMEOUT
         in seconds (30); DASHBOARD, the address of Postroom's pages for links in the admin. In the environment:
         POSTROOM_IDEMPOTENCY_TTL, as for Postroom itself
MARKS    the headers of SMTP submission work here too: `Idempotency-Key`, `X-Postroom-Lane`, `X-Postroom-Template`, …
"""

from postroom.dropins.django.backend import EmailBackend

__all__ = ["EmailBackend"]
