"""Changes to HTML sources that hold template tags: styles applied, MJML compiled, every tag left in place.

Rules in `<style>` are written onto the elements they match; media queries and the like stay. That happens
once, at load, if logic cannot change which rule applies (`inline_at_load`), otherwise after each rendering
(`inline_styles`). Nothing is fetched: linked stylesheets are ignored.

HTML parsers move words that stand between table rows out of the table, and take tags inside attributes apart.
So tags are replaced by placeholders first (statements by comments, which may stand anywhere) and put back
afterwards.
"""

import re
from collections.abc import Iterable

import mrml
from css_inline import CSSInliner
from css_inline import InlineError as StylesInvalid

__all__ = [
    "TAG",
    "MjmlInvalid",
    "StylesInvalid",
    "compile_mjml",
    "draws_on_others",
    "has_styles",
    "inline_at_load",
    "inline_styles",
]

_INLINER = CSSInliner(load_remote_stylesheets=False, keep_style_tags=True, remove_inlined_selectors=True)
_STYLE = re.compile(r"<style\b[^>]*>(.*?)</style\s*>", re.IGNORECASE | re.DOTALL)
TAG = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
_PLACEHOLDER = re.compile(r"<!--prx(\d+)x-->|prx(\d+)x")
_STATEMENT = re.compile(r"\{%[-+]?\s*(\w+)")
_SIMPLE_STATEMENTS = frozenset({"if", "elif", "else", "endif", "for", "endfor"})
# Which element these match depends on its neighbours or its attributes, and logic changes those.
_FRAGILE_SELECTOR = re.compile(r"[\[+~]|:(?!hover|active|focus|visited|link)")
_DYNAMIC_TARGET = re.compile(r"""\b(?:class|id|style)\s*=\s*(?:"[^"]*|'[^']*|)prx\d+x""", re.IGNORECASE)
_MISPLACED = re.compile(r"""</?prx|prx\d+x\w*=""|&lt;!--prx""")
_EVENT = re.compile(r"<!--prx\d+x-->|prx\d+x|</?[a-z][a-z0-9:-]*", re.IGNORECASE)
_SUPPLIED = re.compile(r"</?(?:html|head|body|style)$", re.IGNORECASE)
_VOID = frozenset({"<area", "<br", "<col", "<hr", "<img", "<input", "<link", "<meta", "<source", "<wbr"})


def has_styles(html: str) -> bool:
    return "<style" in html.lower()


def inline_styles(html: str) -> str:
    """Write the rules of `<style>` onto the elements; what cannot be written there (media queries) stays."""
    return _apply(html) if has_styles(html) else html


def _apply(html: str) -> str:
    return _INLINER.inline(html).replace("<style></style>", "")


def inline_at_load(source: str) -> str | None:
    """The source with its styles applied, or None if only the rendered HTML can tell which rules apply.

    Tags become placeholders, the styles are applied, the placeholders become tags again. That is right only
    if no tag decides what a rule matches and the HTML parser left every tag where it was: both are checked.
    """
    tags = TAG.findall(source)
    if _PLACEHOLDER.search(source) or not _logic_is_simple(tags) or not _rules_are_steady(source):
        return None
    marked = _mark(source)
    if _DYNAMIC_TARGET.search(marked):
        return None
    inlined = _apply(marked)
    if "tbody" not in source.lower():
        inlined = inlined.replace("<tbody>", "").replace("</tbody>", "")
    events = _events(marked)
    if _MISPLACED.search(inlined) or events != _events(inlined) or not _blocks_are_balanced(events, tags):
        return None
    return _PLACEHOLDER.sub(lambda found: tags[int(found[1] or found[2])], inlined)


def draws_on_others(source: str) -> bool:
    """True if other files take part, so that styles may come from them or apply to them."""
    return any(_keyword(tag) in {"extends", "include", "import", "from"} for tag in TAG.findall(source))


def _logic_is_simple(tags: Iterable[str]) -> bool:
    known = all(_keyword(tag) in _SIMPLE_STATEMENTS for tag in tags if tag.startswith("{%"))
    return known and not any(re.search(r"\bsafe\b", tag) for tag in tags)


