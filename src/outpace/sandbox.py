"""Jinja for templates from strangers: no files, a few filters and methods, and a budget for time and memory.

A template may take so many steps (rounds of a loop, calls, operators), build so many characters, and run for so many
seconds. Every body of a loop or macro pays before it runs. What reads or builds values of any size is sized first:
the syntax tree is rewritten so that literals, slices and comparisons go through `hold` and `weigh`.

Lists may hold one list many times over, so that a few operators make a value whose text is of astronomic size. The
budget therefore knows the full size of every container, measured once, from the parts it was made of. What a filter
makes item by item is paid for item by item, and is a list before a filter reads it that builds from all of them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import MAX_RANGE, ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

MAX_STEPS = 1_000_000
MAX_CHARACTERS = 16 << 20
MAX_SECONDS = 5.0
_MAX_NUMBER = 1 << 256
_ITEM = 4
"""Characters that an item of a container counts for: it takes some 8 to 60 bytes, and a character 1 to 4."""

_FILTERS = {
    "abs", "attr", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "groupby",
    "indent", "int", "items", "join", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr",
    "replace", "reverse", "round", "safe", "select", "selectattr", "sort", "string", "title", "trim", "unique",
    "upper",
}  # fmt: skip
_FULL_READERS = _FILTERS - {
    "attr", "count", "d", "default", "first", "items", "last", "length", "list", "map", "reject", "rejectattr",
    "reverse", "select", "selectattr",
}  # fmt: skip
_GATHERING = {"groupby", "join", "max", "min", "sort", "unique"}
_COMPARING_TESTS = {
    "==", "eq", "equalto", "!=", "ne", ">", "gt", "greaterthan", ">=", "ge", "<", "lt", "lessthan", "<=", "le", "in",
}  # fmt: skip
_METHODS: dict[type, set[str]] = {
    str: {
        "capitalize", "count", "endswith", "find", "index", "isalnum", "isalpha", "isdigit", "islower", "isspace",
        "isupper", "join", "lower", "lstrip", "removeprefix", "removesuffix", "replace", "rfind", "rsplit", "rstrip",
        "split", "splitlines", "startswith", "strip", "title", "upper",
    },
    dict: {"get", "items", "keys", "values"},
    list: {"count", "index"},
    tuple: {"count", "index"},
}  # fmt: skip
_VIEWS: tuple[Any, ...] = (type({}.keys()), type({}.values()), type({}.items()))


class TemplateRefused(Exception):
    """The template called raise_exception: the conversation is not one that it accepts."""


class Budget:
    """What one rendering may still spend, and the full sizes of the containers it has seen."""

    def __init__(self) -> None:
        self._steps = MAX_STEPS
        self._characters = MAX_CHARACTERS
        self._deadline = time.monotonic() + MAX_SECONDS
        self._sizes: dict[int, tuple[Any, int]] = {}  # by id; the container is kept, so that its id stays its own

    def pay(self, characters: int = 0, steps: int = 1) -> None:
        """Takes so many steps and characters. Raises SecurityError when nothing is left."""
        self._steps -= steps
        self._characters -= characters
        if self._steps < 0:
            raise SecurityError(f"it takes over {MAX_STEPS} steps")
        if self._characters < 0:
            raise SecurityError(f"it builds over {MAX_CHARACTERS} characters")
        if time.monotonic() > self._deadline:
            raise SecurityError(f"it takes over {MAX_SECONDS:g} seconds")

    def full_size(self, value: Any) -> int:
        """Returns about the characters of a value's text. Raises SecurityError when it is beyond all bounds."""
        if isinstance(value, str):
            return len(value)
        if isinstance(value, range):
            return 1 + (_ITEM + 1) * len(value)
        if not isinstance(value, (list, tuple, dict)):
            return 1
        known = self._sizes.get(id(value))
        if known is not None:
            return known[1]
        parts = (part for pair in value.items() for part in pair) if isinstance(value, dict) else value
        size = 1 + sum(_ITEM + self.full_size(part) for part in parts)
        if size > MAX_CHARACTERS:
            raise SecurityError(f"it builds over {MAX_CHARACTERS} characters")
        self._sizes[id(value)] = (value, size)
        return size


