"""Chat templates are programs from strangers: what ordinary ones may do, and how hostile ones end."""

from __future__ import annotations

import resource
import time

import pytest

from outpace.chat_template import ChatTemplate
from outpace.errors import BadModelFile, UsageError

MESSAGES = [{"role": "system", "content": " be brief "}, {"role": "user", "content": "hi"}]


def render(source: str, **names: str) -> str:
    return ChatTemplate(source, names).render(MESSAGES, add_generation_prompt=True)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{% for m in messages %}{{ m.role }}:{{ m['content'] | trim }};{% endfor %}", "system:be brief;user:hi;"),
        ("{% if messages[0].role == 'system' %}{{ messages[0].content.strip() }}{% endif %}", "be brief"),
        ("{{ bos_token }}{{ eos_token }}", "<s></s>"),
        ("{% if add_generation_prompt %}go{% endif %}", "go"),
        ("{% if tools %}a{% else %}b{% endif %}{% if absent is not defined %}c{% endif %}", "bc"),
        ("{{ {'a': 'é<'} | tojson }}", '{"a": "é<"}'),
        ("{{ [1, 2] | tojson(indent=1) }}", "[\n 1,\n 2\n]"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "2"),
        ("{% for m in messages[1:] %}{{ loop.index0 ~ m.content }}{% endfor %}", "0hi"),
        (
            "{{ messages | map(attribute='role') | join(', ') }}{{ range(3) | sort(reverse=true) }}",
            "system, user[2, 1, 0]",
        ),
        ("{% if messages | selectattr('role', 'equalto', 'tool') %}a{% endif %}", "a"),  # an iterator is true
        ("{{ (messages | selectattr('role', 'equalto', 'user') | first).content }}", "hi"),
        (
            "{{ (messages | reverse | map(attribute='role') | unique | list)[1] }}{{ range(9)[3:5] | list }}",
            "system[3, 4]",
        ),
        ("{% macro f(x, y='b') %}{{ x }}{{ y }}{% endmacro %}{{ f('a') }}{{ f('c', y='d') }}", "abcd"),
        ("{% for m in messages %}{% if m.role == 'user' %}{% break %}{% endif %}{{ m.role }}{% endfor %}", "system"),
        ("{% for m in messages %}\n  {%- if true %}\n{{ m.role }}\n  {%- endif %}\n{% endfor %}", "systemuser"),
        ("  {% if true %}\nx\n  {% endif %}\n", "x\n"),
        ("{{ messages | map(attribute='role') | join(', ') | upper }}", "SYSTEM, USER"),
        ("{{ (messages | selectattr('role', 'equalto', 'user') | list | first).content }}", "hi"),
        (
            "{{ 'a,b'.split(',')[-1] }}{{ 'abc'[::-1] }}{{ 7 // 2 }}{{ 7 % 4 }}{{ 2 ** 5 }}{{ 'ab' * 2 }}",
            "bcba3332abab",
        ),
        ("{% for k, v in {'x': 1}.items() %}{{ k }}{{ v }}{% endfor %}", "x1"),
        ("{{ 'x' in 'xyz' and 'user' in ['user'] and not 'z' in {'a': 1} }}", "True"),
        ("{% generation %}kept{% endgeneration %}", "kept"),
        ("{{ strftime_now('%Y') | length }}", "4"),
        ("{% set text %}a{{ 1 }}{% endset %}{{ text ~ text }}", "a1a1"),
        ("{% call(x) outer('o') %}{{ x }}{% endcall %}{% macro outer(y) %}{% endmacro %}", ""),
    ],
)
def test_ordinary_templates_work(source: str, expected: str) -> None:
    if source.startswith("{% call"):
        source = "{% macro outer(y) %}{{ caller(y) }}{% endmacro %}{% call(x) outer('o') %}{{ x }}{% endcall %}"
        expected = "o"
    assert render(source, bos_token="<s>", eos_token="</s>") == expected


def test_refusal_of_the_template_is_the_users_to_fix() -> None:
    with pytest.raises(UsageError, match=r"refuses the messages: roles must alternate$"):
        render("{{ raise_exception('roles must\n alternate') }}")


