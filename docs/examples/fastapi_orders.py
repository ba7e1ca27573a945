#!/usr/bin/env python3
"""FastAPI and SQLAlchemy's asyncio: one session commits the order and its mail. Serve it with `fastapi run`."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from fastapi.testclient import TestClient
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import postroom

engine = create_async_engine(os.environ["DATABASE_URL"].replace("postgresql://", "postgresql+asyncpg://"))


class Base(DeclarativeBase):
    """The tables of the shop."""


class Order(Base):
    """A customer's order."""

    __tablename__ = "orders"

    number: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    """Create the tables at the start, and close the connections at the end."""
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


@app.exception_handler(postroom.BadInput)
async def refuse(_request: Request, error: postroom.BadInput) -> JSONResponse:
    """Name the field that was refused; without this, the answer is a 500."""
    return JSONResponse({"detail": str(error)}, status_code=HTTPStatus.UNPROCESSABLE_ENTITY)


@app.post("/orders/{number}", status_code=201)
async def place_order(number: int, customer: str) -> dict[str, int]:
    """Store the order and accept its mail; the mail leaves only if the session commits."""
    async with AsyncSession(engine) as session, session.begin():
        session.add(Order(number=number, customer=customer))
        await postroom.send(
            session,
            to=customer,
            subject=f"Order {number}",
            text="Thank you. We will write again when it ships.",
            idempotency_key=f"order-{number}",
        )
    return {"number": number}


if __name__ == "__main__":
    with TestClient(app) as client:
        refused = client.post("/orders/41", params={"customer": "ada@"})
        answer = client.post("/orders/42", params={"customer": "ada@example.org"})
    assert refused.status_code == HTTPStatus.UNPROCESSABLE_ENTITY, refused.text
    assert answer.status_code == HTTPStatus.CREATED, answer.text
