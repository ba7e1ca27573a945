#!/usr/bin/env python3
"""Flask and SQLAlchemy: one session commits the order and its mail. Serve it with `flask --app flask_orders run`."""

import os
from http import HTTPStatus
from typing import Any

from flask import Flask, request
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import postroom

app = Flask(__name__)
engine = create_engine(os.environ["DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://"))


class Base(DeclarativeBase):
    """The tables of the shop."""


class Order(Base):
    """A customer's order."""

    __tablename__ = "orders"

    number: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]


@app.post("/orders/<int:number>")
def place_order(number: int) -> tuple[dict[str, Any], int]:
    """Store the order and accept its mail; the mail leaves only if the session commits."""
    customer = request.form["customer"]
    with Session(engine) as session, session.begin():
        session.add(Order(number=number, customer=customer))
        postroom.sync.send(
            session,
            to=customer,
            subject=f"Order {number}",
            text="Thank you. We will write again when it ships.",
            idempotency_key=f"order-{number}",
        )
    return {"number": number}, 201


if __name__ == "__main__":
    Base.metadata.create_all(engine)
    answer = app.test_client().post("/orders/42", data={"customer": "ada@example.org"})
    assert answer.status_code == HTTPStatus.CREATED, answer.text
