"""A running server over the embedded model, and clients for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
from thread_server import OnThread, Running

import outpace
from outpace.api import Model
from outpace.serve.scheduler import Limits
from outpace.serve.settings import Settings

NAME = "smollm2-135m"


@pytest.fixture(scope="session")
def embedded(embedded_model: Path) -> Iterator[Model]:
    """The embedded model with a short context."""
    with outpace.load(embedded_model, context=1024) as model:
        yield model


@pytest.fixture(scope="session")
def served(embedded: Model) -> Iterator[Running]:
    """A server over the embedded model."""
    with OnThread(embedded, Settings(names=(NAME,), limits=Limits(slots=8, queue=64, seconds=120))) as running:
        yield running


@pytest.fixture(scope="session")
def solo(embedded_model: Path) -> Iterator[Model]:
    """The same model outside the server, to compare with."""
    with outpace.load(embedded_model, context=1024) as model:
        yield model


@pytest.fixture(scope="module")
def client(served: Running) -> Iterator[Any]:
    """The official client of that server."""
    openai = pytest.importorskip("openai", reason="the OpenAI client is not installed")
    with openai.OpenAI(base_url=served.url + "/v1", api_key="none", max_retries=0) as client:
        yield client
