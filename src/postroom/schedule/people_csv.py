"""People from a spreadsheet: lines in, people out, and for every line that cannot be one, its number and why."""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date

from postroom.errors import BadInput
from postroom.schedule.model import Person

REQUIRED = ("first_name", "last_name", "date_of_birth", "timezone")
OPTIONAL = ("email", "webhook_url")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the file: a person, or why it is none."""

    number: int
    person: Person | None
    problem: str | None = None


def read_people(text: Iterable[str]) -> Iterator[Line]:
    """Each line after the header; raises `BadInput` if the header itself cannot be used."""
    reader = csv.DictReader(text, strict=True)
    columns = [name.strip().lower() for name in reader.fieldnames or ()]
    missing = [name for name in REQUIRED if name not in columns]
    unknown = [name for name in columns if name not in (*REQUIRED, *OPTIONAL)]
    if missing or unknown:
        wrong = f"lacks {', '.join(missing)}" if missing else f"has unknown columns: {', '.join(unknown)}"
        raise BadInput.of("header", wrong)
    reader.fieldnames = columns
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Line(reader.reader.line_num, None, f"is not CSV: {error}")
            continue
        yield _line(reader.line_num, row)


def _line(number: int, row: dict[str | None, str | None]) -> Line:
    if None in row or None in row.values():
        return Line(number, None, "has not as many fields as the header")
    fields = {str(name): (value or "").strip() for name, value in row.items()}
    try:
        born = date.fromisoformat(fields["date_of_birth"])
    except ValueError:
        return Line(number, None, "date_of_birth: must be a date such as 1815-12-10")
    person = Person(
        first_name=fields["first_name"],
        last_name=fields["last_name"],
        date_of_birth=born,
        timezone=fields["timezone"],
        email=fields.get("email") or None,
        webhook_url=fields.get("webhook_url") or None,
    )
    return Line(number, person)