class _Generation(Extension):
    """The block {% generation %}, which marks for training what the model writes, and changes nothing."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Namespace(Namespace):
    """Jinja's namespace, which does not print what it holds."""

    def __repr__(self) -> str:
        return "<namespace>"


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's immutable sandbox with the globals and filters that chat templates use; `budget` is one rendering's."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[loopcontrols, _Generation],
            optimized=False,
            finalize=self.weigh,
        )
        self.budget = Budget()
        self.globals = {
            "range": self._range, "namespace": _Namespace, "dict": dict,
            "raise_exception": _refuse, "strftime_now": _now,
        }  # fmt: skip
        filters: dict[str, Any] = self.filters
        self.filters = {name: self._paid(name, filters[name], name in _FULL_READERS) for name in _FILTERS}
        self.filters["tojson"] = self._paid("tojson", self._to_json, True)
        tests: dict[str, Any] = self.tests
        self.tests = {
            name: self._paid(name, test, True) if name in _COMPARING_TESTS else test
            for name, test in tests.items()
            if name not in ("callable", "filter", "test")
        }

    # what compiled templates call

    def enter(self, written: int) -> None:
        """Pays for one run of a body that writes so many characters of its own."""
        self.budget.pay(written)

    def hold(self, value: Any) -> Any:
        """Returns a value that was just built, measured and paid for."""
        keys = sum(map(self.budget.full_size, value)) if isinstance(value, dict) else 0
        self.budget.full_size(value)
        self.budget.pay(_size(value) + keys)
        return value

    def weigh(self, value: Any) -> Any:
        """Returns a value that is about to be read in full, paid for."""
        self.budget.pay(self.budget.full_size(value))
        return value

    def concat_texts(self, *parts: Any) -> str:
        """Returns the parts joined: the operator ~."""
        self.budget.pay(sum(map(self.budget.full_size, parts)))
        return "".join(map(str, parts))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        self.budget.pay(_operator_size(operator, left, right))
        return self.hold(super().call_binop(context, operator, left, right))

    def call(self, context: Any, callee: Any, /, *args: Any, **kwargs: Any) -> Any:
        if getattr(callee, "__self__", None) is self:
            kwargs.pop("_loop_vars", None)
            kwargs.pop("_block_vars", None)
            return callee(*args, **kwargs)
        owner = getattr(callee, "__self__", None)
        if isinstance(owner, type):
            raise SecurityError(f"the method {owner.__name__}.{callee.__name__} is not available")
        for kind, allowed in _METHODS.items():
            if isinstance(owner, kind):
                name = callee.__name__
                if name not in allowed:
                    raise SecurityError(f"the method {kind.__name__}.{name} is not available")
                args = tuple(map(self._gathered, args))
                whole = sum(map(self.budget.full_size, (owner, *args) if kind is not dict else args))
                self.budget.pay(whole + _blow_up(name, owner, args))
        self.budget.pay(_ITEM * (len(args) + len(kwargs)))
        result = super().call(context, callee, *args, **kwargs)
        if isinstance(result, range):
            return result  # paid for where it was made, and again by whoever reads it
        # A view would hide the size of its dictionary.
        return self.hold(list(result) if isinstance(result, _VIEWS) else result)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        if super().wrap_str_format(value) is not None:
            raise SecurityError("the method str.format is not available")
        return None

    def _range(self, *args: int) -> range:
        numbers = range(*args)
        if len(numbers) > MAX_RANGE:
            raise SecurityError(f"a range has over {MAX_RANGE} numbers")
        self.budget.pay(len(numbers))
        return numbers

    def _counted(self, items: Iterable[Any]) -> Iterator[Any]:
        """Yields the items, each paid for."""
        for item in items:
            self.budget.pay(_ITEM, steps=0)
            yield item

    def _gathered(self, value: Any) -> Any:
        """Returns what an iterator still yields as a list, whose size is known; anything else as it is."""
        return list(self._counted(value)) if isinstance(value, Iterator) else value

    def _paid(self, name: str, function: Callable[..., Any], in_full: bool) -> Callable[..., Any]:
        """Returns a filter or test that pays for what it reads, and for what it builds."""
        passes = getattr(function, "jinja_pass_arg", None)
        before = 0 if passes is None else 1

        def paid(*args: Any, **kwargs: Any) -> Any:
            if name in _GATHERING:
                args = (*args[:before], *map(self._gathered, args[before:]))
            values = (*args[before:], *kwargs.values())
            size = self.budget.full_size if in_full else _size
            self.budget.pay(sum(map(size, values)) + _blow_up(name, values[0] if values else "", values[1:]))
            result = function(*args, **kwargs)
            return self._counted(result) if isinstance(result, Iterator) else self.hold(result)

        if passes is not None:
            paid.jinja_pass_arg = passes  # type: ignore[attr-defined]
        return paid

    def _to_json(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """Returns JSON that is not escaped for HTML, unlike Jinja's own filter."""
        if indent is not None and (not isinstance(indent, int) or indent > 16):
            raise SecurityError(f"tojson indents by at most 16, got {indent!r:.20}")
        encoder = json.JSONEncoder(
            ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )
        written = []
        for piece in encoder.iterencode(value):
            self.budget.pay(len(piece), steps=0)
            written.append(piece)
        return "".join(written)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return _Rewriter().visit(super()._parse(source, name, filename))  # type: ignore[no-any-return]


class _Rewriter(NodeTransformer):
    """Makes a template pay: at the head of every body, and around what builds or compares."""

    def _body(self, node: Any) -> Any:
        written = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_call("enter", nodes.Const(written)), lineno=node.lineno))
        return node

    visit_For = visit_Macro = visit_CallBlock = visit_Block = _body  # noqa: N815

    def _built(self, node: Any) -> Any:
        self.generic_visit(node)
        return _call("hold", node) if getattr(node, "ctx", "load") == "load" else node

    visit_List = visit_Tuple = visit_Dict = _built  # noqa: N815

    def visit_Name(self, node: nodes.Name) -> nodes.Node:  # noqa: N802
        """What a macro was called with is a container that no literal built."""
        given = node.ctx == "load" and node.name in ("varargs", "kwargs")
        return _call("hold", node) if given else node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            return _call("hold", node)
        if not isinstance(node.arg, nodes.Const):
            node.arg = _call("weigh", node.arg)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.expr = _call("weigh", node.expr)
        for operand in node.ops:
            operand.expr = _call("weigh", operand.expr)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call("concat_texts", *node.nodes)


