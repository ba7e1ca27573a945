"""client: the HTTP API from Python, for programs that do not share the database.

NAME       client: `postroom.Client` for asynchronous code, `postroom.sync.Client` for synchronous code

    async with postroom.Client("http://127.0.0.1:8025", key) as client:
        sent = await client.deliveries.send(to="ada@example.org", subject="Hello", text="Hello, Ada.")
        async for delivery in client.deliveries.list(status="failed"):
            print(delivery.id, delivery.subject)

SYNOPSIS   One attribute per tag of the API and one method per endpoint, both generated from the table of endpoints
           into `api/` by `./dev docs`: arguments are the parameters and the fields of the body, results are Structs.
           `calls.py` makes a request of the arguments and a result of the response. `session.py` repeats requests that
           failed. `asynchronous.py` (aiohttp) and `blocking.py` (http.client) send them. Everything but the sending is
           written once, as coroutines; the synchronous client runs them with `postroom.blocking`.

FAILURES   A response with an error raises the error of the service: `BadInput` with its fields, `IdempotencyConflict`,
           `DeliveryNotFound`, … `ApiUnreachable`: no response. A request is repeated after a lost connection or a
           status of 500 and above if a repetition is safe: GET, PUT, DELETE, or with an idempotency key. A method that
           takes such a key makes one. Other requests are repeated only if the server did not receive them (no
           connection) or did not process them (429).

CALLS      the API of `http`, over HTTP; imports nothing of Postroom but its errors

CALLED BY  applications, `docs/examples`, the tests of failover
"""
