"""Requests that work, by method and path: each stands in the OpenAPI document beside the schema of its body."""

from typing import Any

_LETTER = "<p>Hello {{ name }}, the autumn list is out.</p>"

EXAMPLES: dict[tuple[str, str], Any] = {
    ("POST", "/v1/deliveries"): {
        "to": ["Ada <ada@example.org>"],
        "subject": "Your order has shipped",
        "text": "It will arrive on Friday.",
        "tags": {"order": "1042"},
    },
    ("POST", "/v1/deliveries/batch"): [
        {"to": ["ada@example.org"], "template": "welcome", "variables": {"name": "Ada"}},
        {"to": ["bob@example.org"], "template": "welcome", "variables": {"name": "Bob"}},
    ],
    ("POST", "/v1/login-codes"): {"email": "ada@example.org", "code": "123456", "expires_in": 600},
    ("POST", "/v1/mass-actions"): {"kind": "retry", "status": "dead_letter", "reason": "max_age"},
    ("POST", "/v1/operators"): {"email": "ada@example.org", "role": "support"},
    ("POST", "/v1/malformed-commands/{command_id:int}/resubmit"): {"fields": {"source": "shop"}},
    ("POST", "/v1/accounts"): {"email": "ada@example.org", "login": "ada"},
    ("POST", "/v1/activations"): {"email": "ada@example.org"},
    ("POST", "/v1/password-recoveries"): {"email": "ada@example.org"},
    ("POST", "/v1/tokens/consume"): {"email": "ada@example.org", "code": "12345"},
    ("POST", "/v1/users"): {
        "email": "ada@example.org",
        "first_name": "Ada",
        "last_name": "Lovelace",
        "date_of_birth": "1990-12-10",
        "timezone": "Europe/London",
    },
    ("PUT", "/v1/users/{user_id:uuid}"): {"timezone": "Europe/Paris"},
    ("POST", "/v1/events"): {
        "events": [{"type": "OrderPlaced", "data": {"order": 1042, "total": "19.90"}, "tags": ["order:1042"]}]
    },
    ("POST", "/v1/outbox/topics"): {"name": "orders", "types": ["OrderPlaced"]},
    ("PUT", "/v1/outbox/topics/{name}"): {"types": ["OrderPlaced", "OrderCancelled"]},
    ("POST", "/v1/outbox/rules"): {
        "topic": "orders",
        "event_type": "OrderPlaced",
        "template": "order-placed",
        "recipient_path": "email",
    },
    ("PUT", "/v1/outbox/{topic}/{publisher}"): {"start": "now"},
    ("POST", "/v1/outbox/{topic}/{publisher}/reset"): {"position": 0},
    ("POST", "/v1/webhooks"): {"url": "https://shop.example.org/hooks", "topics": ["orders"]},
    ("PATCH", "/v1/webhooks/{endpoint_id:int}"): {"enabled": False},
    ("POST", "/v1/webhooks/{endpoint_id:int}/rotate"): {"overlap_s": 86400},
    ("POST", "/v1/senders"): {
        "email": "office@example.org",
        "auth_type": "smtp",
        "smtp_host": "smtp.example.org",
        "smtp_port": 587,
        "smtp_username": "office@example.org",
        "smtp_password": "…",
    },
    ("PATCH", "/v1/senders/{sender_id:int}"): {"daily_limit": 500},
    ("PUT", "/v1/domains/{domain}"): {"max_connections": 5, "messages_per_second": 10},
    ("PATCH", "/v1/campaigns/{campaign_id:int}"): {"subject": "The autumn list, corrected"},
    ("POST", "/v1/campaigns"): {"name": "autumn", "subject": "The autumn list", "html": _LETTER},
    ("POST", "/v1/campaigns/{campaign_id:int}/preview"): {"variables": {"name": "Ada"}},
    ("POST", "/v1/campaigns/{campaign_id:int}/test"): {"to": ["ada@example.org"]},
    ("POST", "/v1/suppressions"): {"email": "ada@example.org", "reason": "manual"},
    ("POST", "/v1/erasures"): {"email": "ada@example.org"},
    ("POST", "/v1/templates/{template_id}/preview"): {"variables": {"name": "Ada"}},
    ("POST", "/v1/keys"): {"name": "shop", "scopes": ["deliveries:write", "deliveries:read"]},
}