def _call(method: str, *args: nodes.Expr) -> nodes.Call:
    """Returns a call of one of the sandbox's own methods."""
    line = args[0].lineno if args else 1
    return nodes.Call(nodes.EnvironmentAttribute(method), list(args), [], None, None, lineno=line)


def _size(value: Any) -> int:
    if isinstance(value, (list, tuple, dict, range)):
        return _ITEM * len(value)
    return len(value) if isinstance(value, str) else 1


def _operator_size(operator: str, left: Any, right: Any) -> int:
    """Returns an upper bound of the characters or items that an operator builds. Raises SecurityError."""
    numbers = [value for value in (left, right) if isinstance(value, (int, float))]
    if len(numbers) == 2:
        if operator == "**" and (abs(numbers[1]) > 64 or abs(numbers[0]) > 1 << 16):
            raise SecurityError(f"the power {left!r:.20} ** {right!r:.20} is out of bounds")
        if any(isinstance(value, int) and abs(value) > _MAX_NUMBER for value in numbers):
            raise SecurityError("it computes with numbers of over 256 bits")
        return 1
    if operator == "*":
        times = max(0, int(numbers[0])) if numbers else 1
        return times * max(_size(left), _size(right))
    if operator == "%":
        raise SecurityError("the operator % is available for numbers only")
    return _size(left) + _size(right)


def _blow_up(name: str, subject: Any, args: Sequence[Any]) -> int:
    """Returns an upper bound of what a method or filter builds beyond what it reads."""
    texts = [len(value) for value in args if isinstance(value, str)]
    if name == "replace":
        return (_size(subject) + 1) * max(texts[1:], default=0)
    if name == "join":
        return _size(subject) * max(texts, default=0) + (_size(args[0]) * _size(subject) if args else 0)
    if name == "indent":
        widths = [value for value in args if isinstance(value, int) and not isinstance(value, bool)]
        return (_size(subject) + 1) * max([4, *widths, *texts])
    return 0


def _refuse(message: object = "") -> str:
    raise TemplateRefused(str(message)[:500])


def _now(format: str) -> str:
    if len(format) > 100:
        raise SecurityError("a date format has over 100 characters")
    return datetime.now().strftime(format)
