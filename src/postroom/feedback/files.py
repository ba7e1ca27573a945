"""Read reports from files: one message, an mbox, a Maildir, or standard input. Blocking; for the command line."""

import mailbox
import sys
from collections.abc import Iterator
from pathlib import Path

from postroom.errors import BadInput

LARGEST = 64 * 1024 * 1024  # mailbox files of bounces are smaller; bounds memory
_MBOX = b"From "


def read_messages(source: str) -> Iterator[bytes]:
    """Every message of a file or folder, `-` for standard input; raises `BadInput` if it cannot be read."""
    if source == "-":
        yield from _stream(sys.stdin.buffer.read(LARGEST))
        return
    path = Path(source)
    if path.is_dir():
        yield from _folder(path)
    elif path.is_file():
        yield from _file(path)
    else:
        raise BadInput.of("file", f"{source} is neither a file nor a folder")


def _stream(raw: bytes) -> Iterator[bytes]:
    if not raw.startswith(_MBOX):
        yield raw
        return
    pieces = raw.split(b"\nFrom ")
    yield pieces[0].partition(b"\n")[2]
    for piece in pieces[1:]:
        yield piece.partition(b"\n")[2]


def _file(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        is_mbox = file.read(len(_MBOX)) == _MBOX
        if not is_mbox:
            file.seek(0)
            yield file.read(LARGEST)
            return
    box = mailbox.mbox(path, create=False)
    try:
        for key in box.iterkeys():
            yield box.get_bytes(key)
    finally:
        box.close()


def _folder(path: Path) -> Iterator[bytes]:
    """The messages of a Maildir or any other folder."""
    folders = [path / name for name in ("new", "cur")] if (path / "cur").is_dir() else [path]
    for folder in folders:
        for file in sorted(folder.iterdir()) if folder.is_dir() else ():
            if file.is_file():
                with file.open("rb") as message:
                    yield message.read(LARGEST)
