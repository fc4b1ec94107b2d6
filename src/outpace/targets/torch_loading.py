"""From a folder of `transformers` to a model on its device, with everything that can be refused refused first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoModelForSpeechSeq2Seq

from outpace.errors import ModelNotFound, TooLarge, Unsupported, UsageError
from outpace.native.machine import available_memory, checked_threads
from outpace.native.textfile import one_line
from outpace.targets.torch_causal import TorchTarget
from outpace.targets.torch_models import chosen_context, explained
from outpace.targets.torch_packing import pack
from outpace.targets.torch_seq2seq import TorchSeq2Seq

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_torch(
    folder: Path,
    *,
    threads: int | None = None,
    context: int | None = None,
    clip: bool = False,
    device: str | None = None,
    dtype: str | None = None,
    trust: bool = False,
) -> TorchTarget:
    """Returns the model of a folder as a target: a causal one, or an encoder-decoder.

    threads: of every pass on the CPU, of the whole process. clip: a context beyond the model's own is cut to it.
    Raises ModelNotFound, Unsupported, TooLarge (before weights are read, with the figures) or UsageError.
    """
    if threads is not None:
        torch.set_num_threads(checked_threads(threads))
    place = chosen_device(device)
    config = read_config(folder, trust)
    kind = chosen_dtype(dtype, config)
    check_memory(folder, place, kind, chosen_dtype(None, config))
    model = _read(_class_of(config), folder, config, kind, place, trust)
    if place.type == "cpu":
        pack(model)
    if clip and context is not None:
        context = min(context, chosen_context(config.get_text_config(decoder=True), None))
    if not config.is_encoder_decoder:
        return TorchTarget(model, folder.name, context=context)
    made = TorchSeq2Seq(model, folder.name, context=context)
    made.folder = folder
    return made


def _class_of(config: Any) -> Any:
    if not config.is_encoder_decoder:
        return AutoModelForCausalLM
    return AutoModelForSpeechSeq2Seq if config.model_type == "whisper" else AutoModelForSeq2SeqLM


def chosen_device(device: str | None) -> torch.device:
    """Returns the device; None is a GPU where there is one. Raises UsageError for one that is not here."""
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except RuntimeError:
        raise UsageError(f"device must be cpu, cuda or cuda:N, got {device!r:.40}") from None
    if found.type not in ("cpu", "cuda"):
        raise UsageError(f"device must be cpu, cuda or cuda:N, got {device!r:.40}")
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        here = torch.cuda.device_count()
        raise UsageError(f"device {device!r} is not here, {here} CUDA devices are: use 'cpu' or none")
    return found


def chosen_dtype(dtype: str | None, config: Any) -> torch.dtype:
    """Returns the type of the weights; None is the config's. Raises UsageError for an unknown one."""
    if dtype is None:
        stored = getattr(config.get_text_config(decoder=True), "dtype", None) or getattr(config, "dtype", None)
        named = DTYPES.get(str(stored).removeprefix("torch."))
        return torch.float32 if named is None else named
    if dtype not in DTYPES:
        raise UsageError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r:.40}")
    return DTYPES[dtype]


def read_config(folder: Path, trust: bool) -> Any:
    """Returns the folder's config. Raises ModelNotFound, or Unsupported where transformers refuses it."""
    if not (folder / "config.json").exists():
        raise ModelNotFound(f"{folder} has no config.json: a model of transformers is a folder with one")
    try:
        with quiet():
            return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=trust)
    except (ValueError, KeyError, TypeError, OSError) as error:
        if "trust_remote_code" in str(error):
            raise Unsupported(
                f"{folder}: this model brings its own code, which is not run unless you ask for it: "
                "--trust-remote-code (trust_remote_code=True), after reading it"
            ) from None
        raise Unsupported(
            f"{folder}: transformers {transformers.__version__} refuses it: {one_line(error)}"
        ) from None


def check_memory(folder: Path, device: torch.device, dtype: torch.dtype, stored: torch.dtype) -> None:
    """Raises TooLarge when the weights would not fit on the device; stored: their type in the files."""
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors")) * dtype.itemsize // stored.itemsize
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_memory()
    if free is not None and size > free:
        raise TooLarge(
            f"{folder.name} needs {size / 1e6:,.0f} MB for its weights in {str(dtype).removeprefix('torch.')}, "
            f"{free / 1e6:,.0f} MB are free on {device}; a smaller type or model may fit"
        )


def _read(kind: Any, folder: Path, config: Any, dtype: torch.dtype, device: torch.device, trust: bool) -> Any:
    try:
        with quiet(), explained(folder.name, None):
            model = kind.from_pretrained(
                folder,
                config=config,
                dtype=dtype,
                local_files_only=True,
                use_safetensors=True,  # the other format can run code when it is read
                trust_remote_code=trust,
            )
            quantised = getattr(model, "hf_quantizer", None) is not None
            return (model if quantised else model.to(device)).eval()
    except (ValueError, KeyError, OSError, ImportError) as error:
        raise Unsupported(
            f"{folder}: transformers {transformers.__version__} cannot load it: {one_line(error)}"
        ) from None


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps transformers' progress bars and advice off the terminal; errors still come as exceptions."""
    level, bars = transformers.logging.get_verbosity(), transformers.logging.is_progress_bar_enabled()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(level)
        if bars:
            transformers.logging.enable_progress_bar()
