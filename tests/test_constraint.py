"""Structured output: every text fits its grammar, and is plain constrained decoding's, whatever is drafted."""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import outpace
import outpace.options
from fakes import FakeDrafter, scripted
from outpace import JsonSchema, Regex
from outpace.audit import enumerate as enumerate_rules
from outpace.audit.drafting import chain_from, choosing
from outpace.constraint import GrammarCompiler, GrammarConstraint
from outpace.control import FixedController
from outpace.decode import propose
from outpace.errors import MissingExtra, UsageError
from outpace.generation import Generation
from outpace.native.gguf import open_gguf
from outpace.processors import Before
from outpace.text import Text
from outpace.types import EMPTY, Budget, Draft
from outpace.vocabulary import Kind

pytest.importorskip("llguidance", reason="the extra 'structured' is not installed")
jsonschema = pytest.importorskip("jsonschema")

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "tags": {"type": "array", "items": {"enum": ["a", "bc", "bd"]}, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "person": PERSON,
    "enum": {"enum": ["red", "green", "grey", 12, None, [1, {"x": True}]]},
    "pattern": {"type": "string", "pattern": "^[A-C]{2}-[0-9]{1,3}$"},
    "choice": {"anyOf": [{"type": "boolean"}, {"type": "array", "items": {"type": "null"}, "maxItems": 3}]},
    "optional": {
        "type": "object",
        "properties": {"k": {"const": "v"}, "n": {"type": "number", "minimum": 0, "maximum": 1}},
        "additionalProperties": False,
    },
}
PROMPT = "Say it as JSON."


def constraint(model: outpace.Model, grammar: JsonSchema | Regex, longest: int = 15) -> GrammarConstraint:
    return model._compile_grammar(grammar).start(0, longest)


def allowed(model: outpace.Model, one: GrammarConstraint, output: list[int]) -> list[int]:
    mask = one.mask(Before(output))
    assert mask is not None
    return np.flatnonzero(
        np.unpackbits(mask.view(np.uint8), count=model.target.vocab_size, bitorder="little")
    ).tolist()


def walk(model: outpace.Model, one: GrammarConstraint, seed: int) -> list[int]:
    """Returns a random legal text, without its EOS."""
    rng, output = random.Random(seed), []
    while True:
        token = rng.choice(allowed(model, one, output))
        if token in model.text.eos_ids:
            return output
        output.append(token)


def generated(model: outpace.Model, fake: FakeDrafter | None, length: int, **options: Any) -> outpace.Result:
    plan = model._plan(outpace.options.Options(draft_length=length, **options))
    if fake is not None:
        plan = replace(plan, drafter=fake, controller=FixedController(length))
    ids = model._ids(PROMPT, True, None)
    made = Generation(model.target, model.text, ids, plan, max_tokens=300, stop=(), observer=None, load_seconds=0.0)
    return made.run()


def drafters(model: outpace.Model, truth: list[int]) -> Iterator[FakeDrafter]:
    """Yields drafters that are always legal, always illegal, and mixed, as chains and as trees."""
    size = model.target.vocab_size
    yield scripted(truth, size, "R")
    yield scripted(truth, size, "RRW")
    # A control token is legal nowhere, EOS apart.
    yield FakeDrafter("illegal", size, lambda tokens, budget: Draft.chain([1] * budget.depth))

    def tree(tokens: list[int], budget: Budget) -> Draft:
        rng = random.Random(f"{tokens}")
        right = truth[len(tokens) : len(tokens) + budget.depth]
        wrong = [rng.randrange(size) for _ in right]
        n = len(right)
        nodes = (*right, *wrong)[: budget.nodes]
        return Draft(nodes, tuple(i - 1 if i < n else i - n - 1 for i in range(len(nodes))), (None,) * len(nodes))

    yield FakeDrafter("tree", size, tree)


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_text_fits_and_is_that_of_plain_decoding(native: outpace.Model, name: str, temperature: float) -> None:
    schema = SCHEMAS[name]
    for seed in range(4):
        options = {"grammar": JsonSchema(schema), "temperature": temperature, "seed": seed}
        plain = generated(native, None, 0, drafter="none", **options)
        jsonschema.validate(json.loads(plain.text), schema)
        assert plain.finish == "stop"
        truth = [*native._ids(PROMPT, True, None), *plain.tokens]
        for drafter in drafters(native, truth):
            assert generated(native, drafter, 4, **options).tokens == plain.tokens, drafter.name
        for more in ({"drafter": "ngram"}, {"drafter": "model"}):
            assert generated(native, None, 3, **options, **more).tokens == plain.tokens


