"""Prompts made of a corpus's answers."""

from __future__ import annotations

import json

import pytest
from refusals import refused

import outpace
from outpace.errors import UsageError
from outpace.heads import tensorfile
from outpace.train.corpus import HELD_OUT_EVERY, Corpora
from outpace.train.running import Answers, task_prompts, write_data
from outpace.train.tasks import INSTRUCTIONS, LEAST_TOKENS


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, tiny_llama):
    folder = tmp_path_factory.mktemp("tasks")
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"Say the number {n}."}) + "\n" for n in range(40)))
    answers = Answers(tokens=10**6, max_tokens=40, max_prompt=100, temperatures=(1.0,), batch=8, seed=0)
    write_data(str(tiny_llama), 1, prompts, (), folder / "corpus", answers, ["test"], lambda *told: None)
    return folder / "corpus"


def answers(corpus, model):
    """Returns [(index, the answer's text less its last token)] of those that are long enough."""
    found = []
    for path in Corpora([corpus]).shards():
        a = tensorfile.read(path).arrays
        for n, index in enumerate(a["indices"]):
            tokens = a["tokens"][a["offsets"][n] + a["prompts"][n] : a["offsets"][n + 1] - 1]
            if len(tokens) >= LEAST_TOKENS:
                found.append((int(index), model.text.decode(tokens.tolist()).strip()))
    return found


def test_every_answer_that_is_not_held_out_has_its_task(corpus, tiny_llama, tmp_path):
    count = task_prompts(str(tiny_llama), [corpus], tmp_path / "tasks.jsonl", 1000, 3)
    prompts = [json.loads(line)["prompt"] for line in (tmp_path / "tasks.jsonl").read_text().splitlines()]
    with outpace.load(tiny_llama, threads=1) as model:
        known = answers(corpus, model)
    texts = sorted(text for index, text in known if index % HELD_OUT_EVERY)
    assert len(prompts) == count == len(texts) < len(known)
    left = []
    for prompt in prompts:
        [instruction] = [
            one for one in INSTRUCTIONS if prompt.startswith(one + "\n\n") or prompt.endswith("\n\n" + one)
        ]
        left.append(prompt.removeprefix(instruction + "\n\n").removesuffix("\n\n" + instruction))
    assert sorted(left) == texts


def test_a_seed_gives_the_same_file_and_count_bounds_it(corpus, tiny_llama, tmp_path):
    for name in ("one", "other"):
        assert task_prompts(str(tiny_llama), [corpus], tmp_path / name, 5, 3) == 5
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_what_is_there_is_kept_and_a_count_of_nothing_refused(corpus, tiny_llama, tmp_path):
    out = tmp_path / "notes"
    out.write_text("mine")
    with refused(UsageError, f"{out} is there already: remove it, or name another file"):
        task_prompts(str(tiny_llama), [corpus], out, 5, 3)
    assert out.read_text() == "mine"
    with refused(UsageError, "count must be at least 1, got 0"):
        task_prompts(str(tiny_llama), [corpus], out, 0, 3)


def test_answers_of_another_model_and_short_ones_are_refused(corpus, tiny_llama, tiny_qwen2, tmp_path, monkeypatch):
    out = tmp_path / "tasks"
    said = f"{corpus} was written by another model than {tiny_qwen2.stem}: name that with --model"
    with refused(UsageError, said):
        task_prompts(str(tiny_qwen2), [corpus], out, 5, 3)
    monkeypatch.setattr("outpace.train.tasks.LEAST_TOKENS", 1000)
    with refused(UsageError, f"{corpus}: no answer to make a task of: none has 1000 tokens"):
        task_prompts(str(tiny_llama), [corpus], out, 5, 3)
    assert not out.exists()
