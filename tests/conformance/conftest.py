"""SPDX-License-Identifier: Apache-2.0"""
import pytest
from node_client import NodeClient
from rls_wire import Client


@pytest.fixture(scope="module", params=[Client, NodeClient], ids=["grpcio", "grpc-js"])
def connect(request):
    """Each test that asks for it runs with every client: `with connect(address) as client`."""
    return request.param
