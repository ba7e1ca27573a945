#!/usr/bin/env python3
"""A Django site in one file: `transaction.atomic` commits the order and its mail."""

import os
from http import HTTPStatus
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.db import connection, models, transaction
from django.http import HttpRequest, JsonResponse
from django.test import Client
from django.urls import path

import postroom

url = urlsplit(os.environ["DATABASE_URL"])
database = {
    "NAME": url.path[1:],
    "USER": url.username,
    "PASSWORD": url.password,
    "HOST": url.hostname,
    "PORT": url.port,
}
settings.configure(
    ALLOWED_HOSTS=["testserver"],
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **database}},
    ROOT_URLCONF=__name__,
    USE_TZ=True,
)
django.setup()


class Order(models.Model):
    """A customer's order."""

    number = models.IntegerField(primary_key=True)
    customer = models.TextField()

    class Meta:
        app_label = "shop"

    def __str__(self) -> str:
        return f"order {self.number}"


@transaction.atomic
def place_order(request: HttpRequest, number: int) -> JsonResponse:
    """Store the order and accept its mail; the mail leaves only if the transaction commits."""
    customer = request.POST["customer"]
    Order.objects.create(number=number, customer=customer)
    postroom.sync.send(
        connection,
        to=customer,
        subject=f"Order {number}",
        text="Thank you. We will write again when it ships.",
        idempotency_key=f"order-{number}",
    )
    return JsonResponse({"number": number}, status=201)


urlpatterns = [path("orders/<int:number>", place_order)]

if __name__ == "__main__":
    with connection.schema_editor() as editor:
        editor.create_model(Order)
    answer = Client().post("/orders/42", {"customer": "ada@example.org"})
    assert answer.status_code == HTTPStatus.CREATED, answer.content