def _rules_are_steady(source: str) -> bool:
    for css in _STYLE.findall(source):
        if TAG.search(css):
            return False
        selectors = re.findall(r"([^{};]+)\{", re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL))
        if any(_FRAGILE_SELECTOR.search(selector) for selector in selectors if "@" not in selector):
            return False
    return True


def _mark(source: str) -> str:
    """Words in place of tags; statements outside attributes become comments, which may stand between rows."""
    numbers = iter(range(len(source)))

    def placeholder(found: re.Match[str]) -> str:
        word, before = f"prx{next(numbers)}x", TAG.sub("", source[: found.start()])
        in_attribute = before.rfind("<") > before.rfind(">")
        return word if in_attribute or found[0].startswith("{{") else f"<!--{word}-->"

    return TAG.sub(placeholder, source)


def _events(marked: str) -> list[str]:
    found = (event.lower() for event in _EVENT.findall(marked))
    return [event for event in found if not _SUPPLIED.match(event)]


def _blocks_are_balanced(events: Iterable[str], tags: list[str]) -> bool:
    """True if no block opens an element it does not close: such an element would be there only sometimes."""
    open_elements: list[str] = []
    at_block_start: list[list[str]] = []
    for event in events:
        if event.startswith("<!--"):
            if not _same_level(_keyword(tags[int(event[7:-4])]), open_elements, at_block_start):
                return False
        elif event.startswith("</"):
            if not open_elements or open_elements.pop() != f"<{event[2:]}":
                return False
        elif event.startswith("<") and event not in _VOID:
            open_elements.append(event)
    return not open_elements


def _same_level(keyword: str, open_elements: list[str], at_block_start: list[list[str]]) -> bool:
    """Note where a block starts; true unless the block goes on or ends at another depth than it started."""
    if keyword in {"if", "for"}:
        at_block_start.append(list(open_elements))
        return True
    if not keyword:
        return True
    if not at_block_start or at_block_start[-1] != open_elements:
        return False
    if keyword.startswith("end"):
        at_block_start.pop()
    return True


def _keyword(tag: str) -> str:
    found = _STATEMENT.match(tag)
    return found[1] if found else ""


# --- MJML ------------------------------------------------------------------------

_LOOSE_IN_TABLE = re.compile(
    r"(?:<mj-table\b[^>]*>|</?tr\b[^>]*>|</t[dh]>|</?tbody\b[^>]*>|<table\b[^>]*>)"
    r"\s*(?:<!--prx\d+x-->\s*)*prx(\d+)x"
)


class MjmlInvalid(Exception):  # noqa: N818 - reads like TemplateInvalid, which it becomes
    """The MJML cannot be compiled, or not without losing a template tag."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.line = line


def compile_mjml(source: str) -> str:
    """HTML of an MJML source with every template tag where its author put it."""
    if _PLACEHOLDER.search(source):
        raise MjmlInvalid("a word like 'prx1x' cannot be used")
    tags, marked = list(TAG.finditer(source)), _mark(source)
    loose = _LOOSE_IN_TABLE.search(marked)
    if loose:
        raise _invalid(tags[int(loose[1])], "cannot stand between the rows or cells of a table:")
    try:
        html = mrml.to_html(marked).content
    except OSError as error:
        raise MjmlInvalid(str(error)) from error
    for number, tag in enumerate(tags):
        if f"prx{number}x" not in html:
            raise _invalid(tag, "leaves no place for")
    if "tbody" not in source:
        html = _supplied_rows_inside(html)
    return _PLACEHOLDER.sub(lambda found: tags[int(found[1] or found[2])][0], html)


def _invalid(tag: re.Match[str], reason: str) -> MjmlInvalid:
    return MjmlInvalid(f"{reason} {tag[0]}", 1 + tag.string.count("\n", 0, tag.start()))


def _supplied_rows_inside(html: str) -> str:
    """Move statements into the `<tbody>` the parser supplied after them, where the end of their block is."""
    return re.sub(r"((?:<!--prx\d+x-->\s*)+)<tbody>", r"<tbody>\1", html)
