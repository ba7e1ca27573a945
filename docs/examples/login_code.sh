#!/bin/sh
# Send a one-time code in the auth lane. It is cancelled if it is not sent within ten minutes.
set -eu

curl -sS --fail-with-body "$API_URL/v1/login-codes" \
    -H "Authorization: Bearer $API_KEY" \
    -H 'Content-Type: application/json' \
    -d '{"email":"ada@example.org","code":"493 027","locale":"fr","expires_in":600}'
