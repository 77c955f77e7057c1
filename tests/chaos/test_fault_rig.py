"""Every fault is one: who writes to the store meanwhile is refused or not answered; afterwards all is well.

SPDX-License-Identifier: Apache-2.0
"""
import pytest
import redis
from faults import FAULTS, SLOW_S, Site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with Site(tmp_path_factory.mktemp("site")) as site:
        yield site


def can_write(site, patience_s):
    try:
        with redis.Redis(port=site.proxy.port, socket_timeout=patience_s) as client:
            return client.set("a", "1")
    except redis.exceptions.RedisError:
        return False


@pytest.mark.parametrize("name", FAULTS)
def test_while_the_store_is(name, site):
    assert can_write(site, 10)
    with FAULTS[name](site):
        assert not can_write(site, SLOW_S)
    assert can_write(site, 10)
