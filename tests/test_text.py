"""Text to ids and back on a small vocabulary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hard_text import hard_lines
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from safetensors_writer import tiny_folder, tokenizer_json

from gguf_writer import CONTROL_TOKENS, Tiny, Typed, small_vocabulary, tiny_model
from outpace.errors import UsageError
from outpace.native.gguf import open_gguf
from outpace.native.safetensors import open_safetensors
from outpace.text import Text

USER = [{"role": "user", "content": "the cat"}]
ids_of_320 = st.lists(st.integers(0, 400), max_size=40)


@pytest.fixture(scope="module")
def text(tiny_llama: Path) -> Text:
    return Text.from_weights(open_gguf(tiny_llama))


def with_keys(path: Path, **keys: Any) -> Text:
    """Returns the text side of a tiny model with some tokenizer keys replaced."""
    named = {f"tokenizer.{key.replace('__', '.')}": value for key, value in keys.items()}
    return Text.from_weights(open_gguf(tiny_model(path, **named)))


def test_merges_are_applied(text: Text) -> None:
    ids = text.encode("the cat", special=False)
    assert [text.describe(id) for id in ids] == ["the", " c", "at"] or len(ids) < 7
    assert text.decode(ids) == "the cat"


@given(st.text())
def test_decoding_gives_the_text_back(text: Text, string: str) -> None:
    assert text.decode(text.encode(string, special=False)) == string


def test_control_tokens_are_recognised_only_where_they_are_meant(text: Text) -> None:
    assert text.encode("<|im_start|>", special=True) == [1]
    ids = text.encode("<|im_start|>", special=False)
    assert not set(ids) & {0, 1, 2}
    assert text.decode(ids) == "<|im_start|>"


def test_control_tokens_are_left_out_of_the_text_but_can_be_named(text: Text) -> None:
    ids = [1, *text.encode("a", special=False), 2]
    assert text.decode(ids) == "a"
    assert [text.describe(id) for id in ids] == ["<|im_start|>", "a", "<|im_end|>"]


def test_padding_rows_have_no_text(text: Text) -> None:
    assert text.decode([320, 100_000]) == ""
    assert text.describe(100_000) == "[100000]"
    with refused(UsageError, "a token id must be at least 0, got -1"):
        text.decode([-1])


def test_bos_comes_once(tmp_path: Path) -> None:
    text = with_keys(tmp_path / "m.gguf", ggml__add_bos_token=True)
    assert text.encode("a", special=False)[0] == 1
    assert text.encode("<|im_start|>a", special=True) == text.encode("a", special=False)
    assert text.encode("", special=False) == [1]
    assert text.render_chat(USER).count(1) == 2  # one a turn: the template's first is the BOS


def test_user_defined_tokens_are_recognised_everywhere(tmp_path: Path) -> None:
    tokens, _, kinds = small_vocabulary()
    named = {"ggml__tokens": [*tokens[:-1], "<tool>"], "ggml__token_type": [*kinds[:-1], 4]}
    named["ggml__merges"] = Typed("arr", ("str", []))
    text = with_keys(tmp_path / "m.gguf", **named)
    for special in (True, False):
        ids = text.encode("a<tool>b", special=special)
        assert ids[1:-1] == [319]
        assert text.decode(ids) == "a<tool>b"


def test_roles_that_look_like_half_a_control_token_reach_the_template(tmp_path: Path) -> None:
    tokens, _, kinds = small_vocabulary()
    named = {
        "ggml__tokens": ["repo", *tokens[1:]],
        "ggml__token_type": kinds,
        "chat_template": "{{ messages[0].role == 'user' }}",
    }
    text = with_keys(tmp_path / "m.gguf", **named)
    assert text.decode(text.render_chat(USER)) == "True"


def test_texts_beyond_all_contexts_are_refused(text: Text) -> None:
    with refused(UsageError, "the text has 8388609 characters, at most 8388608 can be tokenised"):
        text.encode(" " * ((8 << 20) + 1), special=False)


def test_half_a_surrogate_pair_is_refused(text: Text) -> None:
    with refused(UsageError, "the text is not Unicode: half of a surrogate pair at character 2"):
        text.encode("ab\ud800", special=False)


@given(ids_of_320, st.lists(st.integers(1, 5)))
def test_stream_is_the_text_in_pieces(text: Text, ids: list[int], cuts: list[int]) -> None:
    detokeniser, out, rest = text.detokeniser(), "", list(ids)
    for cut in cuts:
        out += detokeniser.feed(rest[:cut])
        rest = rest[cut:]
    out += detokeniser.feed(rest)
    assert out + detokeniser.flush() == text.decode(ids)


@given(st.text(alphabet="aé我🙂\u0301", max_size=12))
def test_stream_never_shows_half_a_character(text: Text, string: str) -> None:
    detokeniser, out = text.detokeniser(), ""
    for id in text.encode(string, special=False):
        out += detokeniser.feed([id])
        assert string.startswith(out)
    assert out + detokeniser.flush() == string


def test_unfinished_character_is_flushed_as_a_replacement(text: Text) -> None:
    first, *_ = text.encode("🙂", special=False)
    detokeniser = text.detokeniser()
    assert detokeniser.feed([first]) == ""
    assert detokeniser.flush() == "\ufffd"


def test_the_mark_for_half_a_character_completes_no_stop_string(text: Text) -> None:
    stream = text.stream(["a\ufffd", "ab"])
    [a], [half, *_] = text.encode("a", special=False), text.encode("🙂", special=False)
    assert [stream.feed(a), stream.feed(half)] == [("", False), ("", False)]
    assert (stream.finish(), stream.stopped) == ("a\ufffd", False)


def test_stream_stops_at_the_token_that_completes_a_stop_string(text: Text) -> None:
    ids, stream, shown = text.encode("the sea and the cat", special=False), text.stream(["and t"]), ""
    read: list[int] = []
    for id in ids:
        read.append(id)
        new, stopped = stream.feed(id)
        shown += new
        if stopped:
            break
    assert shown == "the sea "
    assert "and t" in text.decode(read)
    assert "and t" not in text.decode(read[:-1])
    assert stream.finish() == ""


def test_stream_that_ends_shows_what_it_held(text: Text) -> None:
    stream = text.stream(["the dog"])
    shown = "".join(stream.feed(id)[0] for id in text.encode("see the d", special=False))
    assert shown == "see "
    assert stream.finish() == "the d"


def test_conversation_is_rendered_with_control_tokens(text: Text) -> None:
    ids = text.render_chat([{"role": "system", "content": "be"}, *USER])
    assert "".join(map(text.describe, ids)) == (
        "<|im_start|>system\nbe<|im_end|>\n<|im_start|>user\nthe cat<|im_end|>\n<|im_start|>assistant\n"
    )
    assert [id for id in ids if id < 3] == [1, 2, 1, 2, 1]
    closed = text.render_chat(USER, add_generation_prompt=False)
    assert text.render_chat(USER)[: len(closed)] == closed


@given(
    st.lists(st.sampled_from([*CONTROL_TOKENS, "<|im_", "end|>", "<", "|>", ">", "<|", " ", "\n", "hi", "\ufdd0"]))
)
def test_no_message_can_write_a_control_token(text: Text, pieces: list[str]) -> None:
    content = "".join(pieces)
    ids = text.render_chat([{"role": "user", "content": content}])
    assert [id for id in ids if id < 3] == [1, 2, 1]
    assert text.decode(ids) == f"user\n{content}\nassistant\n"


def test_no_role_can_write_a_control_token(text: Text) -> None:
    ids = text.render_chat([{"role": "user<|im_end|>", "content": "hi"}])
    assert [id for id in ids if id < 3] == [1, 2, 1]


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([{"role": "user"}], "message 0 needs a text as its 'content', got None"),
        ([*USER, {"role": 3, "content": "a"}], "message 1 needs a text as its 'role', got 3"),
        (
            [{"role": "user", "content": "a", "extra": ["b"]}],
            "message 0 has 'extra' = ['b']; only texts are supported",
        ),
        (
            [{"role": "user", "content": "\ud800"}],
            "the text is not Unicode: half of a surrogate pair at character 17",
        ),
    ],
)
def test_wrong_messages_are_refused(text: Text, messages: list[dict[str, Any]], message: str) -> None:
    with refused(UsageError, message):
        text.render_chat(messages)


def test_both_kinds_of_file_give_the_same_ids(text: Text, tmp_path: Path) -> None:
    other = Text.from_weights(open_safetensors(tiny_folder(tmp_path / "hf")))
    assert other.eos_ids == text.eos_ids == {0, 2}
    for line in hard_lines(500):
        assert other.encode(line, special=False) == text.encode(line, special=False), repr(line)
        assert other.encode(line, special=True) == text.encode(line, special=True), repr(line)
    assert other.render_chat(USER) == text.render_chat(USER)


def test_bos_of_a_tokenizer_json_comes_once(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "hf")
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json(bos=True)))
    text = Text.from_weights(open_safetensors(folder))
    assert text.prefix == (1,)
    assert text.encode("<|im_start|>a", special=True) == text.encode("a", special=False)


def test_own_template_file_comes_first(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "hf")
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}{{ eos_token }}")
    assert Text.from_weights(open_safetensors(folder)).render_chat(USER)[-1] == 2


def test_gpt2_words_do_not_split_digits(tmp_path: Path) -> None:
    tokens, merges, kinds = small_vocabulary()
    keys = {"ggml__tokens": [*tokens, "12"], "ggml__token_type": [*kinds, 1], "ggml__merges": [*merges, "1 2"]}
    shape = Tiny(vocab_size=321)
    named = {f"tokenizer.{key.replace('__', '.')}": value for key, value in keys.items()}
    for pre, count in (("gpt-2", 1), ("smollm", 2), ("qwen2", 2)):
        path = tiny_model(tmp_path / f"{pre}.gguf", shape, **named, **{"tokenizer.ggml.pre": pre})
        assert len(Text.from_weights(open_gguf(path)).encode("12", special=False)) == count
