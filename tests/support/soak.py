"""How long the tests that kill processes go on: once by default, `./dev soak` asks for about a minute of each."""

import os

TIMES = int(os.environ.get("TEST_SOAK", "1"))
