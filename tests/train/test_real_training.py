"""Three minutes of the documented commands on the embedded model: the head that comes out accepts what it should."""

from __future__ import annotations

import json

import pytest

import outpace
from outpace.train.running import Answers, Training, train_head, write_data

COMMAND = ["outpace", "train"]
QUIET = {"show": lambda done, of, words: None}
SUBJECTS = ("rivers", "bread", "the moon", "trains", "glass", "bees", "chess", "winter", "salt", "bridges")
ASKED = (
    "Explain {} to a child.",
    "Write three sentences about {}.",
    "List five facts about {}.",
    "Why do people like {}?",
)


@pytest.mark.real
@pytest.mark.embedded
def test_a_head_of_three_minutes_accepts_a_quarter_of_first_tokens(tmp_path, embedded_model, monkeypatch):
    pytest.importorskip("torch", reason="training is not installed (pip install 'outpace[train]')")
    prompts = tmp_path / "prompts.jsonl"
    questions = [question.format(subject) for subject in SUBJECTS for question in ASKED]
    prompts.write_text(
        "".join(json.dumps({"prompt": f"{text} ({n})"}) + "\n" for n in range(6) for text in questions)
    )
    answers = Answers(tokens=20_000, max_tokens=96, max_prompt=128, temperatures=(0.0, 1.0), batch=16, seed=0)
    write_data(str(embedded_model), None, prompts, (), tmp_path / "corpus", answers, COMMAND, **QUIET)
    training = Training("eagle", 2048, 2, 3.0, 8, 5e-4, 8, 2.0, 0)
    out = tmp_path / "head.safetensors"
    card = train_head(str(embedded_model), None, [tmp_path / "corpus"], out, training, COMMAND, **QUIET)
    first, second = card["held_out"]["greedy"]
    assert first > 0.25
    assert 0 < second < first
    monkeypatch.setenv("OUTPACE_HEADS", str(out))
    with outpace.load(embedded_model) as model:
        how = {"max_tokens": 64, "ignore_eos": True}
        drafted = model.generate("Explain snow to a child.", drafter="eagle", draft_length=2, **how)
        assert drafted.tokens == model.generate("Explain snow to a child.", drafter="none", **how).tokens
        assert drafted.tokens_per_step > 1.15
