"""Changes to HTML sources that contain template tags: inline styles and compile MJML, with every tag kept in place.

Rules in `<style>` are copied to the elements they match; media queries and similar rules stay. That happens once, at
load, if template logic cannot change which rule applies (`inline_at_load`), otherwise after each rendering
(`inline_styles`). Nothing is fetched: linked stylesheets are ignored.

HTML parsers move text between table rows out of the table, and break up tags inside attributes. So tags are replaced
by placeholders first (statements by comments, which are valid anywhere) and restored afterwards.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import mrml
from css_inline import CSSInliner
from css_inline import InlineError as StylesInvalid

from postroom.runtime.template_tags import find_tags, tag_spans

__all__ = [
    "MjmlInvalid",
    "StylesInvalid",
    "compile_mjml",
    "draws_on_others",
    "has_styles",
    "inline_at_load",
    "inline_styles",
]

_INLINER = CSSInliner(load_remote_stylesheets=False, keep_style_tags=True, remove_inlined_selectors=True)
_STYLE = re.compile(r"<style\b", re.IGNORECASE)
_STYLE_END = re.compile(r"</style\s*>", re.IGNORECASE)
_RULE_END = re.compile(r"[};]")
_PLACEHOLDER = re.compile(r"<!--prx(\d+)x-->|prx(\d+)x")
_STATEMENT = re.compile(r"\{%[-+]?\s*(\w+)")
_SIMPLE_STATEMENTS = frozenset({"if", "elif", "else", "endif", "for", "endfor"})
# Matches of these depend on neighbours or attributes, which template logic can change.
_FRAGILE_SELECTOR = re.compile(r"[\[+~]|:(?!hover|active|focus|visited|link)")
_DYNAMIC_TARGET = re.compile(r"""\b(?:class|id|style)\s*=\s*(?:"[^"]*|'[^']*|)prx\d+x""", re.IGNORECASE)
_MISPLACED = re.compile(r"""</?prx|prx\d+x\w*=""|&lt;!--prx""")
_EVENT = re.compile(r"<!--prx\d+x-->|prx\d+x|</?[a-z][a-z0-9:-]*", re.IGNORECASE)
_ELEMENT = re.compile(r"</?[a-z][a-z0-9:-]*", re.IGNORECASE)
_SUPPLIED = re.compile(r"</?(?:html|head|body|style)$", re.IGNORECASE)
# The inliner and the MJML compiler recurse for each level: 20,000 levels crashed the process by a stack overflow.
_DEEPEST = 1000
_TOO_DEEP = f"elements are nested more than {_DEEPEST} deep"
_VOID = frozenset({"<area", "<br", "<col", "<hr", "<img", "<input", "<link", "<meta", "<source", "<wbr"})


def has_styles(html: str) -> bool:
    return "<style" in html.lower()


def inline_styles(html: str) -> str:
    """Copy the rules of `<style>` to the elements; rules that cannot be inlined (media queries) stay."""
    return _apply(html) if has_styles(html) else html


def _apply(html: str) -> str:
    if _depth(html) > _DEEPEST:
        raise StylesInvalid(_TOO_DEEP)
    return _INLINER.inline(html).replace("<style></style>", "")


def _depth(html: str) -> int:
    """A lower bound of the nesting depth; elements without a closing tag count as open."""
    if html.count("<") <= _DEEPEST:
        return 0
    depth = deepest = 0
    for found in _ELEMENT.finditer(html):
        if found[0].startswith("</"):
            depth -= 1
        elif found[0].lower() not in _VOID:
            depth += 1
            deepest = max(deepest, depth)
    return deepest


def inline_at_load(source: str) -> str | None:
    """The source with its styles inlined, or None if only the rendered HTML decides which rules apply.

    Tags become placeholders, the styles are inlined, the placeholders become tags again. That is correct only if no
    tag decides what a rule matches and the HTML parser left every tag in place: both are checked.
    """
    tags = find_tags(source)
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
    """True if the template includes other files, whose styles may apply here or the other way round."""
    return any(_keyword(tag) in {"extends", "include", "import", "from"} for tag in find_tags(source))


def _logic_is_simple(tags: Iterable[str]) -> bool:
    known = all(_keyword(tag) in _SIMPLE_STATEMENTS for tag in tags if tag.startswith("{%"))
    return known and not any(re.search(r"\bsafe\b", tag) for tag in tags)


def _rules_are_steady(source: str) -> bool:
    """True if no template tag and no neighbour decides which elements a rule of `<style>` matches."""
    for css in _style_sheets(source):
        if find_tags(css):
            return False
        blocks = _without_comments(css).split("{")[:-1]
        selectors = (_RULE_END.split(block)[-1] for block in blocks)
        if any(_FRAGILE_SELECTOR.search(selector) for selector in selectors if "@" not in selector):
            return False
    return True


def _style_sheets(html: str) -> Iterator[str]:
    """The text of each `<style>` element; an element that does not end is left out."""
    at = 0
    while (opening := _STYLE.search(html, at)) is not None:
        start = html.find(">", opening.end()) + 1
        end = _STYLE_END.search(html, start) if start else None
        if end is None:
            return
        yield html[start : end.start()]
        at = end.end()


def _without_comments(css: str) -> str:
    first, *rest = css.split("/*")
    return first + "".join(part.partition("*/")[2] for part in rest)


def _mark(source: str) -> str:
    """Replace tags by placeholders; statements outside attributes become comments, which are valid between rows."""
    parts: list[str] = []
    at, in_attribute = 0, False
    for number, (start, end) in enumerate(tag_spans(source)):
        text = source[at:start]
        if "<" in text or ">" in text:
            in_attribute = text.rfind("<") > text.rfind(">")
        word = f"prx{number}x"
        parts += [text, word if in_attribute or source.startswith("{{", start) else f"<!--{word}-->"]
        at = end
    return "".join([*parts, source[at:]])


def _events(marked: str) -> list[str]:
    found = (event.lower() for event in _EVENT.findall(marked))
    return [event for event in found if not _SUPPLIED.match(event)]


def _blocks_are_balanced(events: Iterable[str], tags: list[str]) -> bool:
    """True if no block opens an element without closing it: such an element would exist only sometimes."""
    open_elements: list[str] = []
    blocks: list[_Block] = []
    for event in events:
        if event.startswith("<!--"):
            if not _same_level(_keyword(tags[int(event[7:-4])]), len(open_elements), blocks):
                return False
        elif event.startswith("</"):
            if not open_elements or open_elements.pop() != f"<{event[2:]}":
                return False
            if blocks:
                blocks[-1].lowest = min(blocks[-1].lowest, len(open_elements))
        elif event.startswith("<") and event not in _VOID:
            open_elements.append(event)
    return not open_elements


@dataclass(slots=True)
class _Block:
    """An open block: the number of open elements at its start, and the minimum since."""

    start: int
    lowest: int


def _same_level(keyword: str, depth: int, blocks: list[_Block]) -> bool:
    """Record the start of a block; false if the block continues or ends at another nesting level."""
    if keyword in {"if", "for"}:
        blocks.append(_Block(depth, depth))
        return True
    if not keyword:
        return True
    if not blocks or blocks[-1].start != depth or blocks[-1].lowest < depth:
        return False
    if keyword.startswith("end"):
        ended = blocks.pop()
        if blocks:
            blocks[-1].lowest = min(blocks[-1].lowest, ended.lowest)
    return True


def _keyword(tag: str) -> str:
    found = _STATEMENT.match(tag)
    return found[1] if found else ""


# --- MJML ------------------------------------------------------------------------

_LOOSE_IN_TABLE = re.compile(
    r"(?:<mj-table\b[^<>]*>|</?tr\b[^<>]*>|</t[dh]>|</?tbody\b[^<>]*>|<table\b[^<>]*>)"
    r"\s*(?:<!--prx\d+x-->\s*)*prx(\d+)x"
)


class MjmlInvalid(Exception):  # noqa: N818 - reads like TemplateInvalid, which it becomes
    """The MJML cannot be compiled, or not without losing a template tag."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.line = line


