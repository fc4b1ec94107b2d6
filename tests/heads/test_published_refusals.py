"""Every refusal of a published head, word for word: its config, its tensors, its file, or the target it is for."""

from __future__ import annotations

import copy
import math

import pytest

pytest.importorskip("transformers", reason="needs the extra 'torch'")

import torch
from published_heads import DRAFT_V, FFN, LAYER, PUBLISHED, H, eight_layers, write
from refusals import refused

from fakes import TableTarget
from outpace.errors import BadModelFile, Unsupported, UsageError, VocabularyMismatch
from outpace.heads import published_layers
from outpace.heads.published import published_head
from outpace.heads.published_file import read_published
from outpace.registry import DRAFTERS
from tiny_torch import V

EAGLE_1, EAGLE_3, MEDUSA = "eagle by its authors", "eagle-3 by its authors", "medusa by its authors"
NOT_EAGLE = "a head of kind 'mlp'; eagle, eagle3 and medusa run here"
ROPE = "must be one that transformers has for a Llama, got"


@pytest.fixture(scope="module")
def target():
    return eight_layers()


@pytest.mark.parametrize(
    ("name", "change", "error", "message"),
    [
        ("eagle of speculators", {"speculators_model_type": "mlp"}, Unsupported, NOT_EAGLE),
        (
            "eagle of speculators",
            {"layernorms": True},
            Unsupported,
            "EAGLE with further norms (layernorms: true) does not run here",
        ),
        (
            "eagle of speculators",
            {"transformer_layer_config": [LAYER]},
            BadModelFile,
            f"transformer_layer_config must be an object, got {[LAYER]!r:.60}",
        ),
        (
            "eagle-3 of speculators",
            {"eagle_aux_hidden_state_layer_ids": [0]},
            BadModelFile,
            "eagle_aux_hidden_state_layer_ids must be layers from 1, got [0]",
        ),
        (EAGLE_1, {"hidden_size": -1}, BadModelFile, "hidden_size must be in [1, 1048576], got -1"),
        (EAGLE_1, {"hidden_size": None}, BadModelFile, "hidden_size must be in [1, 1048576], got nothing"),
        (EAGLE_1, {"head_dim": "8"}, BadModelFile, "head_dim must be in [1, 1048576], got '8'"),
        (EAGLE_1, {"head_dim": math.inf}, BadModelFile, "head_dim must be in [1, 1048576], got inf"),
        (EAGLE_1, {"rms_norm_eps": "x"}, BadModelFile, "rms_norm_eps must be in [1e-30, 1e11], got 'x'"),
        (EAGLE_1, {"rope_theta": []}, BadModelFile, "rope_theta must be in [1e-30, 1e11], got []"),
        (
            EAGLE_1,
            {"max_position_embeddings": True},
            BadModelFile,
            "max_position_embeddings must be in [1, 67108864], got True",
        ),
        (EAGLE_1, {"hidden_act": "gelu"}, Unsupported, "hidden_act must be 'silu', got 'gelu'"),
        (EAGLE_1, {"rope_scaling": 7}, BadModelFile, f"rope_scaling {ROPE} 7"),
        (
            EAGLE_1,
            {"rope_scaling": {"rope_type": "x"}},
            BadModelFile,
            f"rope_scaling {ROPE} {{'rope_type': 'x'}}",
        ),
        (
            EAGLE_1,
            {"rope_parameters": {"rope_theta": "x"}},
            BadModelFile,
            f"rope_parameters {ROPE} {{'rope_theta': 'x'}}",
        ),
        (
            EAGLE_1,
            {"num_key_value_heads": 3},
            BadModelFile,
            "4 heads cannot share 3 of keys and values",
        ),
        (
            EAGLE_1,
            {"intermediate_size": 128},
            BadModelFile,
            "layer.mlp.gate_proj.weight must be [128, 32], got [64, 32] of float32",
        ),
        (MEDUSA, {"medusa_num_heads": 4}, BadModelFile, "3.1.weight must have 32 columns, it is missing"),
        (
            MEDUSA,
            {"medusa_num_heads": 10**9},
            BadModelFile,
            "medusa_num_heads must be in [1, 64], got 1000000000",
        ),
        (
            MEDUSA,
            {"medusa_num_layers": []},
            BadModelFile,
            "medusa_num_layers must be in [1, 64], got []",
        ),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_a_config_that_does_not_fit(target, tmp_path, name, change, error, message):
    described, file, tensors = PUBLISHED[name]
    folder = write(tmp_path / "h", described | change, file, tensors)
    with refused(error, f"{folder}: {message}"):
        published_head(folder, target)


@pytest.mark.parametrize(
    ("name", "tensor", "value", "message"),
    [
        (EAGLE_1, "fc.weight", None, "fc.weight must have 32 rows, it is missing"),
        (EAGLE_1, "fc.weight", torch.zeros(H, dtype=torch.int32), "fc.weight must have 32 rows, got [32] of int32"),
        (EAGLE_1, "fc.bias", torch.zeros(3), "'fc.bias' must be [32], got [3] of float32"),
        (
            EAGLE_1,
            "embed_tokens.weight",
            torch.zeros(V),
            "embed_tokens.weight must have 32 columns, got [97] of float32",
        ),
        (
            EAGLE_1,
            "layers.0.mlp.up_proj.weight",
            torch.zeros(FFN, H, dtype=torch.int8),
            "layer.mlp.up_proj.weight must be [64, 32], got [64, 32] of int8",
        ),
        (EAGLE_3, "norm.weight", None, "norm.weight must be [32], it is missing"),
        (EAGLE_3, "lm_head.weight", torch.zeros(()), "lm_head.weight must have 32 columns, got [] of float32"),
        (EAGLE_3, "d2t", torch.zeros(DRAFT_V), "d2t must have 40 whole numbers, got [40] of float32"),
        (EAGLE_3, "d2t", torch.zeros(3, dtype=torch.int64), "d2t must have 40 whole numbers, got [3] of int64"),
        (MEDUSA, "0.0.linear.weight", None, "0.0.linear.weight must be a matrix, it is missing"),
        (MEDUSA, "0.0.linear.bias", torch.zeros(()), "'0.0.linear.bias' must be [32], got [] of float32"),
        (MEDUSA, "2.1.weight", torch.zeros(V, 3), "2.1.weight must have 32 columns, got [97, 3] of float32"),
        (MEDUSA, "1.0.linear.weight", torch.zeros(1), "1.0.linear.weight must be [32, 32], got [1] of float32"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_tensors_that_do_not_fit(target, tmp_path, name, tensor, value, message):
    described, file, tensors = PUBLISHED[name]
    kept = {one: found for one, found in tensors.items() if one != tensor}
    folder = write(tmp_path / "h", described, file, kept if value is None else kept | {tensor: value})
    with refused(BadModelFile, f"{folder}: {message}"):
        published_head(folder, target)


class Trap:
    def __reduce__(self):
        return (print, ("run",))


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ({"0": Trap()}, "holds more than tensors, or was cut short; safetensors would work"),
        (b"\0" * 64, "holds more than tensors, or was cut short; safetensors would work"),
        (b"", "cannot be read as tensors: EOFError"),
        (b"\x80\x02.", "cannot be read as tensors: pop from empty list"),
        ([1], "must hold tensors by name, got list"),
        ({1: torch.zeros(1)}, "must hold tensors by name, got dict"),
        ({"0": 5}, "'0' must be a tensor of real numbers, got int"),
        (
            {"0": torch.zeros(1, dtype=torch.complex64)},
            "'0' must be a tensor of real numbers, got numbers of torch.complex64",
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_files_that_hold_more_than_tensors_are_not_run(target, tmp_path, capsys, held, message):
    folder = write(tmp_path / "h", PUBLISHED[MEDUSA][0], "medusa_lm_head.pt", {} if isinstance(held, bytes) else held)
    if isinstance(held, bytes):
        (folder / "medusa_lm_head.pt").write_bytes(held)
    with refused(BadModelFile, f"{folder / 'medusa_lm_head.pt'}: {message}"):
        published_head(folder, target)
    assert capsys.readouterr().out == ""


def test_a_folder_without_tensors(target, tmp_path):
    folder = write(tmp_path / "h", *PUBLISHED[MEDUSA])
    (folder / "medusa_lm_head.pt").unlink()
    names = "model.safetensors, medusa_lm_head.safetensors, pytorch_model.bin, medusa_lm_head.pt"
    with refused(BadModelFile, f"{folder}: holds none of {names}"):
        published_head(folder, target)


@pytest.mark.parametrize(
    ("name", "change", "line"),
    [
        (
            "eagle-3 of speculators",
            {"eagle_aux_hidden_state_layer_ids": [3, 99]},
            "h reads layers (2, 98), llama has 8",
        ),
        (
            "eagle-3 of speculators",
            {"eagle_aux_hidden_state_layer_ids": [3, 4]},
            "h was made for a target with hidden states of 48, llama has 32",
        ),
    ],
)
def test_layers_of_another_target(target, tmp_path, name, change, line):
    described, file, tensors = PUBLISHED[name]
    folder = write(tmp_path / "h", described | change, file, tensors)
    with refused(VocabularyMismatch, line):
        published_head(folder, target)


def test_a_vocabulary_of_another_target(target, tmp_path):
    described, file, tensors = PUBLISHED[EAGLE_1]
    folder = write(tmp_path / "h", described, file, tensors | {"embed_tokens.weight": torch.zeros(9, H)})
    with refused(VocabularyMismatch, "h was made for a target with a vocabulary of 9, llama has 97"):
        published_head(folder, target)
    described, file, tensors = PUBLISHED[EAGLE_3]
    folder = write(tmp_path / "h", described, file, tensors | {"d2t": torch.arange(DRAFT_V) * 9})
    with refused(VocabularyMismatch, "h proposes tokens 0 to 390, llama has 97"):
        published_head(folder, target)


def test_other_targets_are_refused(target, tmp_path):
    folder = write(tmp_path / "h", *PUBLISHED[MEDUSA])
    table = TableTarget()
    line = (
        f"published heads run beside a causal model of engine 'torch', {table.name} is none: "
        "use --engine torch, or a head of `outpace train`"
    )
    with refused(UsageError, line):
        published_layers.run_on(read_published(folder), table)
    wide = copy.copy(target)
    wide.hidden_size = 64
    with refused(VocabularyMismatch, "h was made for a target with hidden states of 32, llama has 64"):
        published_head(folder, wide)
    line = "drafter 'published' needs the folder of an EAGLE or Medusa head: name it with draft=... (--draft DIR)"
    with refused(UsageError, line):
        DRAFTERS.get("published")(target, None)
