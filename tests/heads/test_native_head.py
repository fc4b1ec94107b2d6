"""The head on the engine's kernels: the numbers that training saw, whatever was committed and drafted before."""

from __future__ import annotations

import numpy as np
import pytest

from outpace import _native
from outpace.heads.file import read_head
from outpace.heads.loading import load_head
from outpace.types import Prompt
from small_heads import write_head

TEXT = tuple((37 * i + i * i) % 320 for i in range(200))


@pytest.fixture
def target(native):
    return native.target


@pytest.fixture
def head(tmp_path, target):
    return load_head(read_head(write_head(tmp_path / "head.safetensors", target, block=4)), target)


def features(target, taps, end):
    """Returns the target's hidden states [end - 1, taps, H] of the text's first tokens but the last."""
    session, context = target.open(Prompt(TEXT[:end]), taps)
    session.close()
    return context.hidden


def test_the_logits_are_those_of_the_network_that_was_trained(tmp_path, target, head):
    torch = pytest.importorskip("torch", reason="training is not installed (pip install 'outpace[train]')")
    from outpace.native.dequantise import dequantise
    from outpace.train.network import DraftNetwork

    file = read_head(tmp_path / "head.safetensors")
    network = DraftNetwork(file.config)
    weights = {name: torch.from_numpy(np.array(value)) for name, value in file.vectors.items()}
    for name, (format, blocks) in file.matrices.items():
        shape = network.get_parameter(name).shape
        weights[name] = torch.from_numpy(dequantise(blocks, format, *shape))
    network.load_state_dict({name: value.view_as(network.get_parameter(name)) for name, value in weights.items()})
    hidden = features(target, head.config.taps, 60)
    rows = torch.from_numpy(target.model.output_rows(head.draft_ids.tolist()))
    embedded = torch.from_numpy(target.embed(TEXT[1:60]))[None]
    with torch.no_grad():
        first, second = network.steps(torch.from_numpy(np.array(hidden))[None], embedded, 2)
    wanted = (first[0] @ rows.T).numpy(), (second[0] @ rows.T).numpy()

    session = head.layer.open()
    begun = head.layer.begin(session, hidden[:40], TEXT[1:41])
    grown = head.layer.grow(session, [-1], [TEXT[41]])
    for got, row in ((begun[0], wanted[0][39]), (grown[0], wanted[1][40])):
        # int8 activations and 4-bit output rows against f32
        assert np.corrcoef(got, row)[0, 1] > 0.98
        assert np.abs(got - row).max() < 0.35 * np.abs(row).max()


@pytest.mark.parametrize("pieces", [(3, 7, 1, 9, 40, 2), (1,) * 62, (62,)])
def test_how_the_text_arrived_changes_no_bit(target, head, pieces):
    hidden = features(target, head.config.taps, 63)
    fresh = head.layer.open()
    wanted = head.layer.begin(fresh, hidden, TEXT[1:63])
    session, at = head.layer.open(), 0
    for count in pieces:
        got = head.layer.begin(session, hidden[at : at + count], TEXT[at + 1 : at + count + 1])
        head.layer.grow(session, [-1, -1], [5, 6])  # a draft between leaves no trace
        head.layer.grow(session, [1], [7])
        at += count
    assert np.array_equal(got, wanted)
    again = head.layer.begin(session, hidden[:0], ())
    assert np.array_equal(again, wanted)


def test_a_path_of_a_tree_is_a_chain(target, head):
    hidden = features(target, head.config.taps, 30)

    def grown(*levels):
        session = head.layer.open()
        head.layer.begin(session, hidden, TEXT[1:30])
        return [head.layer.grow(session, parents, tokens) for parents, tokens in levels]

    chain = grown(([-1], [5]), ([0], [9]), ([1], [4]))
    tree = grown(([-1, -1, -1], [3, 5, 8]), ([1, 0, 1], [9, 9, 7]), ([4, 3], [4, 4]))
    for got, row in zip(chain, (tree[0][1], tree[1][0], tree[2][1]), strict=True):
        assert np.array_equal(got[0], row)


