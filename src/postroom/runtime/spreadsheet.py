"""CSV as spreadsheets write and open it: the one reader, and the writer. Pure.

`CsvReader` takes bytes in chunks that may end anywhere, in a line, in a quoted field, in a character, and keeps only
the incomplete record. Lines may end in LF, CRLF or CR; quoted fields may contain line breaks; a byte order mark is
skipped. `read_lines` is for lists with one record per line: an open quote invalidates only its own line. Both yield a
`Row`; a record that is not CSV has a problem instead of cells. A file that cannot be read further raises `BadInput`.

Spreadsheets run a cell that begins with one of a few characters as a formula, and remote servers and recipients write
some of our cells. Such a cell gets a leading apostrophe, which spreadsheets read as "this is text"; `unescape_cell`
removes it, so that Postroom's own files are read back unchanged.
"""

import codecs
import csv
import io
from collections.abc import Callable, Iterable, Iterator

from postroom.errors import BadInput

Row = tuple[int, list[str], str]
"""The number of the (last) line, the cells, and the problem, which is empty for a valid record."""

LONGEST_LINE = 512 * 1024  # bounds memory; a recipient with its merge fields is far shorter

_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_OPEN_QUOTE = "unexpected end of data"  # text of the module csv

_FORMULA = ("=", "+", "-", "@", "\t", "'")
"""The apostrophe is included so that a text that begins with one survives the round trip."""


def write_rows(rows: Iterable[Iterable[object]]) -> str:
    """The rows as CSV lines; no cell may contain a line break."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([_escape_cell(value) for value in row] for row in rows)
    return out.getvalue()


def unescape_cell(cell: str) -> str:
    """The text of a cell that `write_rows` wrote; other cells stay unchanged."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULA) else cell


def _escape_cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


class CsvReader:
    """Reads one file in chunks. `separator_of` chooses the separator from the text that begins with the header."""

    def __init__(self, separator_of: Callable[[str], str]) -> None:
        self.line = 0
        """The number of lines read."""
        self.has_nul = False
        """True if the current text contains a NUL; rows need a check only then."""
        utf_8 = codecs.getincrementaldecoder("utf-8-sig")("strict")
        self._decoder = io.IncrementalNewlineDecoder(utf_8, translate=True)
        self._separator_of, self._separator = separator_of, ""
        self._kept = ""
        self._decoded_lines = 0

    def feed(self, chunk: bytes) -> Iterator[Row]:
        text = self._kept + self._decode(chunk, final=False)
        end = text.rfind("\n") + 1
        self._kept = text[end:]
        if end:
            yield from self._read(text[:end], final=False)
        if len(self._kept) > LONGEST_LINE:
            raise BadInput.of(f"line {self.line + 1}", f"does not end within {LONGEST_LINE} characters")

    def close(self) -> Iterator[Row]:
        """Yield the remaining rows after the last chunk."""
        text = self._kept + self._decode(b"", final=True)
        self._kept = ""
        if text:
            yield from self._read(text if text.endswith("\n") else text + "\n", final=True)

    def _decode(self, chunk: bytes, *, final: bool) -> str:
        try:
            text = self._decoder.decode(chunk, final=final)
        except UnicodeDecodeError as error:
            line = self._decoded_lines + 1 + error.object[: error.start].count(b"\n")
            if line == 1 and error.object.startswith(_UTF_16):
                raise BadInput.of("line 1", "the file is UTF-16; save it as UTF-8") from None
            raise BadInput.of(f"line {line}", "is not UTF-8; save the file as UTF-8 and upload it again") from None
        self._decoded_lines += text.count("\n")
        return text

    def _read(self, block: str, *, final: bool) -> Iterator[Row]:
        """Yield the rows of complete lines; the beginning of an incomplete record is kept."""
        if not self._separator and block.strip():  # empty lines may precede the header
            self._separator = self._separator_of(block)
        source = io.StringIO(block)
        reader = csv.reader(source, delimiter=self._separator or ",", strict=True)
        before, start = self.line, 0
        self.has_nul = "\0" in block
        while True:
            try:
                for row in reader:
                    self.line = before + reader.line_num
                    yield self.line, row, ""
                    start = source.tell()
            except csv.Error as error:
                if not final and source.tell() == len(block) and _OPEN_QUOTE in str(error):
                    self._kept = block[start:] + self._kept
                    return
                yield self._spoiled(before + reader.line_num, str(error))
                start = source.tell()
            else:
                return

    def _spoiled(self, last: int, reason: str) -> Row:
        """A record that is not CSV, if it is one line of the file."""
        first, self.line = self.line + 1, last
        if last > first:  # an open quote swallowed these lines, and many records with them
            raise BadInput.of(f"line {first}", "opens a quotation that does not end")
        return last, [], f"is not CSV: {reason}"


def read_lines(lines: Iterable[str], *, first: int = 1, longest: int = LONGEST_LINE) -> Iterator[Row]:
    """Each line as a row, numbered from `first`; empty lines are skipped."""
    for number, line in enumerate(lines, first):
        if line.strip():
            yield (number, *_read_line(line, longest))


def _read_line(line: str, longest: int) -> tuple[list[str], str]:
    if len(line) > longest:
        return [], "is too long"
    if '"' not in line:  # most lines, and many times faster
        return line.rstrip("\r\n").split(","), ""
    try:
        return next(csv.reader([line], strict=True)), ""
    except csv.Error as error:
        said = "a quote is opened and not closed on this line" if _OPEN_QUOTE in str(error) else error
        return [], f"is not CSV: {said}"
