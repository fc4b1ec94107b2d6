"""Training text: the target's own, with its features, whatever interrupted the writing of it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from refusals import refused

import outpace
from outpace.errors import BadModelFile, UsageError
from outpace.heads import tensorfile
from outpace.train import corpus as corpora
from outpace.train.corpus import Corpus, log_sum
from outpace.train.prompts import read_prompts, without
from outpace.train.running import Answers, tap_layers, write_data
from outpace.types import Prompt

ANSWERS = Answers(tokens=400, max_tokens=20, max_prompt=100, temperatures=(0.0, 1.0), batch=4, seed=3)
COMMAND = ["outpace", "train", "data"]


@pytest.fixture(scope="module")
def prompts(tmp_path_factory):
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    lines = [json.dumps({"prompt": f"Say {n}\u2028then stop."}) for n in range(30)]
    path.write_text("\n".join(lines))
    return path


def write(tiny_llama, prompts, folder, answers=ANSWERS, exclude=(), show=lambda done, of, words: None):
    return write_data(str(tiny_llama), 1, prompts, exclude, folder, answers, COMMAND, show)


def texts(folder):
    """Returns {prompt's index: (tokens, hidden, log_sums, prompt's length, temperature)}."""
    found = {}
    for path in Corpus(folder).shards():
        a = tensorfile.read(path).arrays
        for n, index in enumerate(a["indices"]):
            at = slice(int(a["offsets"][n]), int(a["offsets"][n + 1]))
            found[int(index)] = (
                a["tokens"][at],
                a["hidden"][at],
                a["log_sums"][at],
                int(a["prompts"][n]),
                float(a["temperatures"][n]),
            )
    return found


@pytest.fixture(scope="module")
def written(tiny_llama, prompts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    write(tiny_llama, prompts, folder)
    return folder


def test_texts_are_what_the_target_generates(tiny_llama, prompts, written):
    asked = read_prompts(prompts)
    with outpace.load(tiny_llama, threads=1) as model:
        for index, (tokens, _, _, prompt, temperature) in texts(written).items():
            alone = model.generate(
                asked[index], max_tokens=20, temperature=temperature, seed=3, choice=index, drafter="none"
            )
            assert tuple(tokens[prompt:]) == alone.tokens


def test_features_are_those_of_one_pass_over_the_text(tiny_llama, written):
    with outpace.load(tiny_llama, threads=1) as model:
        target = model.target
        taps = tap_layers(target.hidden_layers)
        for tokens, hidden, log_sums, prompt, _ in texts(written).values():
            session, context = target.open(Prompt(tuple(int(t) for t in tokens)), taps)
            session.close()
            assert np.allclose(hidden[:-1], context.hidden, rtol=2e-3, atol=2e-3)
            assert not hidden[-1].any()
            logits = target.head(context.hidden[prompt - 1 :, -1])
            assert np.allclose(log_sums[prompt - 1 : -1], [log_sum(row) for row in logits], atol=1e-5)
            assert not log_sums[: prompt - 1].any()


def test_an_interrupted_run_goes_on_to_the_same_texts(monkeypatch, tiny_llama, prompts, written, tmp_path):
    monkeypatch.setattr(corpora, "SHARD_TOKENS", 150)
    rounds = 0

    def interrupt(done, of, words):
        nonlocal rounds
        rounds += 1
        if rounds in (30, 55):
            raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            write(tiny_llama, prompts, tmp_path, show=interrupt)
        assert not list(tmp_path.glob(".*"))
    write(tiny_llama, prompts, tmp_path)
    assert len(Corpus(tmp_path).shards()) > 2
    whole, resumed = texts(written), texts(tmp_path)
    for index in whole.keys() & resumed.keys():
        for a, b in zip(whole[index], resumed[index], strict=True):
            assert np.array_equal(a, b)
    _, tokens = Corpus(tmp_path).written()
    assert tokens >= ANSWERS.tokens
    assert len(whole.keys() & resumed.keys()) > 5


def test_more_tokens_add_to_the_corpus_and_another_recipe_is_refused(tiny_llama, prompts, tmp_path):
    few = Answers(**{**{f: getattr(ANSWERS, f) for f in ANSWERS.__slots__}, "tokens": 50})
    write(tiny_llama, prompts, tmp_path, few)
    before = set(texts(tmp_path))
    write(tiny_llama, prompts, tmp_path)
    assert before < set(texts(tmp_path))
    other = Answers(**{**{f: getattr(ANSWERS, f) for f in ANSWERS.__slots__}, "seed": 4})
    with pytest.raises(UsageError, match=r"made otherwise \(seed 3 there, 4 asked for\)"):
        write(tiny_llama, prompts, tmp_path, other)


def test_excluded_prompts_and_repeats_are_not_written(tiny_llama, tmp_path):
    prompts, excluded = tmp_path / "p.jsonl", tmp_path / "e.jsonl"
    prompts.write_text(
        "".join(json.dumps({"prompt": text}) + "\n" for text in ("One two", "three", "ONE  two", "four"))
    )
    excluded.write_text(json.dumps({"turns": ["Three", "and more"]}) + "\n")
    write(tiny_llama, prompts, tmp_path / "corpus", exclude=(excluded,))
    assert set(texts(tmp_path / "corpus")) == {0, 3}
    assert without(["a", "A ", "b"], ["B"]) == ["a", None, None]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{}", "line 2: a prompt is"),
        ("[1]", "line 2"),
        ('{"prompt": 3}', "line 2"),
        ('{"turns": []}', "line 2"),
        ("x", "line 2"),
        ("[" * 100_000, "line 2"),
        ('{"prompt": "\\ud800 a"}', "line 2: holds half of a surrogate pair"),
    ],
)
def test_a_line_without_a_prompt_is_named(tmp_path, line, words):
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "a"}\n' + line)
    with pytest.raises(UsageError, match=words):
        read_prompts(path)
    path.write_text("\n")
    with pytest.raises(UsageError, match="holds no prompt"):
        read_prompts(path)


def test_a_file_that_is_no_text_is_named_and_a_byte_order_mark_is_none(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "a"}')
    assert read_prompts(path) == ["a"]
    path.write_bytes(b"ab\xff")
    with refused(UsageError, f"{path} is not UTF-8: byte 2"):
        read_prompts(path)
    with refused(UsageError, f"{tmp_path / 'none'}: No such file or directory"):
        read_prompts(tmp_path / "none")


def test_where_no_prompt_is_left_nothing_is_begun(tiny_llama, tmp_path):
    prompts, out = tmp_path / "p.jsonl", tmp_path / "corpus"
    prompts.write_text(json.dumps({"prompt": "word " * 300}))
    with pytest.raises(UsageError, match=r"no prompt is left: the shortest has \d+ tokens, and max_prompt is 100"):
        write(tiny_llama, prompts, out)
    with pytest.raises(UsageError, match="no prompt is left: all are excluded"):
        write(tiny_llama, prompts, out, exclude=(prompts,))
    long = replace(ANSWERS, max_tokens=100_000)
    with pytest.raises(UsageError, match=r"got 100100: max_prompt \(100\) \+ max_tokens \(100000\)"):
        write(tiny_llama, prompts, out, long)
    assert not out.exists()
    out.write_text("")
    prompts.write_text(json.dumps({"prompt": "a"}))
    with refused(UsageError, f"{out} is a file: name a folder"):
        write(tiny_llama, prompts, out)


@pytest.mark.parametrize(
    "described",
    [
        {},
        {"recipe": 5},
        {"recipe": {}},
        {"recipe": {"target": "t", "taps": 5}},
        {"recipe": {"target": "t", "taps": []}},
    ],
)
def test_a_description_that_says_too_little_is_refused(tmp_path, described):
    (tmp_path / "corpus.json").write_text(json.dumps(described))
    with pytest.raises(UsageError, match=r"corpus\.json: (has no recipe with a target|its recipe has no taps)"):
        Corpus(tmp_path)


@pytest.mark.parametrize(
    ("name", "changed", "words"),
    [
        ("tokens", None, "it has no tokens of 1 dimensions"),
        ("hidden", np.zeros(3, np.float16), "it has no hidden of 3 dimensions"),
        ("log_sums", np.zeros(3, np.float32), r"cannot have 3 log_sums$"),
        ("offsets", np.zeros(0, np.int64), r"cannot have 0 offsets$"),
        ("offsets", lambda old: old + 1, "do not fill its"),
        ("offsets", lambda old: old[::-1].copy(), "do not fill its"),
        ("prompts", lambda old: old + (1 << 20), "do not fill its"),
        ("prompts", lambda old: old * 0, "do not fill its"),
    ],
)
def test_a_shard_that_contradicts_itself_is_refused(written, tmp_path, name, changed, words):
    whole = Corpus(written).shards()[0]
    arrays = {key: np.array(value) for key, value in corpora.read_shard(whole).items()}
    arrays[name] = changed(arrays[name]) if callable(changed) else changed
    shard = tmp_path / "shard-00000.safetensors"
    tensorfile.write(shard, {key: value for key, value in arrays.items() if value is not None}, {})
    with pytest.raises(BadModelFile, match=words):
        corpora.read_shard(shard)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tokens": 0}, "tokens must be at least 1"),
        ({"max_prompt": 1}, "max_prompt must be at least 2"),
        ({"temperatures": (-1.0,)}, "temperature must be at least 0"),
    ],
)
def test_numbers_out_of_range_are_refused_before_anything_is_loaded(tmp_path, change, words):
    wrong = Answers(**{**{f: getattr(ANSWERS, f) for f in ANSWERS.__slots__}, **change})
    with pytest.raises(UsageError, match=words):
        write_data("no such model", 1, tmp_path / "none", (), tmp_path, wrong, COMMAND, lambda *told: None)
