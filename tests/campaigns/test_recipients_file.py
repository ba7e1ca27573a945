"""Parsing of uploads: CSV dialects, chunk boundaries, and rejected lines."""

import json
import subprocess
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.campaigns.recipients_file import CsvLines, JsonLines, Lines
from postroom.errors import BadInput
from postroom.runtime.spreadsheet import LONGEST_LINE


def read(
    lines: Lines, *chunks: bytes
) -> tuple[list[tuple[str, str | None, str, dict[str, object]]], list[tuple[int, str]]]:
    """The recipients with decoded fields, and the rejected lines with their fields."""
    for chunk in chunks:
        lines.feed(chunk)
    lines.close()
    people, refused = lines.take()
    return [(email, name, zone, json.loads(data)) for email, name, zone, data in people], [
        (each.line, each.field) for each in refused
    ]


def emails(people: Sequence[tuple[str, object, object, object]]) -> list[str]:
    return [person[0] for person in people]


PLAIN = b"email,first_name,city\nann@example.org,Ann,Rome\nbob@example.org,Bob,Oslo\n"


@pytest.mark.parametrize(
    "written",
    [
        PLAIN,
        PLAIN.replace(b"\n", b"\r\n"),
        PLAIN.replace(b"\n", b"\r"),
        b"\xef\xbb\xbf" + PLAIN,
        PLAIN.rstrip(b"\n"),
        PLAIN.replace(b",", b";"),
        PLAIN.replace(b",", b"\t"),
        b"\n\n" + PLAIN.replace(b"\n", b"\n\n,,\n \n"),
        PLAIN.replace(b"email", b" EMAIL "),
        PLAIN.replace(b"Rome", b'"Rome"').replace(b"email", b'"email"'),
    ],
    ids=["lf", "crlf", "cr", "bom", "no-end", "semicolon", "tab", "empty-lines", "case", "quoted"],
)
def test_csv_dialects_of_spreadsheets_are_read(written: bytes) -> None:
    """Every dialect gives the same two recipients."""
    people, refused = read(CsvLines(), written)
    assert people == [
        ("ann@example.org", None, "", {"first_name": "Ann", "city": "Rome"}),
        ("bob@example.org", None, "", {"first_name": "Bob", "city": "Oslo"}),
    ]
    assert refused == []


HARD = (
    "email,name,time_zone,First Name,note\r\n"
    'ann@example.org,"Ännchen, ""A""",Europe/Rome,"Ann\r\nMaria","say ""hi"", twice\n"\r\n'
    "\r\n"
    "bob@example.org,,,Bob,🙂\r\n"
).encode()
HARD_PEOPLE = [
    ("ann@example.org", 'Ännchen, "A"', "Europe/Rome", {"first_name": "Ann\nMaria", "note": 'say "hi", twice\n'}),
    ("bob@example.org", None, "", {"first_name": "Bob", "note": "🙂"}),
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000])
def test_chunks_may_end_anywhere(size: int) -> None:
    """A chunk may end in a quoted field, between CR and LF, or inside a character."""
    chunks = [HARD[start : start + size] for start in range(0, len(HARD), size)]
    assert read(CsvLines(), *chunks) == (HARD_PEOPLE, [])


@given(cells=st.lists(st.lists(st.text(max_size=8), min_size=2, max_size=2), max_size=6), cut=st.integers(0, 200))
@settings(max_examples=150)
def test_csv_fields_round_trip(cells: list[list[str]], cut: int) -> None:
    """Any text in a field is read back, whatever the quoting and the chunk boundaries."""
    import csv
    import io

    clean = [[cell.replace("\0", "").encode("utf-8", "ignore").decode() for cell in row] for row in cells]
    target = io.StringIO(newline="")
    writer = csv.writer(target)
    writer.writerow(("email", "a", "b"))
    writer.writerows([f"p{n}@example.org", *row] for n, row in enumerate(clean))
    raw = target.getvalue().encode()
    people, refused = read(CsvLines(), raw[:cut], raw[cut:])
    assert refused == []
    normal = [[cell.replace("\r\n", "\n").replace("\r", "\n") for cell in row] for row in clean]
    assert [(person[3]["a"], person[3]["b"]) for person in people] == [tuple(row) for row in normal]


def test_invalid_lines_are_named_and_skipped() -> None:
    """An invalid line is rejected with its number and field; the other lines are read."""
    written = (
        "email,first_name\n"
        "not an address,A\n"  # 2
        "ann@example.org\n"  # 3: too few
        "bob@example.org,Bob,extra\n"  # 4: too many
        '"a\n\nb",C\n'  # 5 to 7
        ",Missing\n"  # 8
        "eve@example.org\0,Eve\n"  # 9
        f"long@example.org,{'x' * 40_000}\n"  # 10
        "last@example.org,Last\n"
    )
    people, refused = read(CsvLines(), written.encode())
    assert emails(people) == ["last@example.org"]
    assert refused == [
        (2, "email"), (3, "line"), (4, "line"), (7, "email"), (8, "email"), (9, "line"), (10, "line"),
    ]  # fmt: skip


def test_malformed_csv_line_is_rejected_alone() -> None:
    """Text after a closing quotation mark rejects its line; the next line is read."""
    people, refused = read(CsvLines(), b'email,a\nann@example.org,"x"y\nbob@example.org,ok\n')
    assert (emails(people), refused) == (["bob@example.org"], [(2, "line")])


