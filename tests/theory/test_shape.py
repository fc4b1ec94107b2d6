from __future__ import annotations

import tomllib
from contextlib import suppress
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.errors import UsageError
from outpace.theory import shape

ENTRIES: dict[str, Any] = tomllib.loads(files("outpace.theory").joinpath("presets.toml").read_text("utf-8"))

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "vocab_size": 128256,
}


@pytest.mark.parametrize("name", list(ENTRIES))
def test_a_preset_adds_up_to_what_its_publisher_prints(name: str) -> None:
    # Printed figures have two to four digits; T5-large's 800M rounds 783M.
    tolerance = 0.025 if name == "t5-large" else 0.0125
    assert shape.preset(name).parameters == pytest.approx(ENTRIES[name]["published_parameters"], rel=tolerance)


def test_active_parameters_of_a_mixture_are_those_of_its_name() -> None:
    assert shape.preset("qwen3-30b-a3b").active_parameters == pytest.approx(3.0e9, rel=0.03)
    assert shape.preset("qwen3-235b-a22b").active_parameters == pytest.approx(22e9, rel=0.03)


def test_a_config_gives_the_preset() -> None:
    assert shape.from_config(LLAMA, "llama-3.1-8b") == shape.preset("llama-3.1-8b")


def test_a_mixture_config_gives_the_preset() -> None:
    config = LLAMA | {
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "head_dim": 128,
        "num_hidden_layers": 48,
        "num_key_value_heads": 4,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "vocab_size": 151936,
    }
    assert shape.from_config(config).parameters == shape.preset("qwen3-30b-a3b").parameters


def test_a_t5_config_gives_the_preset() -> None:
    config = {
        "d_ff": 10240,
        "d_kv": 64,
        "d_model": 4096,
        "feed_forward_proj": "gated-gelu",
        "num_decoder_layers": 24,
        "num_heads": 64,
        "num_layers": 24,
        "tie_word_embeddings": False,
        "vocab_size": 32128,
    }
    assert shape.from_config(config, "t5-xxl") == shape.preset("t5-xxl")


@pytest.mark.parametrize(
    ("fields", "sliding"),
    [
        ({"sliding_window": 1024, "sliding_window_pattern": 6}, 27),
        ({"sliding_window": 4096, "model_type": "gemma2"}, 16),
        ({"sliding_window": 4096}, 32),
        ({"sliding_window": 512, "layer_types": ["sliding_attention"] * 5 + ["full_attention"]}, 5),
        ({"sliding_window": 4096, "use_sliding_window": False}, 0),
        ({"sliding_window": None}, 0),
        ({"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 28}, 4),
    ],
)
def test_sliding_layers_are_counted(fields: dict[str, Any], sliding: int) -> None:
    assert shape.from_config(LLAMA | fields).sliding_layers == sliding


def test_a_multimodal_config_is_read_for_its_text() -> None:
    assert shape.from_config({"text_config": LLAMA, "vision_config": {}}).layers == 32


def test_a_sliding_layer_keeps_its_window_at_most() -> None:
    gemma = shape.preset("gemma-3-27b")
    full = 10 * 2 * 16 * 128
    assert gemma.cached_values(9000) - gemma.cached_values(8000) == full * 1000
    assert gemma.cached_values(1024) == 62 * 2 * 16 * 128 * 1024


def test_rows_read_more_experts_until_all_are_read() -> None:
    mixture = shape.preset("mixtral-8x7b")
    assert mixture.read_parameters(1) == pytest.approx(mixture.active_parameters)
    assert mixture.read_parameters(2) > 1.4 * mixture.active_parameters
    resident = mixture.parameters - mixture.vocab_size * mixture.hidden_size
    assert mixture.read_parameters(1000) == pytest.approx(resident)


def test_a_dense_model_reads_the_same_for_any_rows() -> None:
    dense = shape.preset("smollm2-135m")
    assert dense.read_parameters(1) == dense.read_parameters(32) == dense.parameters


def test_an_encoder_is_held_but_not_read_while_decoding() -> None:
    t5 = shape.preset("t5-xxl")
    assert t5.read_parameters(1) < 0.52 * t5.parameters
    assert t5.cached_values(10, source=100) == 24 * 2 * 64 * 64 * 110


@pytest.mark.parametrize("missing", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"])
def test_a_missing_field_is_named(missing: str) -> None:
    config = {key: value for key, value in LLAMA.items() if key != missing}
    with pytest.raises(UsageError, match=f"my.json lacks '{missing}'"):
        shape.from_config(config, "my.json")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden_size": "4096"}, "'hidden_size' in config.json must be a whole number, got '4096'"),
        ({"num_hidden_layers": 0}, "layers of model 'config.json' must be a whole number of units, 1 or more, got 0"),
        ({"num_attention_heads": 0}, "heads of model 'config.json' must be .* got 0"),
        ({"num_key_value_heads": 64}, "kv_heads .* must be at most heads = 32, got 64"),
        ({"kv_lora_rank": 512}, "latent attention"),
        ({"layer_types": ["linear_attention", "full_attention"]}, "layers of kind linear_attention"),
        ({"num_local_experts": 8}, "lacks 'num_experts_per_tok'"),
        ({"num_local_experts": 8, "num_experts_per_tok": 9}, r"experts_per_token in \[1, 8\]"),
        ({"text_config": 3}, "must hold an object of fields, got int"),
    ],
)
def test_a_bad_config_is_one_sentence(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        shape.from_config(LLAMA | fields)


JUNK = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.floats(), st.text(max_size=3), st.lists(st.none()))
FIELDS = [
    *LLAMA,
    "head_dim",
    "num_experts",
    "num_experts_per_tok",
    "sliding_window",
    "layer_types",
    "text_config",
    "d_kv",
]


@given(st.dictionaries(st.sampled_from(FIELDS), JUNK))
def test_any_junk_in_a_config_is_a_shape_or_a_usage_error(junk: dict[str, Any]) -> None:
    with suppress(UsageError):
        assert shape.from_config(LLAMA | junk).parameters > 0


def test_an_unknown_preset_names_the_closest() -> None:
    with pytest.raises(UsageError, match=r"no model preset 'llama-3-8b': did you mean .*llama-3\.1-8b"):
        shape.preset("llama-3-8b")


def test_preset_names_ignore_case() -> None:
    assert shape.preset("Llama-3.1-8B").layers == 32
