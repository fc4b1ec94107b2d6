"""What the command line of `outpace plan` says, as shapes, devices and numbers."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from outpace.errors import UsageError

if TYPE_CHECKING:
    from outpace.theory.roofline import Device, Precision
    from outpace.theory.shape import ModelShape


LARGEST_CONFIG = 4 << 20
"""Bytes of a config.json that are read at most; real ones have a few thousand."""


def shape_named(name: str) -> ModelShape:
    """Returns the shape of a preset, of a config.json, of a folder that holds one, or of a model on the hub."""
    from outpace.models.hub import HUB_ID
    from outpace.theory.shape import from_config, preset

    path = Path(name)
    if path.is_dir():
        path = path / "config.json"
    repository = HUB_ID.fullmatch(name)
    if path.suffix == ".json":
        text = _local(path)
    elif repository and not path.exists():
        text = _from_hub(repository["repository"])
    else:
        return preset(name)
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the config of {name} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise UsageError(f"the config of {name} must hold an object of fields, got {type(config).__name__}")
    return from_config(config, name)


def _local(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST_CONFIG + 1)
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}: give a config.json, its folder, a hub id or a preset") from None
    _check_length(len(text), str(path))
    return text


def _from_hub(repository: str) -> bytes:
    from outpace.models.hub import download

    sink = BytesIO()
    download(repository, "config.json", 0, sink, lambda done, _: _check_length(done, repository))
    return sink.getvalue()


def _check_length(size: int, where: str) -> None:
    if size > LARGEST_CONFIG:
        raise UsageError(f"the config of {where} must have at most {LARGEST_CONFIG:,} bytes, this one is longer")


def device_named(text: str, precision: Precision) -> Device:
    """Returns a known device, or one made of memory=GB,bandwidth=GB/s,rate=TFLOP/s with an optional link=GB/s."""
    from outpace.theory import checks
    from outpace.theory.roofline import Device, device

    if "=" not in text:
        return device(text)
    numbers = _pairs("--device", text)
    allowed, needed = {"memory", "bandwidth", "rate", "link"}, {"memory", "bandwidth", "rate"}
    if not needed <= numbers.keys() <= allowed:
        raise UsageError(
            f"--device by numbers is memory=GB,bandwidth=GB/s,rate=TFLOP/s and perhaps link=GB/s, got {text!r}"
        )
    for name, unit in (("memory", "GB"), ("bandwidth", "GB/s"), ("rate", "TFLOP/s")):
        checks.positive(f"{name} of --device", numbers[name], unit)
    return Device(
        name="your device",
        memory_bytes=numbers["memory"] * 1e9,
        bytes_per_s=numbers["bandwidth"] * 1e9,
        flop_per_s={precision.arithmetic: numbers["rate"] * 1e12},
        link_bytes_per_s=numbers.get("link", 0.0) * 1e9,
        source="given",
        date="today",
    )


def acceptances(text: str | None) -> dict[str, float]:
    """Returns the rates by kind of drafter: of draft models where a number stands alone, else of the kinds named."""
    if text is None:
        return {}
    if "=" not in text:
        return {"draft": number("--acceptance", text)}
    return _pairs("--acceptance", text)


def concurrencies(text: str) -> tuple[int, ...]:
    """Returns the numbers of requests between the commas."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--concurrency must be whole numbers between commas, as 1,8,64, got {text!r}") from None


def number(option: str, text: str) -> float:
    """Returns the number. Raises UsageError for what is none."""
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{option} must be a number, got {text!r}") from None


def _pairs(option: str, text: str) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals:
            raise UsageError(f"{option} must be name=number between commas, got {text!r}")
        name = name.strip()
        if name in numbers:
            raise UsageError(f"{option} names {name} twice: leave one of them out")
        numbers[name] = number(f"{name} of {option}", value)
    return numbers
