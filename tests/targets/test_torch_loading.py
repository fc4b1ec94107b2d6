"""What loading a folder of transformers takes and refuses."""

from __future__ import annotations

import builtins
import json

import pytest

import outpace
from outpace.errors import MissingExtra, ModelNotFound, TooLarge, Unsupported, UsageError

transformers = pytest.importorskip("transformers", reason="needs the extra 'torch'")

import torch  # noqa: E402
from refusals import refused  # noqa: E402

from outpace.targets import torch_loading  # noqa: E402
from tiny_torch import causal_model  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("hf") / "llama"
    with torch_loading.quiet():
        causal_model("llama").save_pretrained(path)
    return path


def test_the_type_is_as_stored_or_as_asked(folder):
    assert torch_loading.load_torch(folder, threads=1).model.dtype == torch.float32
    target = torch_loading.load_torch(folder, dtype="bfloat16", device="cpu", context=32)
    assert (target.model.dtype, target.max_length, target.device.type) == (torch.bfloat16, 32, "cpu")


def test_what_is_not_here_is_refused_by_name(folder, tmp_path):
    with refused(UsageError, "dtype must be one of float32, bfloat16, float16, got 'int3'"):
        torch_loading.load_torch(folder, dtype="int3")
    with refused(UsageError, "device must be cpu, cuda or cuda:N, got 'gpu'"):
        torch_loading.load_torch(folder, device="gpu")
    with refused(UsageError, "device must be cpu, cuda or cuda:N, got 'meta'"):
        torch_loading.load_torch(folder, device="meta")
    with refused(UsageError, "threads must be in [1, 1024], got 0"):
        torch_loading.load_torch(folder, threads=0)
    with refused(ModelNotFound, f"{tmp_path} has no config.json: a model of transformers is a folder with one"):
        torch_loading.load_torch(tmp_path)
    if not torch.cuda.is_available():
        with refused(UsageError, "device 'cuda:3' is not here, 0 CUDA devices are: use 'cpu' or none"):
            torch_loading.load_torch(folder, device="cuda:3")


def test_an_architecture_that_transformers_does_not_know_is_refused_with_its_reason(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "unheard"}')
    with pytest.raises(Unsupported) as refusal:
        torch_loading.load_torch(tmp_path)
    message = str(refusal.value)
    assert message.startswith(f"{tmp_path}: transformers {transformers.__version__} refuses it: ")
    assert "`unheard`" in message  # the rest is transformers' own
    assert "\n" not in message


def test_a_file_is_told_how_to_become_a_folder(tiny_llama):
    with refused(
        UsageError,
        "engine 'torch' needs a folder with config.json and safetensors, got llama.gguf; "
        "outpace models export MODEL DIR makes one",
    ):
        outpace.load(tiny_llama, engine="torch")


def test_settings_of_torch_are_refused_on_another_engine(tiny_llama):
    with refused(UsageError, "dtype is for engine 'torch', got engine 'native': leave one of them out"):
        outpace.load(tiny_llama, dtype="float32")


def test_without_pytorch_the_command_that_installs_it_is_named(folder, monkeypatch):
    really = builtins.__import__

    def missing(name, *rest):
        if name == "outpace.targets" and "torch_loading" in (rest[2] or ()):  # what `import torch` would raise
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return really(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with refused(MissingExtra, "engine 'torch' needs the extra 'torch': pip install 'outpace[torch]'"):
        outpace.load(folder, engine="torch")


def test_code_that_comes_with_a_model_is_not_run_unasked(folder, tmp_path):
    mine = tmp_path / "own"
    mine.mkdir()
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "code.MyConfig"}}
    (mine / "config.json").write_text(json.dumps(config))
    (mine / "code.py").write_text("raise SystemExit('this ran')")
    with refused(
        Unsupported,
        f"{mine}: this model brings its own code, which is not run unless you ask for it: "
        "--trust-remote-code (trust_remote_code=True), after reading it",
    ):
        torch_loading.load_torch(mine)


def test_a_model_that_does_not_fit_is_refused_before_it_is_read(folder, monkeypatch):
    monkeypatch.setattr(torch_loading, "available_memory", lambda: 1000)
    with refused(
        TooLarge, "llama needs 0 MB for its weights in float32, 0 MB are free on cpu; a smaller type or model may fit"
    ):
        torch_loading.load_torch(folder)


def test_a_broken_folder_is_one_sentence(folder, tmp_path):
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(Unsupported, match=r"cannot load it: .*safetensors"):
        torch_loading.load_torch(tmp_path)