@pytest.mark.parametrize("rule", ["rejection", "block", "traversal"])
def test_other_rules_keep_the_grammar_too(native: outpace.Model, rule: str) -> None:
    for seed in range(6):
        schema = list(SCHEMAS.values())[seed % 5]
        for drafter in ("ngram", "model"):
            options = {"grammar": JsonSchema(schema), "temperature": 1.0, "seed": seed, "rule": rule}
            text = generated(native, None, 4, drafter=drafter, **options).text
            jsonschema.validate(json.loads(text), schema)


def test_forced_tokens_are_free_drafts(native: outpace.Model) -> None:
    grammar = Regex("the only text there is")
    silent = FakeDrafter("silent", native.target.vocab_size, lambda tokens, budget: EMPTY)
    result = generated(native, silent, 15, grammar=grammar)
    assert result.text == grammar.pattern
    assert len(result.steps) == -(-len(result.tokens) // 16)
    assert result.accepted >= len(result.tokens) - 2


def test_plain_decoding_drafts_nothing(native: outpace.Model) -> None:
    for options in ({"drafter": "none"}, {"drafter": "ngram", "draft_length": 0}):
        result = native.generate(PROMPT, raw=True, grammar=Regex("abc"), **options)
        assert result.drafted == 0
        assert result.text == "abc"


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_mask_depends_on_its_path_alone(native: outpace.Model, name: str) -> None:
    grammar = JsonSchema(SCHEMAS[name])
    one, rng = constraint(native, grammar), random.Random(7)
    for seed in range(6):
        text = walk(native, constraint(native, grammar), seed)
        for _ in range(8):
            cut = rng.randint(0, len(text))
            committed = rng.randint(0, cut)
            mask = one.mask(Before(text[:committed], text[committed:cut]))
            fresh = constraint(native, grammar).mask(Before(text[:cut]))
            assert mask is not None
            assert fresh is not None
            assert np.array_equal(mask, fresh)


def test_allows_is_the_bit_of_the_mask(native: outpace.Model) -> None:
    one = constraint(native, JsonSchema(PERSON))
    for seed in range(3):
        text = walk(native, one, seed)
        for cut in range(len(text) + 1):
            bits = set(allowed(native, one, text[:cut]))
            assert bits == {t for t in range(native.target.vocab_size) if one.allows(Before(text[:cut]), t)}


def test_eos_comes_only_where_the_grammar_may_end_and_nothing_after_it(native: outpace.Model) -> None:
    one, eos = constraint(native, Regex("ab?")), native.text.eos_ids
    a, b = (native.text.encode(char, special=False)[-1] for char in "ab")
    assert eos.isdisjoint(allowed(native, one, []))
    assert {*allowed(native, one, [a])} > eos
    assert {*allowed(native, one, [a, b])} == eos
    assert one.mask(Before([a, b, min(eos)])) is None
    assert one.mask(Before([b])) is None
    assert one.forced([a, b, min(eos)], 9) == EMPTY


def test_control_tokens_are_never_part_of_a_text(native: outpace.Model) -> None:
    one = constraint(native, Regex("(?s).*"))
    control = {0, 1, 2} - native.text.eos_ids
    assert control.isdisjoint(allowed(native, one, []))


def test_a_drawn_token_stays_when_illegal_and_what_follows_it_goes(native: outpace.Model) -> None:
    one = constraint(native, Regex("[ab]{4}"))
    a, b, c = (native.text.encode(char, special=False)[-1] for char in "abc")
    law: Any = object()
    wide = Budget(2, 9)
    assert one.fitted(Draft.chain([a, c, b]), [], wide) == Draft.chain([a])
    assert one.fitted(Draft.chain([a, c, b], [law] * 3), [], wide) == Draft.chain([a, c], [law] * 2)
    tree = Draft((a, c, b, a), (-1, -1, 0, 1), (None, None, law, law), probes=0)
    assert one.fitted(tree, [], wide) == Draft((a, b), (-1, 0), (None, law))


def test_what_a_chain_forces_is_added_within_the_budget(native: outpace.Model) -> None:
    one = constraint(native, Regex("(a|b)xyz"))
    a, x, y, z = (native.text.encode(char, special=False)[-1] for char in "axyz")
    assert one.fitted(Draft.chain([a]), [], Budget.chain(3)).tokens == (a, x, y)
    whole = one.fitted(Draft.chain([a]), [], Budget.chain(9)).tokens
    assert whole[:4] == (a, x, y, z)
    assert whole[4:] == (one._last,)
    assert one.fitted(Draft.chain([a]), [], Budget.chain(1)).tokens == (a,)


def test_stop_strings_penalties_and_logprobs_go_together_with_it(native: outpace.Model) -> None:
    grammar = Regex("[a-d]{30}")
    options: dict[str, Any] = {"raw": True, "grammar": grammar, "temperature": 1.0, "seed": 3}
    result = native.generate(PROMPT, frequency_penalty=1.5, logprobs=2, **options)
    assert re.fullmatch(grammar.pattern, result.text)
    assert result.logprobs is not None
    assert len(result.logprobs) == len(result.tokens)
    cut = native.generate(PROMPT, stop=[result.text[4:6]], frequency_penalty=1.5, **options)
    assert result.text.startswith(cut.text)
    assert len(cut.text) <= 4
    a = native.text.encode("a", special=False)[-1]
    assert "a" not in native.generate(PROMPT, banned=[a], **options).text


def test_a_combination_that_leaves_no_token_is_one_error(native: outpace.Model) -> None:
    eos = tuple(native.text.eos_ids | native.target.eos_ids)
    for options in ({"banned": eos}, {"min_tokens": 9}, {"allowed": eos}):
        with pytest.raises(UsageError, match="no token is left to draw"):
            native.generate(PROMPT, raw=True, grammar=Regex("ab"), **options)
    with pytest.raises(UsageError, match="ignore_eos"):
        native.generate(PROMPT, raw=True, grammar=Regex("ab"), ignore_eos=True)


LONG_DIVISION = {"type": "integer", "multipleOf": 99_991, "minimum": 123_456, "maximum": 2**53 - 2}
REFUSED = {
    "keyword": ({"properties": {"x": {"items": {"uniqueItems": True}}}}, r"at #/properties/x/items: .*uniqueItems"),
    "pattern": ({"properties": {"x": {"pattern": "(a"}}}, r"at #/properties/x: .*unclosed group"),
    "format": ({"anyOf": [{"type": "null"}, {"type": "string", "format": "odd"}]}, r"at #/anyOf/1: .*odd"),
    "reference": ({"$ref": "http://127.0.0.1/x"}, "at #: Resource"),
    "no text": ({"$ref": "#"}, "no text fits"),
    "size": ({"properties": {"x": LONG_DIVISION}}, "at #/properties/x: fuel"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_schema_that_cannot_be_kept_is_refused_with_its_place(native: outpace.Model, name: str) -> None:
    schema, message = REFUSED[name]
    with pytest.raises(UsageError, match=message):
        native.generate(PROMPT, raw=True, grammar=JsonSchema(schema))


def test_a_grammar_too_large_for_a_step_ends_in_one_error(native: outpace.Model) -> None:
    schema = {"properties": {f"p{i}": {"type": "string"} for i in range(600)}, "additionalProperties": False}
    with pytest.raises(UsageError, match="the grammar failed after"):
        native.generate(PROMPT, raw=True, grammar=JsonSchema(schema | {"type": "object"}))


@pytest.mark.parametrize("number", [2**53 - 1, 1 - 2**53, -1.5e-7])
def test_a_number_stands_in_the_text_as_it_is(native: outpace.Model, number: float) -> None:
    assert json.loads(native.generate(PROMPT, raw=True, grammar=JsonSchema({"const": number})).text) == number


@pytest.mark.parametrize("pattern", ["(a", "(?=a)b", r"(a)\1", r"[^\s\S]"])
def test_a_regex_that_cannot_be_kept_is_refused(native: outpace.Model, pattern: str) -> None:
    with pytest.raises(UsageError, match="the regex cannot be kept"):
        native.generate(PROMPT, raw=True, grammar=Regex(pattern))


def test_the_missing_extra_is_named(native: outpace.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(MissingExtra, match=r"pip install 'outpace\[structured\]'"):
        native.generate(PROMPT, raw=True, grammar=Regex("never compiled before"))


def test_choices_and_requests_do_not_share_a_state(native: outpace.Model) -> None:
    options: dict[str, Any] = {"raw": True, "grammar": JsonSchema(PERSON), "temperature": 1.0, "seed": 11}
    result = native.generate(PROMPT, n=3, **options)
    for choice in result.choices:
        jsonschema.validate(json.loads(choice.text), PERSON)
        assert native.generate(PROMPT, choice=choice.choice, **options).tokens == choice.tokens


@pytest.mark.parametrize(
    "file",
    [pytest.param("embedded_model", marks=pytest.mark.embedded), pytest.param("real_draft", marks=pytest.mark.real)],
)
def test_real_vocabularies_spell_json_and_keep_their_special_tokens_out(
    file: str, request: pytest.FixtureRequest
) -> None:
    with closing(open_gguf(request.getfixturevalue(file))) as weights:
        text, rows = Text.from_weights(weights), weights.config.vocab_size
    compile_grammar = GrammarCompiler(text, rows, text.eos_ids)
    one = compile_grammar(JsonSchema(PERSON | {"required": ["name"]})).start(0, 15)
    output = text.encode('{"name": "Zoë <"}', special=False)
    special = {*text.vocabulary.of_kind(Kind.CONTROL), *text.vocabulary.of_kind(Kind.UNUSED)}
    for cut in range(len(output) + 1):
        mask = one.mask(Before(output[:cut]))
        assert mask is not None
        bits = np.unpackbits(mask.view(np.uint8), count=rows, bitorder="little")
        ids = set(np.flatnonzero(bits).tolist())
        assert ids & special == (text.eos_ids if cut == len(output) else set())
        assert cut == len(output) or output[cut] in ids
        assert all(text.piece(token) for token in ids - special)
    assert one.forced([], 15).tokens == tuple(text.encode('{"name":', special=False))


def test_requests_with_and_without_a_grammar_are_drafted_for_together(native: outpace.Model) -> None:
    grammars = (Regex("forced"), None, Regex("[a-f]{9}"))
    options: dict[str, Any] = {"raw": True, "drafter": "ngram", "draft_length": 3}
    requests = [native.stream("abc abc abc ", grammar=grammar, **options) for grammar in grammars]
    together = propose(requests[0].plan.drafter, [request.round for request in requests])
    alone = [propose(request.plan.drafter, [request.round])[0] for request in requests]
    assert [draft.tokens for draft in together] == [draft.tokens for draft in alone]
    assert together[0].tokens == tuple(native.text.encode("forced", special=False)[:3])
    assert together[1].tokens
    for request in requests:
        request.close()


@pytest.mark.parametrize("rule", ["rejection", "block", "traversal", "coupled"])
def test_cutting_a_draft_keeps_the_law_and_dropping_what_was_drawn_would_not(
    native: outpace.Model, rule: str
) -> None:
    one = constraint(native, Regex("(ab|ba|bc|ca)[abc]{8}"))
    ids = [native.text.encode(char, special=False)[-1] for char in "abc"]
    wide = Budget(3, 3)

    def target_of(seed: int) -> enumerate_rules.Table:
        def law(tokens: tuple[int, ...]) -> Any:
            masses = [int(12 * p) + 1 for p in enumerate_rules.random_table(seed)(tokens)]
            path = [ids[token] for token in tokens]
            legal = [one.allows(Before(path), id) for id in ids]
            return enumerate_rules.fractions([mass * may for mass, may in zip(masses, legal, strict=True)])

        return law

    def cut(drafting: enumerate_rules.Drafting, drops: bool) -> enumerate_rules.Drafting:
        def draft(uniforms: Any, committed: tuple[int, ...], size: int) -> Draft:
            made = drafting(uniforms, committed, size)
            spelt = replace(
                made, tokens=tuple(ids[t] for t in made.tokens), laws=(None,) * size if drops else made.laws
            )
            fitted = one.fitted(spelt, [ids[t] for t in committed], wide)
            tokens = tuple(ids.index(t) for t in fitted.tokens)
            laws = (*made.laws, None, None, None)[: len(tokens)]
            return Draft(tokens, fitted.parents, laws)

        return draft

    worst = 0
    for seed in range(5):
        target, drawn = target_of(seed), chain_from(enumerate_rules.random_table(seed + 50))
        exact = enumerate_rules.joint(target, 2)
        for drafting in (cut(drawn, False), cut(choosing(lambda tokens: (len(tokens) + 1) % 3), False)):
            assert enumerate_rules.emitted(outpace.RULES[rule], target, drafting, [2], 2) == exact
        dropped = enumerate_rules.emitted(outpace.RULES[rule], target, cut(drawn, True), [2], 2)
        worst = max(worst, enumerate_rules.total_variation(dropped, exact))
    assert (worst > 0.01) == (rule != "coupled")
