"""Template tags: found as the engine finds them, in one pass."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from minijinja import Environment, TemplateError

from postroom.runtime.template_tags import find_tags, replace_tags


@pytest.mark.parametrize(
    "source, tags",
    [
        ("no tag { at } all", []),
        ("a {{ b }} c {% if d %} e {# f #}", ["{{ b }}", "{% if d %}", "{# f #}"]),
        ('{{ "}}" ~ \'"}}\' }}', ['{{ "}}" ~ \'"}}\' }}']),
        (r'{{ "\"}}" }}', [r'{{ "\"}}" }}']),
        ("{# {{ a }} #}{{ b }}", ["{# {{ a }} #}", "{{ b }}"]),
        ("{% raw %}{{ a {% endraw %}{{ b }}", ["{% raw %}", "{% endraw %}", "{{ b }}"]),
        ("{{ a }} {{ b", ["{{ a }}"]),
        ('{{ a }} {{ "b }} {{ c }}', ["{{ a }}"]),
        ("{{ a }} {# b {{ c }}", ["{{ a }}"]),
    ],
)
def test_tags_are_found_as_the_engine_reads_them(source: str, tags: list[str]) -> None:
    """Strings may contain the end of a tag; after an unclosed tag, the rest is text."""
    assert find_tags(source) == tags


@given(st.lists(st.sampled_from(["{{", "}}", "{%", "%}", "{#", "#}", '"', "'", "\\", " a ", "if", "x"]), max_size=20))
def test_every_tag_of_a_valid_source_is_found(pieces: list[str]) -> None:
    """A source that the engine parses has no tag left once the found ones are removed."""
    source = "".join(pieces)
    try:
        Environment().undeclared_variables_in_str(source)
    except TemplateError:
        return
    rest = replace_tags(source, lambda _tag: "\n")
    assert find_tags(rest) == []
    assert replace_tags(source, lambda tag: tag) == source


HOSTILE = {
    "comments that do not end": "'{#' * 100_000",
    "expressions that do not end": "'{{' * 100_000",
    "expressions in strings": "'{{ \"}}\" ' * 30_000",
    "style elements that do not end": "'<style>' * 40_000",
    "style tags that do not end": "'<style ' * 40_000",
    "comments in CSS that do not end": "'<style>' + '/*' * 100_000 + '</style>'",
    "selectors without a block": "'<style>' + 'a ' * 100_000 + '</style>'",
    "elements that do not end": "'<b>' * 60_000",
    "statements": "'{% if a %}<b>' * 20_000",
    "links": "'<a href={{ a }}>' * 20_000",
    "attributes": "'<a ' + 'href=\"{{ a }}\" ' * 20_000 + '>'",
    "quotation marks": "'<a x=\"' * 40_000",
    "tags that do not end": "'<a b' * 60_000",
}


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE)
def test_hostile_template_costs_little_cpu(source: str) -> None:
    """Checking 200 kB takes well under a second of CPU; quadratic parsers took from 20 s to minutes."""
    script = (
        "import resource; resource.setrlimit(resource.RLIMIT_CPU, (8, 8))\n"
        "from postroom.campaigns.template import text_template\n"
        "from postroom.mail.markup import StylesInvalid, draws_on_others, inline_at_load\n"
        "from postroom.tracking.links import plan\n"
        f"source = {source}\n"
        "plan(source); draws_on_others(source); text_template(source)\n"
        "try: inline_at_load(source)\n"
        "except StylesInvalid as refused: assert 'nested' in str(refused)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]