DOUBLING = (
    "{{% set ns = namespace(x={start}) %}}{{% for i in range(60) %}}{{% set ns.x = {step} %}}{{% endfor %}}{use}"
)
HOSTILE = {
    "endless loops": "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
    "huge range": "{{ range(10 ** 12) | list }}",
    "huge string": "{{ 'a' * 10000000000 }}",
    "huge list": "{% set x = [0] * 1000000000 %}",
    "huge power": "{{ 9 ** 9 ** 9 }}",
    "growing number": DOUBLING.format(start=3, step="ns.x * ns.x", use=""),
    "doubling by ~": DOUBLING.format(start="'aaaa'", step="ns.x ~ ns.x", use=""),
    "doubling by +": DOUBLING.format(start="'aaaa'", step="ns.x + ns.x", use=""),
    "doubling by replace": DOUBLING.format(start="'aaaa'", step="ns.x.replace('a', 'aa')", use=""),
    "doubling by join": DOUBLING.format(start="'aaaa'", step="ns.x | join(ns.x)", use=""),
    "doubling by set": "{% set a = 'aaaaaaaa' %}" + "{% set a %}{{ a }}{{ a }}{% endset %}" * 60,
    "shared list printed": DOUBLING.format(start="[1]", step="[ns.x, ns.x]", use="{{ ns.x }}"),
    "shared dict as JSON": DOUBLING.format(start="[1]", step="{'a': ns.x, 'b': ns.x}", use="{{ ns.x | tojson }}"),
    "shared tuple hashed": DOUBLING.format(start="(1,)", step="(ns.x, ns.x)", use="{% set d = {ns.x: 1} %}"),
    "shared lists compared": DOUBLING.format(start="[1]", step="[ns.x, ns.x]", use="{{ ns.x == ns.x[:] }}"),
    "shared by dict()": DOUBLING.format(start="[1]", step="dict(a=ns.x, b=ns.x)", use="{{ ns.x }}"),
    "shared by views": DOUBLING.format(start="{1: 2}", step="{1: [ns.x.items(), ns.x.items()]}", use="{{ ns.x }}"),
    "shared by varargs": "{% macro f() %}{% set ns.x = varargs %}{% endmacro %}"
    + DOUBLING.format(start="[1]", step="(ns.x, ns.x)", use="{{ f(ns.x, ns.x) }}{{ ns.x }}"),
    "recursive macro": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "branching macro": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "recursive loop": "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
    "recursive block": "{% block b %}{{ self.b() }}{% endblock %}",
    "wide format": "{{ '%9999999999d' % 1 }}",
    "wide str.format": "{{ '{:9999999999}'.format(1) }}",
    "wide ljust": "{{ 'a'.ljust(9999999999) }}",
    "wide indent": "{{ 'a' | indent(width=9999999999) }}",
    "long slices": "{% set x = 'a' * 9000000 %}{% for i in range(99999) %}{% if x[1:] == x %}{% endif %}{% endfor %}",
    "listed range": "{{ range(8000000) | list | length }}",
    "sorted range": "{{ range(8000000) | sort | length }}",
    "grouped range": "{{ range(4000000) | groupby('real') | length }}",
    "spread range": "{% macro f() %}{{ varargs | length }}{% endmacro %}{{ f(*range(8000000)) }}",
    "joined range": "{{ range(99999) | join('x' * 16000) }}",
    "joined loop": "{% for i in range(99999) %}{{ loop | join('x' * 16000) }}{% endfor %}",
    "joined by what a filter yields": "{{ range(99999) | map('string') | join('x' * 100000) }}",
    "joined by the method": "{{ ('x' * 100000).join(range(99999) | map('string')) }}",
    "defaults joined": "{{ range(9999) | map(attribute='missing', default='y' * 1000000) | join }}",
    "JSON with long separators": "{{ ([1] * 1000000) | tojson(separators=('x' * 1000, ':')) }}",
    "JSON that indents deep": "{% set ns = namespace(x=[1] * 10000) %}{% for i in range(200) %}"
    "{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson(indent=16) | length }}",
    "method of a type": "{{ dict.fromkeys(range(99999)) }}",
    "file": "{% include '/etc/passwd' %}",
    "import": "{% import 'os' as os %}",
    "class": "{{ ''.__class__.__mro__[1] }}",
    "attr filter": "{{ (''|attr('__class__')).__mro__ }}",
    "mutation": "{% set _ = messages.append(1) %}",
    "globals": "{{ raise_exception.__globals__['__builtins__'] }}",
    "environment": "{{ self._TemplateReference__context.environment.pay }}{{ lipsum(999999) }}",
    "deep nesting": "{% if 1 %}" * 3000,
    "deep expression": "{{ " + "[" * 9000 + "]" * 9000 + " }}",
    "long source": "a" * 100_000,
    "syntax": "{% for %}",
    "division": "{{ 1 / 0 }}",
}


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_templates_end_soon_in_one_line(source: str) -> None:
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.monotonic()
    with pytest.raises(BadModelFile, match=r"chat template (failed|does not compile|has)") as caught:
        render(source)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert time.monotonic() - started < 20  # seconds; each takes under two
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 300_000  # kilobytes


def test_long_conversations_are_within_the_budget() -> None:
    source = (
        "{% for m in messages %}{% if m.role == 'user' and '</think>' in m.content %}"
        "{{ m.content.split('</think>')[-1] }}"
        "{% else %}{{ '<|im_start|>' ~ m.role ~ '\n' ~ m.content | trim ~ '<|im_end|>' }}{% endif %}{% endfor %}"
    )
    messages = [{"role": "user", "content": "word " * 60}] * 3000
    assert len(ChatTemplate(source, {}).render(messages, add_generation_prompt=True)) > 900_000


def test_one_rendering_does_not_spend_the_budget_of_the_next() -> None:
    template = ChatTemplate("{% for i in range(90000) %}{{ 'a' * 40 }}{% endfor %}", {})
    for _ in range(3):
        assert len(template.render(MESSAGES, add_generation_prompt=False)) == 3_600_000
