"""The cost of a new field of a delivery, proved: it is added to a copy of the source, and used."""

import asyncio
import os
import re
import shutil
import sys
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
FILES = (
    "db/migrations/0001_delivery.sql",
    "delivery/model.py",
    "delivery/queries.sql",
    "delivery/functions/accept_deliveries.sql",
    "delivery/functions/send.sql",
    "delivery/functions/send_again.sql",
)
"""The files that CONTRIBUTING names. Others derive the field from these."""
MODEL = "traceparent"
"""A field without rules of its own; the new field stands beside it wherever a list or a declaration has it."""
COLUMN = rf"unnest\(p_{MODEL}\) AS {MODEL}"
ITEM = re.compile(rf"^(?!\s*--)(.*?)(?P<item>{COLUMN}|[^,()\n]*\b\w*{MODEL}\b[^,()\n]*)(?=[,)\n])", re.MULTILINE)
RECORDS = re.compile(r"^class (?:DeliveryRequest|Delivery)\b.*?(?=^@dataclass|^class )", re.MULTILINE | re.DOTALL)


def _with_field(text: str) -> str:
    """The text with a second item behind each item of `MODEL`, except in an expression about its value."""

    def twice(found: re.Match[str]) -> str:
        item = found["item"]
        if " FROM " in item or ":=" in item:
            return found[0]
        return f"{found[0]},\n{item.replace(MODEL, 'reference')}"

    return ITEM.sub(twice, text)


def _with_attribute(found: re.Match[str]) -> str:
    return re.sub(rf"^(.*\b){MODEL}(\b.*\n)", r"\g<0>\1reference\2", found[0], flags=re.MULTILINE)


def _widen(source: Path) -> None:
    for name in FILES:
        file = source / "postroom" / name
        text = file.read_text("utf-8")
        wider = _with_field(text) if file.suffix == ".sql" else RECORDS.sub(_with_attribute, text)
        assert wider != text, name
        file.write_text(wider, "utf-8")


async def test_a_field_of_a_delivery_changes_at_most_six_files(tmp_path: Path, database_url: str) -> None:
    """HTTP, SQL, copies and suppressed mail store it, and the API shows it; CONTRIBUTING names the same files."""
    assert len(FILES) <= 6
    source = tmp_path / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    _widen(source)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.wider_delivery", database_url),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(source)},
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    expected = {"posted": "http", "copy": "http", "sql": "sql", "suppressed": "suppressed"}
    assert msgspec.json.decode(output) == expected
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("### Adding a field")[2].partition("\n## ")[0]
    assert [name for name in FILES if name.removeprefix("delivery/functions/") not in page] == []
