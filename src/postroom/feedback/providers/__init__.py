"""Webhooks of mail providers: each module verifies one provider and reads its events. Hostile input.

| provider | proof                                                | what it covers                                     |
|----------|------------------------------------------------------|----------------------------------------------------|
| ses      | SNS signature, certificate from amazonaws, our topic | the body; anybody can have a topic, ours are known |
| sendgrid | ECDSA over timestamp and body                        | the body; the same event twice is one              |
| mailgun  | HMAC over timestamp and token, not over the body     | only the moment: a token is good for one body      |
| postmark | a secret in a header, or basic authentication        | the channel                                        |

A verified event needs no other proof of the person it names. Which delivery it was is known if our Message-ID is in it.
"""

from postroom.feedback.providers.model import ProviderNotice, ProviderOptions, ProviderReports

__all__ = ["ProviderNotice", "ProviderOptions", "ProviderReports"]