def test_mask_rows_follow_the_last_token_in_one_pass(target, head):
    hidden = features(target, head.config.taps, 20)
    session = head.layer.open()
    block = head.layer.begin(session, hidden, TEXT[1:20], ahead=3)
    assert block.shape == (4, 64)
    assert np.array_equal(block[:1], head.layer.begin(session, hidden[:0], ()))
    assert np.array_equal(block, head.layer.begin(session, hidden[:0], (), ahead=3))


def test_the_tree_holds_the_most_probable_paths(target, head):
    hidden = features(target, head.config.taps, 25)

    def law(path):
        session = head.layer.open()
        row = head.layer.begin(session, hidden, TEXT[1:25])
        for at, token in enumerate(path):
            row = head.layer.grow(session, [at - 1], [token])
        return [(int(head.draft_ids[place]), p) for place, p in _native.top_tokens(row[0], 3)]

    everything = {(): 1.0}
    for depth in range(3):
        for path in [path for path in everything if len(path) == depth]:
            everything |= {(*path, token): everything[path] * p for token, p in law(path)}
    del everything[()]
    wanted = sorted(everything.values(), reverse=True)[:9]
    session = head.layer.open()
    tokens, parents, probabilities = head.layer.draft(session, hidden, TEXT[1:25], 3, 3, 9, 0.0, (0.0,) * 9)
    assert sorted(probabilities, reverse=True) == pytest.approx(wanted, rel=1e-5)
    paths = []
    for token, parent in zip(tokens, parents, strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    assert probabilities == pytest.approx([everything[path] for path in paths], rel=1e-5)


def test_the_largest_logits_are_found_with_their_probabilities():
    rng = np.random.default_rng(0)
    for columns in (1, 5, 16, 17, 64, 1000):
        row = rng.normal(0, 3, columns).astype(np.float32)
        row[columns // 2] = row.max()  # a tie goes to the first place
        count = min(4, columns)
        found = _native.top_tokens(row, count)
        assert [place for place, _ in found] == np.argsort(-row, kind="stable")[:count].tolist()
        probs = np.exp(row - row.max(), dtype=np.float64)
        probs /= probs.sum()
        assert [p for _, p in found] == pytest.approx([probs[place] for place, _ in found], rel=5e-4)


def test_wrong_calls_are_refused(target, head):
    hidden = features(target, head.config.taps, 5)
    session = head.layer.open()
    with pytest.raises(ValueError, match="after at least one committed token"):
        head.layer.begin(session, hidden[:0], ())
    with pytest.raises(ValueError, match=r"hidden must be \[tokens, 2, 64\]"):
        head.layer.begin(session, hidden, TEXT[:3])
    with pytest.raises(ValueError, match="grows after begin"):
        head.layer.grow(session, [-1], [1])
    head.layer.begin(session, hidden, TEXT[1:5])
    with pytest.raises(ValueError, match="parent must be among"):
        head.layer.grow(session, [0], [1])
    with pytest.raises(ValueError, match="token ids must be in"):
        head.layer.grow(session, [-1], [320])
    with pytest.raises(ValueError, match="block of 4"):
        head.layer.begin(session, hidden[:0], (), ahead=4)
    with pytest.raises(ValueError, match="has 320 rows, got token 320"):
        target.model.output_rows([320])
    with pytest.raises(ValueError, match="top must be in"):
        _native.top_tokens(np.zeros(3, np.float32), 4)
    session.close()
    with pytest.raises(ValueError, match="closed"):
        head.layer.begin(session, hidden[:0], ())


def test_a_text_longer_than_a_slice_is_taken_in(target, head):
    hidden = features(target, head.config.taps, 200)
    session = head.layer.open()
    whole = head.layer.begin(session, hidden, TEXT[1:200])
    assert session.length == 198
    parts = head.layer.open()
    head.layer.begin(parts, hidden[:150], TEXT[1:151])
    assert np.array_equal(head.layer.begin(parts, hidden[150:], TEXT[151:200]), whole)
