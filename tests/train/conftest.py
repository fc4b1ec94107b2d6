"""A corpus that the tiny target wrote, for all that trains on one."""

from __future__ import annotations

import json

import pytest

COMMAND = ["outpace", "train"]
QUIET = {"show": lambda done, of, words: None}


@pytest.fixture(scope="module")
def one_thread():
    torch = pytest.importorskip("torch", reason="training is not installed (pip install 'outpace[train]')")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def corpus(tiny_llama, tmp_path_factory):
    from outpace.train.running import Answers, write_data

    folder = tmp_path_factory.mktemp("data")
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"Tell me of {n * n}."}) + "\n" for n in range(120)))
    answers = Answers(tokens=3000, max_tokens=40, max_prompt=100, temperatures=(0.0, 0.5), batch=16, seed=0)
    write_data(str(tiny_llama), 1, prompts, (), folder / "corpus", answers, COMMAND, **QUIET)
    return folder / "corpus"
