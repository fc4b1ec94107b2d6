"""Grammars as masks: which tokens may follow a path, which ones are forced, and what of a draft can stand.

The parser is llguidance's, which follows a text token by token and can take tokens back. It is moved to whatever
path is asked about, so a branch of a draft leaves nothing behind.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from outpace.errors import MissingExtra, UsageError
from outpace.grammar import Grammar, JsonSchema, places
from outpace.processors import Before
from outpace.sampling import Mask
from outpace.text import Text
from outpace.types import EMPTY, Budget, Draft
from outpace.vocabulary import Kind

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

WRITTEN: dict[str, Any] = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "lenient": False,
    "coerce_one_of": False,
}
"""How JSON is written: no endless white space, and every keyword kept or refused."""

LEXER_FUEL = 200_000
"""What building a grammar's lexer may cost; about 4 ms."""

LOCATING = 200
"""Parts of a schema that are tried one by one to name the place of an error."""

REMEMBERED = 32
"""Compiled grammars of a model, and masks of a request."""


class GrammarCompiler:
    """Compiles grammars for one vocabulary; builds what they share when the first is asked for.

    vocab_size: rows of the target's head. eos_ids: tokens that end a text.
    """

    def __init__(self, text: Text, vocab_size: int, eos_ids: Iterable[int]) -> None:
        self._text = text
        self._vocab_size = vocab_size
        self._eos_ids = frozenset(eos_ids)
        self._tokenizer: LLTokenizer | None = None
        self._compiled: OrderedDict[tuple[type, str], CompiledGrammar] = OrderedDict()

    def __call__(self, grammar: Grammar) -> CompiledGrammar:
        """Returns the compiled grammar. Raises MissingExtra, or UsageError for what cannot be kept."""
        key = (type(grammar), grammar.text if isinstance(grammar, JsonSchema) else grammar.pattern)
        found = self._compiled.pop(key, None)
        if found is None:
            found = CompiledGrammar(self._matcher(grammar), self._eos_ids, self._last())
        self._compiled[key] = found  # as the latest; in between a server's other thread may give up any
        if len(self._compiled) > REMEMBERED:
            self._compiled.popitem(last=False)
        return found

    def _last(self) -> int:
        """Returns the token that most likely ends a text: the model's own EOS."""
        own = self._text.eos_id
        return own if own is not None and own in self._eos_ids else min(self._eos_ids)

    def _matcher(self, grammar: Grammar) -> LLMatcher:
        try:
            import llguidance
        except ImportError:
            raise MissingExtra("structured output", "structured") from None
        if not self._eos_ids:
            raise UsageError("a grammar needs a model with a token that ends a text, and this one names none")
        if self._tokenizer is None:
            self._tokenizer = llguidance.LLTokenizer(
                _Tokens(self._text, self._vocab_size, self._eos_ids),  # type: ignore[arg-type]
                n_vocab=self._vocab_size,
                eos_token=sorted(self._eos_ids),
                slices=llguidance.LLTokenizer.json_slices(),
            )
        if not isinstance(grammar, JsonSchema):
            matcher, error = _compile(self._tokenizer, llguidance.LLMatcher.grammar_from_regex(grammar.pattern))
            if error:
                raise UsageError(f"the regex cannot be kept: {error}")
            return matcher
        matcher, error = _compile(self._tokenizer, _json_grammar(grammar.text))
        if error:
            place = _place_of(error, grammar, self._tokenizer)
            raise UsageError(f"the JSON schema cannot be kept, at {place}: {error}")
        return matcher


class CompiledGrammar:
    """A grammar ready for any number of requests. last: the EOS that is drafted where a text can only end."""

    def __init__(self, matcher: LLMatcher, eos_ids: frozenset[int], last: int) -> None:
        self._matcher = matcher
        self._eos_ids = eos_ids
        self._last = last

    def start(self, prompt_length: int, longest: int) -> GrammarConstraint:
        """Returns the constraint of one request. longest: forced tokens that are drafted at once."""
        return GrammarConstraint(self._matcher.deep_copy(), self._eos_ids, self._last, prompt_length, longest)


