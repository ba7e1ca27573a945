"""dropins.resend: the HTTP API of Resend, so that its client libraries work here by another base URL.

NAME     POST /emails, GET /emails, POST /emails/batch, GET /emails/{id}, PATCH /emails/{id}, POST /emails/{id}/cancel
FILES    shapes   requests of its clients, and their conversion to deliveries
         store, service, model  the listing, which needs more of each mail than ours shows
         answers  responses: ids, states in Resend's words, errors in its format
         api      the endpoints
SIGN-IN  `Authorization: Bearer pr_…`, an API key of ours: `deliveries:write` to send, `deliveries:read` to look,
         `deliveries:operate` to cancel and reschedule
PROMISES a 2xx means committed; an `Idempotency-Key` is kept as everywhere; nothing that would change a mail is ignored
         in silence: files by URL and unknown fields are refused by name
"""