def compile_mjml(source: str) -> str:
    """The HTML of an MJML source, with every template tag in its place."""
    if _PLACEHOLDER.search(source):
        raise MjmlInvalid("a word like 'prx1x' cannot be used")
    if _depth(source) > _DEEPEST:
        raise MjmlInvalid(_TOO_DEEP)
    spans, marked = list(tag_spans(source)), _mark(source)
    loose = _LOOSE_IN_TABLE.search(marked)
    if loose:
        raise _invalid(source, spans[int(loose[1])], "cannot stand between the rows or cells of a table:")
    try:
        html = mrml.to_html(marked).content
    except OSError as error:
        raise MjmlInvalid(str(error)) from error
    kept = {int(found[1] or found[2]) for found in _PLACEHOLDER.finditer(html)}
    for number, span in enumerate(spans):
        if number not in kept:
            raise _invalid(source, span, "leaves no place for")
    if "tbody" not in source:
        html = _supplied_rows_inside(html)
    return _PLACEHOLDER.sub(lambda found: source[slice(*spans[int(found[1] or found[2])])], html)


def _invalid(source: str, span: tuple[int, int], reason: str) -> MjmlInvalid:
    return MjmlInvalid(f"{reason} {source[slice(*span)]}", 1 + source.count("\n", 0, span[0]))


def _supplied_rows_inside(html: str) -> str:
    """Move statements into the `<tbody>` that the parser added after them, where their block ends."""
    return re.sub(r"((?:<!--prx\d+x-->\s*)+)<tbody>", r"<tbody>\1", html)
