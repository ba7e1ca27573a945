"""dashboard: web pages for operators.

NAME     dashboard, pages drawn on the server: overview, deliveries, dead letters, inbox, campaigns, suppressions,
         senders, destinations, statistics, schedule, people, accounts, events, outbox, webhooks, malformed commands,
         health, workers, keys, operators, audit log, partitions, backups, archive, settings
OWNS     `ended_sessions` and `sign_in_codes`; sessions are signed cookies, preferences a cookie, figures are read when
         they are requested
STATES   a session is valid for twelve hours, until its key is revoked, until its operator is disabled or removed, or
         until it is signed out. A sign-in code is valid for ten minutes, five attempts and one use; a sign-in link for
         ten minutes and one use, on loopback. A session that is older than ten minutes makes no key with every scope
         and changes no second factor
CALLED BY  `cli.listeners` (`build_dashboard`), as a site of the HTTP application; `endpoints` is the table of pages;
         `cli.up` and `cli.sign_in_link` (`links.make_link`)
CALLS    the services of the other capabilities; its own statements read claims and workers
FAILURES   an error that the API answers as a problem becomes a page with the same status and sentence; a bug answers
         500 with a reference that is also in the log; below /v1 an unknown path stays a problem document

HOSTILE INPUTS  everything shown was written by strangers: subjects, names, replies of servers, HTML
         pages        escaped by the templates; no script, style or picture but our own (Content-Security-Policy)
         HTML bodies  cleaned, then shown as a document of their own: sandboxed, without scripts, forms or the network
         files        uploads are read in pieces, after the token of their form was checked
         forms        a session's token and the browser's word that the form was ours; addresses to return to are local
         sentences    about a result stand in the address, sealed for the session against forged links
         sign-in      wrong keys and codes are counted per client; the cookie holds no part of the key. A request for a
                      code does the same for every address, and counts per address and per client. A code works only
                      in the browser that requested it
         second step  a code of an app works once, and ten wrong ones within an hour block the operator's codes
         OIDC         the answers of the provider and the parameters of the callback; an ID token counts only with a
                      signature by a published key, the right issuer, client, nonce and times, and a verified address
                      in ASCII; the account of the first sign-in is kept

People sign in as themselves, with a mailed code (`codes`) or at an OpenID Connect provider (`oidc`), or with an API
key. A principal, which is a key or an operator, sees the pages, parts and buttons that its scopes allow, and each
request checks the scope again. The pages work without a script. With it, the overview, the inbox, campaigns, events and
the outbox are live, the preview of a campaign follows the typing, uploads show their progress, filters search as you
type, and `?` lists shortcuts.

    codes.py        sign-in codes that are mailed to operators
    entry.py        from a proven identity to a session, with the second factor in between
    own_account.py  one's own sessions, and the setup of the second factor
    links.py        sign-in links that work once, on loopback
    oidc.py         the flow at an OpenID Connect provider; `id_token.py` checks its answer, `sign_in.py` serves it
    page.py         the request of a page, and what pages are made of: tables, forms, questions before an action
    listing.py      tables, filters, forms and buttons declared as data; columns come from the records' declarations
    navigation.py   the links in groups, their icons and shortcuts
    preferences.py  time zone, colors and row height of a browser
    chart.py        charts as SVG: bars, lines and areas, with the numbers as a table
    campaigns.py    the list of campaigns and the results of one; campaign_form.py writes drafts, campaign_actions.py
                    starts, stops and takes recipients, campaign_figures.py draws the funnel
    events.py       events, commands and transactions
    outbox.py       publishers: lag, pause, resume, skip, and reset after its effect was shown; topics.py has the topics
                    and mail rules, webhooks.py the endpoints
    malformed.py    malformed commands, by reason and one by one
    schedule.py     the coming days by zone, people, and the preview of their next message
    accounts.py     accounts and the state of their tokens
    file_form.py    forms with a file
    live.py         parts of a page that are sent again when they change
    timeline.py     the story of one delivery; delivery_actions.py lists its buttons, edit.py sends a changed copy,
                    mass_actions.py acts on all of a filter
"""
