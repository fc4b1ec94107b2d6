"""Engines as the Python face loads them: a target and its text side, from one reading of the file."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from outpace.errors import MissingExtra, OutpaceError, UsageError
from outpace.text import Text
from outpace.tokenizer_json import token_model_from_folder
from outpace.types import Target


def load_native(
    path: Path,
    threads: int | None,
    context: int | None,
    *,
    clip: bool = False,
    pack: str | None = None,
    exit_layer: int | None = None,
) -> tuple[Target, Text]:
    """Returns the model on the C++ engine. Raises OutpaceError where that was not built, ModelError, UsageError.

    clip: a context beyond what the model was made for is cut to that, instead of refused. pack: "q4" or "q8" rounds
    weights that are not quantised. exit_layer: after how many layers the drafter early_exit ends.
    """
    try:
        from outpace.native import loading
    except ImportError as error:
        raise OutpaceError(
            f"the native engine is not there ({error}): it needs a C++ compiler when outpace is installed; "
            "install one and run pip install --force-reinstall --no-deps outpace"
        ) from None
    with closing(loading.open_weights(path)) as file:
        text = Text.from_weights(file)
        if clip and context is not None:
            context = min(context, file.config.context_length)
        target = loading.load_native(file, threads=threads, context=context, pack=pack, exit_layer=exit_layer)
        return target, text


def load_torch(
    path: Path,
    threads: int | None,
    context: int | None,
    *,
    clip: bool = False,
    device: str | None = None,
    dtype: str | None = None,
    trust_remote_code: bool = False,
) -> tuple[Target, Text]:
    """Returns a model of transformers from its folder, on a GPU or the CPU, in the type that is asked for or stored.

    Raises MissingExtra without PyTorch, ModelError, UsageError.
    """
    if not path.is_dir():
        raise UsageError(
            f"engine 'torch' needs a folder with config.json and safetensors, got {path.name}; "
            "outpace models export MODEL DIR makes one"
        )
    try:
        from outpace.hf.answers import AnswerText
        from outpace.targets import torch_loading
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "transformers"):
            raise
        raise MissingExtra("engine 'torch'", "torch") from None
    target = torch_loading.load_torch(
        path, threads=threads, context=context, clip=clip, device=device, dtype=dtype, trust=trust_remote_code
    )
    kind = AnswerText if hasattr(target, "start_ids") else Text
    return target, kind(token_model_from_folder(path), target.eos_ids)
