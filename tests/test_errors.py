"""Errors reach a terminal as one line, whatever the names and values in them hold."""

from __future__ import annotations

import pytest

from outpace.errors import BadModelFile, MissingExtra, ModelNotFound, OutpaceError, UsageError


@pytest.mark.parametrize("kind", [OutpaceError, UsageError, BadModelFile, ModelNotFound])
def test_every_error_is_one_printable_line(kind: type[OutpaceError]) -> None:
    line = str(kind("a\nb \x1b[31m\ud800\u2028 é \u4e2d 🙂"))
    assert line == "a\\nb \\x1b[31m\\ud800\\u2028 é \u4e2d 🙂"
    assert str(kind(line)) == line


def test_a_missing_extra_holds_the_command_that_installs_it() -> None:
    assert (
        str(MissingExtra("engine 'torch'", "torch"))
        == "engine 'torch' needs the extra 'torch': pip install 'outpace[torch]'"
    )
