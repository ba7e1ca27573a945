"""Webhooks of mail providers: each module verifies one provider and reads its events. Hostile input.

| provider | proof                                                | scope of the proof                               |
|----------|------------------------------------------------------|--------------------------------------------------|
| ses      | SNS signature, certificate from amazonaws, our topic | the body; the list of topics excludes strangers  |
| sendgrid | ECDSA over timestamp and body                        | the body; a repeated event is ignored            |
| mailgun  | HMAC over timestamp and token, not over the body     | only the time: a token is valid for one body     |
| postmark | a secret in a header, or basic authentication        | the connection                                   |

A verified event needs no further proof of the address it names. Our Message-ID, if present, identifies the delivery.
"""

from postroom.feedback.providers.model import ProviderNotice, ProviderOptions, ProviderReports

__all__ = ["ProviderNotice", "ProviderOptions", "ProviderReports"]
