"""dropins.ses: `SendEmail` of Amazon SES version 2, so that AWS's client libraries work here by another endpoint.

NAME     POST /v2/email/outbound-emails; every other call of version 2 is refused in AWS's words
FILES    credentials  the pair of keys that belongs to an API key of ours: derived, stored nowhere
         store, service  the API keys behind the pairs
         sign_in      check of the signature
         shapes       requests of clients, and their conversion to deliveries
         answers      responses
         api, cli     the endpoint; `postroom keys ses-credentials`
SIGN-IN  Signature Version 4 for the service `ses`, in any region; the API key needs `deliveries:write`. Before the
         signature is verified a process holds at most 64 kB, unless the client knows an access key id that cannot be
         guessed (`sign_in`). Refusals do not change `last_used_at`
PROMISES a 200 means committed; `MessageId` is the delivery's id. A client's own repetitions of one call
         (`amz-sdk-invocation-id`) and an `Idempotency-Key` that the signature covers are taken once. Without either
         the signature itself is the key. A signature is valid for five minutes and for one call: with another
         invocation id it is refused (429), and AWS's libraries sign and send the call again.
IGNORES  ConfigurationSetName, TenantName, EndpointId, the addresses for feedback and the ARNs of identities: Postroom
         has its own ways for what they choose. Unsupported fields that would change a mail are rejected by name.
RAW      a message's own From says who writes it; `FromEmailAddress` is used only if it has none.
"""
