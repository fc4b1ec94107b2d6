"""Prompts that the target writes itself."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import outpace
from outpace.errors import UsageError
from outpace.train.asking import Asking, user_opening
from outpace.train.running import ask_prompts

ASKING = Asking(count=6, max_tokens=60, temperature=1.0, top_p=1.0, batch=4, seed=3)


def ask(model, out, asking=ASKING):
    return ask_prompts(str(model), 1, out, asking, lambda done, of, words: None)


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def asked(tiny_llama, tmp_path_factory):
    out = tmp_path_factory.mktemp("asked") / "prompts.jsonl"
    assert ask(tiny_llama, out) == 6
    return out


def test_the_opening_is_all_that_comes_before_a_users_words(tiny_llama):
    with outpace.load(tiny_llama, threads=1) as model:
        opening = user_opening(model.text)
        whole = model.text.render_chat([{"role": "user", "content": "Hello"}])
        assert whole[: len(opening)] == opening
        rest = model.text.decode(whole[len(opening) :])
        assert rest.startswith("Hello")


def test_a_prompt_does_not_depend_on_those_beside_it(tiny_llama, asked, tmp_path):
    out = tmp_path / "alone.jsonl"
    ask(tiny_llama, out, replace(ASKING, batch=1))
    alone = {record["number"]: record["prompt"] for record in records(out)}
    together = {record["number"]: record["prompt"] for record in records(asked)}
    both = alone.keys() & together.keys()
    assert len(both) >= 3
    assert {number: alone[number] for number in both} == {number: together[number] for number in both}


def test_prompts_are_new_and_another_run_adds_to_them(tiny_llama, asked, tmp_path):
    out = tmp_path / "more.jsonl"
    out.write_bytes(asked.read_bytes())
    assert ask(tiny_llama, out, replace(ASKING, count=9)) == 9
    found = records(out)
    assert found[:6] == records(asked)
    assert len({record["prompt"] for record in found}) == len({record["number"] for record in found}) == 9


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"count": 0}, "count must be at least 1, got 0"),
        ({"max_tokens": 0, "batch": -1}, "max_tokens must be at least 1, got 0; batch must be at least 1, got -1"),
        ({"temperature": 0.0}, "temperature must be above 0, got 0.0: all prompts would be the same"),
        ({"top_p": 1.5}, "top_p must be in (0, 1], got 1.5"),
    ],
)
def test_numbers_out_of_range_are_named(tiny_llama, tmp_path, wrong, said):
    with pytest.raises(UsageError) as refused:
        ask(tiny_llama, tmp_path / "out.jsonl", replace(ASKING, **wrong))
    assert str(refused.value) == said
    assert not list(tmp_path.iterdir())


def test_a_file_of_something_else_is_not_added_to(tiny_llama, tmp_path):
    out = tmp_path / "notes.jsonl"
    out.write_text("hello\n")
    with pytest.raises(UsageError) as refused:
        ask(tiny_llama, out)
    assert str(refused.value) == f"{out}, line 1: was not written by `train prompts`"
    assert out.read_text() == "hello\n"


def test_a_target_that_never_ends_a_turn_is_told_of(tiny_llama, tmp_path):
    with pytest.raises(UsageError) as refused:
        ask(tiny_llama, tmp_path / "out.jsonl", replace(ASKING, max_tokens=1, batch=8))
    assert str(refused.value).endswith("turns in a row were no new prompts: this target does not write any")