@pytest.mark.parametrize(
    "written, line, words",
    [
        (b"name,city\nAnn,Rome\n", "line 1", "no column email"),
        (b"", "line 1", "header line is missing"),
        (b"\n\n", "line 1", "header line is missing"),
        (b"email,city,city\n", "line 1", "city twice"),
        (b"email,\n", "line 1", "column 2"),
        (b"email,unsubscribe_url\n", "line 1", "set by Postroom"),
        (b"\n\nemail,Email\n", "line 3", "email twice"),
        (b"email,a\nann@example.org,x\nb\xfcb@example.org,y\n", "line 3", "not UTF-8"),
        ("email,a\n".encode("utf-16"), "line 1", "UTF-16"),
        (b"email,a\nann@example.org," + b"x" * (LONGEST_LINE + 10), "line 2", "does not end"),
        (b'email,a\nann@example.org,"' + b"x\n" * LONGEST_LINE, "line 2", "does not end"),
        (b'email,a\nann@example.org,x\nbob@example.org,"y\neve@example.org,z\n', "line 3", "quotation"),
    ],
    ids=[
        "no-email",
        "empty",
        "blank",
        "twice",
        "nameless",
        "ours",
        "twice-known",
        "latin-1",
        "utf-16",
        "line",
        "quote",
        "quote-end",
    ],
)
def test_unreadable_file_error_names_the_line(written: bytes, line: str, words: str) -> None:
    """The error of an unreadable file names the first bad line."""
    with pytest.raises(BadInput) as caught:
        read(CsvLines(), *(written[start : start + 65536] for start in range(0, len(written), 65536)))
    [error] = caught.value.errors
    assert error.field == line
    assert words in error.message


def test_reader_buffers_only_the_incomplete_rest() -> None:
    """After any number of lines, a reader holds less than the last chunk."""
    lines = CsvLines()
    lines.feed(b"email,a\n")
    for number in range(2000):
        lines.feed(b"p%d@example.org,x\nq%d@exam" % (number, number))
        lines.feed(b"ple.org,y\n")
        lines.take()
    assert len(lines._reader._kept) == 0
    assert lines.line == 4001


def test_address_may_contain_a_display_name() -> None:
    """`Ann <ann@example.org>` sets the name, unless the file has a name column."""
    people, _ = read(CsvLines(), b'email,x\n"Ann Lee <ann@example.org>",1\n')
    assert people[0][:2] == ("ann@example.org", "Ann Lee")


def test_json_lines_give_the_same_recipients() -> None:
    """Known names become columns; every other name is a merge field with its JSON type."""
    written = b'\xef\xbb\xbf{"email":"ann@example.org","name":"Ann","time_zone":"Europe/Rome","age":7,"tags":["a"]}\n\n'
    people, refused = read(JsonLines(), written[:9], written[9:], b'{"email":"bob@example.org"}')
    assert people == [
        ("ann@example.org", "Ann", "Europe/Rome", {"age": 7, "tags": ["a"]}),
        ("bob@example.org", None, "", {}),
    ]
    assert refused == []


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense",
        b"[1]",
        b"{}",
        b'{"email": 7}',
        b'{"email": "ann@example.org", "name": 7}',
        b'{"email": "ann@example.org", "a": "\\u0000"}',
        b'{"email": "ann@example.org", "unsubscribe_url": "x"}',
        b'{"email": "ann@example.org", "a": "\xff"}',
        b'{"email": "ann@example.org", "a": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
)
def test_invalid_json_line_is_rejected_alone(line: bytes) -> None:
    """The line after an invalid JSON line is read."""
    people, refused = read(JsonLines(), line + b'\n{"email": "bob@example.org"}\n')
    assert emails(people) == ["bob@example.org"]
    assert [number for number, _ in refused] == [1]


def test_unterminated_json_line_is_named() -> None:
    """A line beyond the size limit ends the upload with its number."""
    with pytest.raises(BadInput) as caught:
        read(JsonLines(), b'{"email": "ann@example.org"}\n', b'{"a": "' + b"x" * LONGEST_LINE)
    assert caught.value.errors[0].field == "line 2"


def test_header_with_many_columns_is_parsed_fast() -> None:
    """A quadratic search for duplicate names took 0.8 s for 5,000 columns, and minutes for 60,000."""
    script = (
        "import resource; resource.setrlimit(resource.RLIMIT_CPU, (8, 8))\n"
        "from postroom.campaigns.recipients_file import CsvLines\n"
        "from postroom.errors import BadInput\n"
        "try: CsvLines().feed(('email,' + ','.join(f'c{n}' for n in range(60_000)) + '\\n').encode())\n"
        "except BadInput as refused: assert 'columns' in str(refused)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]


def test_unknown_time_zone_rejects_the_line() -> None:
    """An abbreviation or a city alone would send at another time than the file says."""
    text = b"email,time_zone\nada@example.org,EST\nbob@example.org,Berlin\neve@example.org, Europe/Berlin\n"
    lines = CsvLines()
    lines.feed(text)
    lines.close()
    assert [(person[0], person[2]) for person in lines.people] == [("eve@example.org", "Europe/Berlin")]
    refused = [(each.line, each.field, each.value) for each in lines.refused]
    assert refused == [(2, "time_zone", "EST"), (3, "time_zone", "Berlin")]


def test_fields_of_a_header_are_in_lower_case() -> None:
    """`First name` is the field that the hint of the editor names; two columns may not become one field."""
    lines = CsvLines()
    read(lines, b"E-Mail,Email,First name,CITY\nx,ada@example.org,Ada,London\n")
    assert tuple(lines.fields) == ("e_mail", "first_name", "city")
    with pytest.raises(BadInput, match="first_name twice"):
        read(CsvLines(), b"email,First Name,first_name\nada@example.org,Ada,Ada\n")