class GrammarConstraint:
    """One request's grammar: the sampler's `Constraint`, and the round's `Guide`."""

    def __init__(
        self, matcher: LLMatcher, eos_ids: frozenset[int], last: int, prompt_length: int, longest: int
    ) -> None:
        self._matcher = matcher
        self._eos_ids = eos_ids
        self._last = last
        self._prompt_length = prompt_length
        self._longest = longest
        self._consumed: list[int] = []  # what the matcher has seen: a legal beginning, EOS never among it
        self._masks: OrderedDict[tuple[int, ...], Mask] = OrderedDict()

    # as a constraint

    def mask(self, before: Before) -> Mask | None:
        """Returns what may come next; None where the path is illegal or ended. Raises UsageError, see `_check`."""
        output = self._output(before)
        if not self._seek(output):
            return None
        key = tuple(output)
        found = self._masks.get(key)
        if found is None:
            found = self._masks[key] = np.frombuffer(self._matcher.compute_bitmask(), np.uint32)
            self._check()
            if len(self._masks) > REMEMBERED:
                self._masks.popitem(last=False)
        return found

    def allows(self, before: Before, token: int) -> bool:
        """Returns whether the token may come next; True where the path is illegal or ended."""
        allowed = not self._seek(self._output(before)) or self._takes(token)
        self._check()
        return allowed

    def _output(self, before: Before) -> list[int]:
        return [*before.committed[self._prompt_length : before.known], *before.path]

    # as a guide

    def forced(self, committed: Sequence[int], room: int) -> Draft:
        """Returns what the grammar leaves no choice about, as a chain; a lone EOS is no draft worth a row."""
        if not self._seek(committed[self._prompt_length :]):
            return EMPTY
        tokens = self._following(min(room, self._longest))
        return EMPTY if tokens == [self._last] else Draft.chain(tokens)

    def fitted(self, draft: Draft, committed: Sequence[int], budget: Budget) -> Draft:
        """Returns the draft up to the first illegal token of each path, and what a chain forces after it.

        An illegal token with a law stays as a leaf: it was drawn, and a rule that never saw it fail would not make
        up for it.
        """
        output = list(committed[self._prompt_length :])
        kept: list[int] = []
        open_nodes = {-1}  # kept, legal, and not EOS
        for node, (token, parent) in enumerate(zip(draft.tokens, draft.parents, strict=True)):
            if parent not in open_nodes:
                continue
            legal = node >= draft.verified or self._legal(output, draft, parent, token)
            if legal or draft.laws[node] is not None:
                kept.append(node)
            if legal and token not in self._eos_ids:
                open_nodes.add(node)
        found = draft.only(kept)
        room = min(budget.depth, budget.nodes) - len(found)
        if room <= 0 or not found.is_chain or found.probes or (kept and kept[-1] not in open_nodes):
            return found
        if not self._seek(output + list(found.tokens)):
            return found
        more = self._following(room)
        return Draft.chain([*found.tokens, *more], [*found.laws, *(None for _ in more)])

    def _legal(self, output: list[int], draft: Draft, parent: int, token: int) -> bool:
        path = [draft.tokens[node] for node in draft.path_to(parent)]
        return self._seek(output + path) and self._takes(token)

    # the matcher

    def _following(self, room: int) -> list[int]:
        """Returns at most `room` tokens that are forced where the matcher stands, the EOS after them included."""
        tokens = self._matcher.compute_ff_tokens()[:room]
        tokens = tokens[: self._matcher.validate_tokens(tokens)] if tokens else []
        if len(tokens) < room and self._seek(self._consumed + tokens) and self._matcher.is_stopped():
            tokens.append(self._last)
        return [] if self._matcher.is_error() else tokens

    def _seek(self, output: Sequence[int]) -> bool:
        """Moves the matcher to the end of `output`; returns False, on its way, where that is illegal or has ended."""
        consumed = self._consumed
        common = min(len(consumed), len(output))
        if consumed[:common] != output[:common]:
            common = next(i for i in range(common) if consumed[i] != output[i])
        if common < len(consumed):
            self._matcher.rollback(len(consumed) - common)
            del consumed[common:]
        for token in output[common:]:
            if token in self._eos_ids or not self._takes(token):
                return False
            self._matcher.consume_token(token)
            consumed.append(token)
        return True

    def _takes(self, token: int) -> bool:
        if token in self._eos_ids:
            return self._matcher.is_accepting()
        return self._matcher.validate_tokens([token]) == 1

    def _check(self) -> None:
        """Raises UsageError where the grammar takes more work than a step may."""
        if self._matcher.is_error():
            error = _one_line(self._matcher.get_error())
            raise UsageError(f"the grammar failed after {len(self._consumed)} tokens of the text: {error}")


