"""procrastinate's application: one task that does nothing. As a program, a worker that drains and ends.

python -m bench.subjects.procrastinate_worker <database url>
"""

import asyncio
import sys

import uvloop
from procrastinate import App, PsycopgConnector

CONCURRENCY = 10


def build_app(url: str) -> App:
    app = App(connector=PsycopgConnector(conninfo=url, min_size=CONCURRENCY, max_size=CONCURRENCY + 2))

    @app.task(name="mail")  # type: ignore[untyped-decorator, unused-ignore]
    async def mail(**_letter: str) -> None:
        await asyncio.sleep(0)

    return app


async def work(url: str) -> None:
    app = build_app(url)
    async with app.open_async():
        await app.run_worker_async(wait=False, concurrency=CONCURRENCY, install_signal_handlers=False)


if __name__ == "__main__":
    uvloop.run(work(sys.argv[1]))
