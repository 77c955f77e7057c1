"""Rules as envoyproxy/ratelimit reads them, given to a running service: files of one domain, files that are wrong, and
what /rlconfig makes of them.  Numbers in comments as in test_rls_cases.

SPDX-License-Identifier: Apache-2.0
"""
import http.client

import pytest

from rls_wire import DAY, OK, Client
from service import Service, wait_until

GOOD = "domain: t\ndescriptors:\n- {key: k, rate_limit: {unit: day, requests_per_unit: 5}}\n"
OTHER = "domain: t\ndescriptors:\n- {key: other, rate_limit: {unit: day, requests_per_unit: 7}}\n"


def folder(tmp_path, **files):
    (tmp_path / "config").mkdir()
    for name, text in files.items():
        (tmp_path / "config" / f"{name}.yaml").write_text(text)
    return ["--rules", tmp_path / "config"]


def limit_of(client, key):
    return client.ask("t", [(key, "x")]).statuses[0].limit


# ---- files ----

def test_files_of_one_domain_are_merged_where_told_so(tmp_path):                        # 59
    flags = folder(tmp_path, a=GOOD, b=OTHER)
    with Service(tmp_path, None, flags, env={"MERGE_DOMAIN_CONFIG": "true"}) as weir, \
            Client(weir.address("grpc")) as client:
        assert (limit_of(client, "k"), limit_of(client, "other")) == ((5, DAY), (7, DAY))


@pytest.mark.parametrize("files, env, why", [
    ({"a": GOOD, "b": OTHER}, {}, "duplicate domain 't' in config file"),
    ({"a": GOOD, "b": GOOD}, {"MERGE_DOMAIN_CONFIG": "true"}, "duplicate descriptor composite key 't.k'"),
])
def test_files_of_one_domain_may_not_contradict(tmp_path, files, env, why):             # 59
    with pytest.raises(AssertionError) as error:
        Service(tmp_path, None, folder(tmp_path, **files), env=env)
    assert why in str(error.value)


def test_a_file_comes_and_goes(tmp_path):                                               # 57
    flags = folder(tmp_path, a=GOOD)
    with Service(tmp_path, None, flags) as weir, Client(weir.address("grpc")) as client:
        more = tmp_path / "config" / "more.yaml"
        assert client.ask("reload", [("k", "x")]).statuses[0].limit is None
        more.write_text(GOOD.replace("domain: t", "domain: reload"))
        wait_until(lambda: client.ask("reload", [("k", "x")]).statuses[0].limit == (5, DAY), "the new file")
        more.unlink()
        wait_until(lambda: client.ask("reload", [("k", "x")]).statuses[0].limit is None, "its end")
        assert limit_of(client, "k") == (5, DAY)


# ---- what is wrong ----

def rule(text):
    return f"domain: t\ndescriptors:\n- {{{text}}}\n"


WRONG = [                                                                               # 60
    ("", "config file cannot have empty domain"),
    ("domain: ''\n", "config file cannot have empty domain"),
    (rule("value: v"), "descriptor has empty key"),
    (rule("key: k, value: v") + "- {key: k, value: v}\n", "duplicate descriptor composite key 't.k_v'"),
    (rule("key: k, rate_limit: {unit: fortnight, requests_per_unit: 1}"), "invalid rate limit unit 'fortnight'"),
    (rule("key: k, rate_limit: {requests_per_unit: 1}"), "invalid rate limit unit ''"),
    (rule("key: k, rate_limit: {unit: day, unlimited: true}"), "should not specify rate limit unit when unlimited"),
    (rule("key: k, rate_limit: {unit: day, replaces: [{name: ''}]}"), "should not have an empty replaces entry"),
    (rule("key: k, rate_limit: {unit: day, name: n, replaces: [{name: n}]}"),
     "replaces should not contain name of same descriptor"),
    (rule("key: k, value: v, share_threshold: true, rate_limit: {unit: day}"),
     "share_threshold can only be used with wildcard values (containing '*'), but found key 't.k_v'"),
    (rule("key: k, 5: v"), "config error, key is not of type string: 5"),
    (rule("key: k, ratelimit: {unit: day}"), "config error, unknown key 'ratelimit'"),
    ("domain: t\ndescriptors:\n- k\n", "config error, yaml file contains list of type other than map: k"),
    (rule("key: k, rate_limit: {unit: day, requests_per_unit: 1.5}"), "error checking config: 'requests_per_unit'"),
    (rule("key: k, value: 1.5"), "error checking config: 'value' must be a text"),
    (rule("key: k, metadata: {a: .inf}"), "error parsing metadata: "),
    (rule("key: k, rate_limit: {unit: day, requests_per_unit: -1}"), "error loading config file: 'requests_per_unit'"),
    (rule("key: k, shadow_mode: 'true'"), "error loading config file: 'shadow_mode'"),
    ("domain: t\ndescriptors:\n- {key: k\n", "error loading config file: not valid YAML"),
]


def test_wrong_rules_change_nothing_and_are_told(tmp_path):                             # 60
    with Service(tmp_path, GOOD) as weir, Client(weir.address("grpc")) as client:
        def errors():
            return [one["text"] for one in weir.events() if one["event"] == "rules" and one["level"] == "error"]
        for text, why in WRONG:
            before = len(errors())
            weir.rules(text)
            wait_until(lambda: any(why in one for one in errors()[before:]), f"{why}; there is {errors()[before:]}")
            assert all("rules.yaml" in one for one in errors()[before:])
            assert client.ask("t", [("k", why)]).overall == OK and limit_of(client, "k") == (5, DAY)
        weir.rules(OTHER)
        wait_until(lambda: limit_of(client, "other") == (7, DAY), "what is right again")


# ---- as loaded ----

def test_rlconfig_names_every_limit(tmp_path):                                          # 63
    rules = """\
domain: foo
descriptors:
  - {key: k1, value: v1, rate_limit: {unit: minute, requests_per_unit: 3}}
  - key: k2
    shadow_mode: true
    rate_limit: {unit: week, requests_per_unit: 4}
    descriptors: [{key: k3, value: a*, quota_mode: true, rate_limit: {unit: second, requests_per_unit: 0}}]
  - {key: k4}
"""
    with Service(tmp_path, rules, listeners=("admin",)) as weir:
        connection = http.client.HTTPConnection("127.0.0.1", weir.port("admin"), timeout=20)
        connection.request("GET", "/rlconfig")
        assert sorted(connection.getresponse().read().decode().splitlines()) == [
            "foo.k1_v1: unit=MINUTE requests_per_unit=3, shadow_mode: false, quota_mode: false",
            "foo.k2.k3_a*: unit=SECOND requests_per_unit=0, shadow_mode: false, quota_mode: true",
            "foo.k2: unit=WEEK requests_per_unit=4, shadow_mode: true, quota_mode: false"]
        connection.close()
