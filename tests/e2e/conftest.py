"""The rigs of tests/conformance are ours, too; and a Redis for who asks for one.

SPDX-License-Identifier: Apache-2.0
"""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "conformance"))

from redis_rig import Server  # noqa: E402  (whose own rigs are there)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Shared by the tests of a file."""
    with Server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def own_store(tmp_path):
    """For a test that kills it, fills it, or reads all that is in it."""
    with Server(tmp_path / "redis") as server:
        yield server
