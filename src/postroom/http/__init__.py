"""http: the API, for programs.

NAME     http, the HTTP application: JSON under /v1, links, pages, health, OpenAPI
OWNS     the tables `api_keys`, in which keys are kept as hashes, `operators`, the people of the dashboard, and
         `dashboard_sessions`, their sign-ins
STATES   a key is valid until it is revoked; there is no way back. An operator signs in until disabled; enabling an
         operator does not revive earlier sessions
CALLED BY  the composition root (`build_app`), the command line and the dashboard (`service`, `operators`), the SES
         drop-in (`touch_api_key`)
CALLS    the handlers that capabilities list in their `api.py`, as `Endpoint`s: parse → one service call → render
FAILURES   every refusal is application/problem+json with the field's name (`problems`); a bug answers 500 and says
         nothing of its cause; a database that does not answer is 503

LIMITS   head 64 kB, 100 headers, 10 s; body per endpoint (`Endpoint.most_body`: none for GET, 1 MB, or
         POSTROOM_MAX_BODY_MB where mail is accepted), 30 s and one more for each 8 kB; connections in all and per
         address (`runtime.http_connection`): 431, 408, 413, 503

HOSTILE INPUTS  the whole request, before and after authentication
         path         matched against fixed patterns; ids beyond a bigint are not found
         query        strict types, unknown and repeated parameters refused
         headers      Authorization only if it looks like a key; Idempotency-Key 1 to 255 visible characters;
                      X-Request-Id echoed only if it is plain; traceparent kept only if it is well formed
         body         read after the key was checked, bounded (413), JSON only (415), strict types, unknown fields
                      refused, bounded nesting; nothing is stored unless everything is right
         answers      bodies of one-time codes, variables and attachments' content do not come back out

One application serves the API, the links of sent mail (`tracking.public`) and the dashboard: all are `Endpoint`s, and a
`Site` adds those that need more than the room.

`second_factor` has the authenticator apps of operators (`totp`) and their recovery codes, `sessions` the list of
sessions, `notices` the mail about both.

Scopes decide what a key or an operator may do. `model.SCOPE_ROLES` lists every scope and the roles that have it.

A request passes, in order: route (404, 405) → key and scope (401, 403) → media types (415, 406) → size (413) →
decoding (400) → the handler.
"""
