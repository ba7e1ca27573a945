"""Template files: read from folders, and gathered into the source of each template, which is stored as a version.

    <template_id>/<locale>/subject   (or subject.txt)   required
                           text      (or text.txt)      derived from html if absent
                           html      (or html.html, or html.mjml / mjml)
    <template_id>/_samples/<name>.json                  variables that every locale must render with
    _layouts/…  _partials/…          shared files for {% extends "_layouts/base.html" %} and {% include … %}

The source of a template has its own files and the shared files that it uses, so a change of a layout is a new version
of the templates that extend it and of no other. A later folder replaces an earlier one's templates by id, and its
shared files by path.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from postroom.mail.errors import TemplateInvalid
from postroom.runtime.template_tags import find_tags

SHARED = ("_layouts", "_partials")
SAMPLES = "_samples"

_TEMPLATE_ID = re.compile(r"[a-z0-9][a-z0-9._-]*")
_LOCALE = re.compile(r"[a-z]{2,8}(-[a-z0-9]{1,8})*")
_PART_OF_FILE = {
    "subject": "subject",
    "subject.txt": "subject",
    "text": "text",
    "text.txt": "text",
    "html": "html",
    "html.html": "html",
    "html.mjml": "html",
    "mjml": "html",
}
_USES = re.compile(r"\{%[-+]?\s*(?:extends|include|import|from)\b")
_USES_ONE = re.compile(
    r"\{%[-+]?\s*(?:extends|include|import|from)\s+(?:'([^'\\]*)'|\"([^\"\\]*)\")\s*(?:[-+]?%\}|ignore\b|import\b|as\b|with)"
)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file as it was written; `label` names it in error messages."""

    label: str
    text: str

    @property
    def is_mjml(self) -> bool:
        return self.label.endswith("mjml")


@dataclass(frozen=True, slots=True)
class TemplateSource:
    """The files of one template by path: `en/subject`, `_layouts/base.html`, `_samples/ada.json`."""

    template: str
    files: Mapping[str, SourceFile]

    @classmethod
    def stored(cls, template: str, texts: Mapping[str, str], *, version_id: int) -> "TemplateSource":
        """The source of a stored version."""
        label = f"{template} (version {version_id})"
        return cls(template, {path: SourceFile(f"{label} {path}", text) for path, text in texts.items()})

    @property
    def texts(self) -> dict[str, str]:
        """The text of each file, in the order of their paths."""
        return {path: self.files[path].text for path in sorted(self.files)}

    @property
    def content_hash(self) -> str:
        return hashlib.sha256(json.dumps(self.texts, ensure_ascii=False).encode()).hexdigest()

    @property
    def shared(self) -> dict[str, SourceFile]:
        return self._under(SHARED)

    @property
    def samples(self) -> dict[str, SourceFile]:
        return self._under((SAMPLES,))

    @property
    def messages(self) -> dict[str, dict[str, SourceFile]]:
        """The parts of each locale, by the name of its folder."""
        found: dict[str, dict[str, SourceFile]] = {}
        for path in sorted(self.files, key=lambda path: path.split("/")):
            folder, _, name = path.partition("/")
            if not folder.startswith("_"):
                found.setdefault(folder, {})[_PART_OF_FILE[name]] = self.files[path]
        return found

    def _under(self, folders: tuple[str, ...]) -> dict[str, SourceFile]:
        return {path: file for path, file in self.files.items() if path.partition("/")[0] in folders}


def read_sources(*directories: Path) -> tuple[dict[str, SourceFile], list[TemplateSource]]:
    """The shared files of these folders, and their templates by id; `TemplateInvalid` names the file and the reason."""
    shared: dict[str, SourceFile] = {}
    folders: dict[str, Path] = {}
    for directory in directories:
        shared.update(_shared_files(directory))
        folders.update((folder.name, folder) for folder in _template_folders(directory))
    return shared, [_read_source(template, folder, shared) for template, folder in sorted(folders.items())]


def normal_locale(locale: str) -> str:
    """A locale in lower case with dashes."""
    return locale.replace("_", "-").lower()


