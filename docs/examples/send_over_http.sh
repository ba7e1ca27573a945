#!/bin/sh
# The API with curl. API_URL and API_KEY say where and who.
set -eu

curl -sS --fail-with-body "$API_URL/v1/deliveries" \
    -H "Authorization: Bearer $API_KEY" \
    -H 'Content-Type: application/json' \
    -H 'Idempotency-Key: order-42' \
    -d '{"to":["Ada Lovelace <ada@example.org>"],"subject":"Order 42","text":"Thank you, Ada."}'
