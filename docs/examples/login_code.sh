#!/bin/sh
# A one-time code, in the lane that waits for nobody. After ten minutes it is not sent any more.
set -eu

curl -sS --fail-with-body "$API_URL/v1/login-codes" \
    -H "Authorization: Bearer $API_KEY" \
    -H 'Content-Type: application/json' \
    -d '{"email":"ada@example.org","code":"493 027","locale":"fr","expires_in":600}'
