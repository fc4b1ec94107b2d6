"""Stores of earlier texts: bounded, saved whole, and refused where they do not belong."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from outpace.errors import BadModelFile, ModelNotFound, UsageError, VocabularyMismatch
from outpace.suffix_store import Stores, SuffixStore, fingerprint, open_store
from outpace.vocabulary import Vocabulary

VOCABULARY = Vocabulary([f"t{i}" for i in range(100)], np.ones(100, np.int8))
NAME = fingerprint(VOCABULARY)


def filled(texts=20, **how):
    store = SuffixStore(NAME, 100, **how)
    for i in range(texts):
        store.add([i % 90, *((i * k) % 100 for k in range(10))])
    return store


def test_what_is_saved_is_what_is_opened(tmp_path):
    store = filled(card={"command": "made by hand"})
    store.save(tmp_path / "a.suffixes")
    again = open_store(tmp_path / "a.suffixes", NAME)
    assert (again.tokens, again.counts.contexts, again.card) == (220, store.counts.contexts, store.card)
    again.save(tmp_path / "b.suffixes")
    assert (tmp_path / "a.suffixes").read_bytes() == (tmp_path / "b.suffixes").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.suffixes", "b.suffixes"]


def test_the_oldest_texts_make_room():
    store = filled(texts=1000, max_tokens=110)
    assert store.tokens <= 110
    unbounded = filled(texts=1000)
    assert store.counts.contexts < 0.2 * unbounded.counts.contexts
    assert store.nbytes < unbounded.nbytes


def test_a_text_longer_than_the_store_is_cut_to_its_end():
    store = SuffixStore(NAME, 100, max_tokens=10)
    store.add([i % 100 for i in range(1000)])
    assert store.tokens == 10


def test_a_smaller_store_takes_the_newest_texts_of_a_file(tmp_path):
    filled().save(tmp_path / "s")
    assert open_store(tmp_path / "s", NAME, max_tokens=50).tokens == 44


def test_another_models_store_is_refused(tmp_path):
    filled().save(tmp_path / "s")
    with pytest.raises(VocabularyMismatch, match="another vocabulary"):
        open_store(tmp_path / "s", fingerprint(Vocabulary(["a"], np.ones(1, np.int8))))


def test_ids_that_the_vocabulary_lacks_are_refused():
    with pytest.raises(UsageError, match=r"must be in \[0, 100\)"):
        filled().add([1, 100])
    with pytest.raises(UsageError, match="at least 1, got 0"):
        SuffixStore(NAME, 100, max_tokens=0)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"",
        lambda data: b"{}\n",
        lambda data: b"\xff\xfe\n" + data,
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: data.replace(b'"texts": 20', b'"texts": -1'),
        lambda data: data.replace(b'"tokens": 220', b'"tokens": 1e9'),
        lambda data: data.replace(b'"vocab_size": 100', b'"vocab_size": 15 '),
        lambda data: data.replace(b"suffixes 1", b"suffixes 9"),
        lambda data: data[: data.index(b"\n") + 1] + b"\xff" * (len(data) - data.index(b"\n") - 1),
    ],
)
def test_a_spoilt_file_is_one_clear_error(tmp_path, spoil):
    filled().save(tmp_path / "s")
    (tmp_path / "s").write_bytes(spoil((tmp_path / "s").read_bytes()))
    with pytest.raises(BadModelFile, match=str(tmp_path)):
        open_store(tmp_path / "s", NAME)


def test_an_absent_file_is_said_to_be_absent(tmp_path):
    with pytest.raises(ModelNotFound):
        open_store(tmp_path / "none", NAME)


def test_a_store_that_could_not_be_written_is_refused_before_it_learns(tmp_path):
    (tmp_path / "file").write_text("x")
    for file in (tmp_path, tmp_path / "file" / "store"):
        with pytest.raises(UsageError, match=f"a store cannot be written to {file}: name a file in a folder"):
            Stores.of(VOCABULARY, 100, file)


def test_nor_in_place_of_a_device():
    with pytest.raises(UsageError, match=f"a store cannot be written to {os.devnull}"):
        Stores.of(VOCABULARY, 100, Path(os.devnull))


def test_nor_on_a_file_system_that_takes_no_files():
    if not Path("/proc/self").is_dir():
        pytest.skip("no /proc here")
    with pytest.raises(UsageError, match="a store cannot be written to /proc/x"):
        Stores.of(VOCABULARY, 100, Path("/proc/x"))


def test_stores_of_a_model_begin_empty_and_are_written_on_request(tmp_path):
    stores = Stores.of(VOCABULARY, 100, tmp_path / "deep" / "mine")
    assert [store.tokens for store in stores.all] == [0]
    stores.own.add([1, 2, 3])
    stores.save()
    assert Stores.of(VOCABULARY, 100, tmp_path / "deep" / "mine").own.tokens == 3
    assert Stores.of(VOCABULARY, 100).all == ()
    header = (tmp_path / "deep" / "mine").read_bytes().split(b"\n")[0]
    assert json.loads(header)["texts"] == 1


def test_the_packages_own_store_is_read_once_and_only_by_who_drafts_from_it(tmp_path, monkeypatch):
    name = fingerprint(VOCABULARY)
    store = SuffixStore(name, 100)
    store.add([1, 2, 3])
    store.save(tmp_path / f"{name[:16]}.suffixes")
    monkeypatch.setattr("outpace.suffix_store.PACKAGED", tmp_path)
    opened = []
    monkeypatch.setattr("outpace.suffix_store.open_store", lambda *args, **more: opened.append(args) or store)
    one, other = Stores.of(VOCABULARY, 100), Stores.of(VOCABULARY, 100)
    assert not opened
    assert one.all == other.all == (store,)
    assert len(opened) == 1