def _read_source(template: str, folder: Path, shared: Mapping[str, SourceFile]) -> TemplateSource:
    files = dict(_message_files(folder))
    if not files:
        raise TemplateInvalid(f"{folder}: the template has no locale")
    files |= _used(files.values(), shared)
    for file in _visible(folder / SAMPLES):
        if not file.name.endswith(".json"):
            raise TemplateInvalid(f"{file}: not a sample (a JSON file with the variables)")
        files[f"{SAMPLES}/{file.name}"] = _read(file)
    return TemplateSource(template, files)


def _message_files(folder: Path) -> Iterator[tuple[str, SourceFile]]:
    """The parts of all locales of a template."""
    seen: set[str] = set()
    for locale_folder in _folders(folder):
        if locale_folder.name == SAMPLES:
            continue
        locale = normal_locale(locale_folder.name)
        if not _LOCALE.fullmatch(locale):
            raise TemplateInvalid(f"{locale_folder}: not a locale (such as fr, pt-BR, zh-Hant)")
        if locale in seen:
            raise TemplateInvalid(f"{locale_folder}: the locale {locale!r} exists twice")
        seen.add(locale)
        for file in _parts_in(locale_folder):
            yield f"{locale_folder.name}/{file.name}", _read(file)


def _parts_in(folder: Path) -> list[Path]:
    parts: dict[str, Path] = {}
    for file in _visible(folder):
        part = _PART_OF_FILE.get(file.name)
        if part is None:
            raise TemplateInvalid(f"{file}: not a part of a message (subject, text, html or mjml)")
        if part in parts:
            raise TemplateInvalid(f"{file}: the part {part!r} exists twice")
        parts[part] = file
    if "subject" not in parts:
        raise TemplateInvalid(f"{folder}: the template has no subject")
    if "text" not in parts and "html" not in parts:
        raise TemplateInvalid(f"{folder}: the template has neither text nor html")
    return list(parts.values())


def _used(files: Iterable[SourceFile], shared: Mapping[str, SourceFile]) -> dict[str, SourceFile]:
    """The shared files that these files name, directly or through another; all if a name is computed by a template."""
    used: dict[str, SourceFile] = {}
    unread = list(files)
    while unread:
        for tag in find_tags(unread.pop().text):
            if not _USES.match(tag):
                continue
            if (one := _USES_ONE.match(tag)) is None:
                return dict(shared)
            path = one[1] or one[2]
            if path in shared and path not in used:
                used[path] = shared[path]
                unread.append(shared[path])
    return used


def _folders(directory: Path) -> list[Path]:
    # Names with a leading dot belong to version control, desktops and Kubernetes; skip them.
    return sorted(entry for entry in directory.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _visible(folder: Path) -> list[Path]:
    """The files of a folder, without files of version control and editors; empty if it does not exist."""
    if not folder.is_dir():
        return []
    return sorted(file for file in folder.iterdir() if not file.name.startswith(".") and not file.name.endswith("~"))


def _template_folders(directory: Path) -> Iterator[Path]:
    for folder in _folders(directory):
        if folder.name in SHARED:
            continue
        if not _TEMPLATE_ID.fullmatch(folder.name):
            raise TemplateInvalid(f"{folder}: not a template id (lower case, digits, '.', '_' and '-')")
        yield folder


def _shared_files(directory: Path) -> dict[str, SourceFile]:
    if not directory.is_dir():
        raise TemplateInvalid(f"{directory}: there is no such template directory")
    files = (file for name in SHARED for file in sorted((directory / name).rglob("*")) if file.is_file())
    visible = (file for file in files if not file.name.startswith("."))
    return {file.relative_to(directory).as_posix(): _read(file) for file in visible}


def _read(file: Path) -> SourceFile:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise TemplateInvalid(f"{file}: not UTF-8 (byte {error.start})") from error
    except OSError as error:
        raise TemplateInvalid(f"{file}: cannot be read ({error.strerror})") from error
    if "\0" in text:
        raise TemplateInvalid(f"{file}: contains a NUL character, which PostgreSQL cannot store")
    return SourceFile(str(file), text)