class _Tokens:
    """A vocabulary as llguidance reads it: the bytes of each token; control tokens by name, which no text has."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, text: Text, vocab_size: int, eos_ids: frozenset[int]) -> None:
        vocabulary = text.vocabulary
        self._text = text
        self.eos_token_id = min(eos_ids)
        # An EOS ends the text whatever its kind, so it is never part of one.
        named = {*vocabulary.of_kind(Kind.CONTROL), *vocabulary.of_kind(Kind.UNKNOWN), *eos_ids}
        self.special_token_ids = sorted(id for id in named if id < len(vocabulary))
        self.tokens = [text.piece(id) for id in range(vocab_size)]
        for id in self.special_token_ids:
            self.tokens[id] = vocabulary.tokens[id].encode(errors="replace")

    def __call__(self, text: bytes | str) -> list[int]:
        """Returns the ids of a text as the model would write it, without BOS."""
        whole = text.decode(errors="replace") if isinstance(text, bytes) else text
        return self._text.encode(whole, special=False)[len(self._text.prefix) :]


def _json_grammar(schema: str) -> str:
    from llguidance import LLMatcher

    return LLMatcher.grammar_from_json_schema(schema, overrides=WRITTEN)  # type: ignore[arg-type]


def _compile(tokenizer: LLTokenizer, grammar: str) -> tuple[LLMatcher, str]:
    """Returns the matcher at the start of a text, and what is wrong with it, or ""."""
    from llguidance import LLMatcher, LLParserLimits

    limits = LLParserLimits(initial_lexer_fuel=LEXER_FUEL, verbose_errors=False)
    matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=limits)
    if not matcher.is_error():
        matcher.compute_bitmask()  # a grammar without any text shows here
    error = _one_line(matcher.get_error()) if matcher.is_error() else ""
    if error.startswith("NoExtension"):
        error = "no text fits it"
    if not error and matcher.get_grammar_warnings():
        error = _one_line(matcher.get_grammar_warnings()[0])
    return matcher, error


def _place_of(error: str, grammar: JsonSchema, tokenizer: LLTokenizer) -> str:
    """Returns the JSON pointer of the innermost part of a schema that by itself has the same error."""
    shared = {key: grammar.parsed[key] for key in ("$defs", "definitions") if key in grammar.parsed}
    found = "#"
    tried = 0
    for place, part, _ in places(grammar.parsed):
        if not place.startswith(found + "/") or not isinstance(part, dict) or tried >= LOCATING:
            continue
        tried += 1
        alone = JsonSchema(shared | part if place.split("/")[1] not in shared else part)
        if _compile(tokenizer, _json_grammar(alone.text))[1] == error:
            found = place
    return found


def _one_line(text: str) -> str:
    return " ".join(text.replace("<non-verbose/>", "").split())[:300]
