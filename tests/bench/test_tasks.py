"""Prompt files: shapes that are read, and mistakes that are one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from outpace.bench.drafters import read_prompts
from outpace.bench.speed import Conditions, bench_run
from outpace.bench.tasks import Question, choose, read_questions
from outpace.errors import UsageError


def file(folder: Path, *lines: str) -> Path:
    path = folder / "prompts.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_a_prompt_is_its_first_turn_or_its_prompt(tmp_path: Path) -> None:
    path = file(tmp_path, '{"id": 7, "task": "qa", "turns": ["first", "second"]}', "", '{"prompt": "mine"}')
    assert read_questions([path]) == (
        Question("qa/7", "qa", "first"),
        Question("prompts/prompts:3", "prompts", "mine"),
    )


def test_a_line_ends_where_json_lines_do_and_a_byte_order_mark_is_none_of_the_text(tmp_path: Path) -> None:
    path = file(tmp_path, '\ufeff{"prompt": "a\u2028b"}', '{"prompt": "c\x85d"}\r', "")
    assert [question.text for question in read_questions([path])] == ["a\u2028b", "c\x85d"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "has no prompt"),
        ("{", "line 1 is not JSON"),
        ("[1]", "must be an object"),
        ('{"turns": []}', "needs a text"),
        ('{"prompt": " "}', "needs a text"),
        ('{"prompt": "\\ud800 a"}', "line 1 holds half of a surrogate pair, which is no text"),
        ('{"id": 1, "prompt": "a"}\n{"id": 1, "prompt": "b"}', "line 2: the id 'prompts/1' occurs twice"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_questions([file(tmp_path, line)])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.jsonl: No such file"):
        read_questions([tmp_path / "none.jsonl"])


def test_so_many_a_task_are_chosen_and_an_unknown_task_is_refused() -> None:
    questions = [Question(f"{task}/{i}", task, "?") for i in range(3) for task in ("a", "b")]
    assert [q.name for q in choose(questions, [], 1)] == ["a/0", "b/0"]
    assert [q.name for q in choose(questions, ["b"], None)] == ["b/0", "b/1", "b/2"]
    with pytest.raises(UsageError, match="no prompt is of task 'c'; the files have a, b"):
        choose(questions, ["c"], None)
    with pytest.raises(UsageError, match="at least 1, got 0"):
        choose(questions, [], 0)


def test_our_own_prompts_have_schemas_that_bench_run_refuses_and_bench_drafters_takes(native):
    file = Path(__file__).parents[2] / "data" / "schema_prompts.jsonl"
    questions = read_questions([file])
    assert all(question.schema for question in questions)
    assert all(prompt.grammar is not None for prompt in read_prompts([file], 10))
    with pytest.raises(UsageError, match="json/0 asks for JSON by a schema: outpace bench drafters takes it"):
        bench_run(native, Path("m.gguf"), None, questions, Conditions())
