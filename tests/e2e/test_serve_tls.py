"""TLS with real clients: ALPN, client certificates, and certificates that are exchanged under load.

SPDX-License-Identifier: Apache-2.0
"""
import http.client
import signal
import socket
import ssl
import subprocess

import grpc
import pytest
from load_rig import RULES, Load
from rls_wire import OK, SERVING, Client                        
from service import PATIENCE_S, Service, wait_until

ALL = ("grpc", "http", "resp", "admin")


class Authority:
    """Makes certificates below one that it signed itself."""

    def __init__(self, folder, name="ca"):
        self.folder, self.name = folder, name
        self.make(name, "/CN=authority", "-x509", "-days", "2")

    def make(self, name, subject, *how, alternative=None):
        more = ["-addext", f"subjectAltName={alternative}"] if alternative else []
        subprocess.run(["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                        self.folder / f"{name}.key", "-out", self.folder / f"{name}.pem", "-subj", subject, *more,
                        *how],
                       check=True, capture_output=True)

    def sign(self, name, alternative):
        """A certificate; replaces one of the same name whole, key first."""
        fresh = f"{name}.fresh"
        self.make(fresh, f"/CN={name}", "-x509", "-CA", self.folder / f"{self.name}.pem", "-CAkey",
                  self.folder / f"{self.name}.key", "-days", "2", alternative=alternative)
        for kind in "key", "pem":
            (self.folder / f"{fresh}.{kind}").rename(self.folder / f"{name}.{kind}")
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"

    def pem(self):
        return (self.folder / f"{self.name}.pem").read_bytes()


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


def serve(tmp_path, authority, *flags):
    cert, key = authority.sign("server", "DNS:weir.test")
    return Service(tmp_path, RULES, listeners=ALL, flags=["--tls-cert", cert, "--tls-key", key, *flags])


def client(weir, ca, **more):
    credentials = grpc.ssl_channel_credentials(ca, **more)
    return Client(weir.address("grpc"), credentials, **{"grpc.ssl_target_name_override": "weir.test"})


def chosen_protocol(port, *offered):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if offered:
        context.set_alpn_protocols(offered)
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as raw:
        with context.wrap_socket(raw) as connection:
            return connection.selected_alpn_protocol()


def test_a_grpc_client_speaks_h2_over_tls(tmp_path, authority):
    """grpcio refuses a server that does not choose h2."""
    with serve(tmp_path, authority) as weir, client(weir, authority.pem()) as asker:
        assert asker.ask("load", [("user", "a")]).overall == OK
        assert asker.health("ratelimit") == SERVING


def test_each_listener_chooses_what_it_speaks(tmp_path, authority):
    with serve(tmp_path, authority) as weir:
        assert chosen_protocol(weir.port("grpc"), "h2", "http/1.1") == "h2"
        assert chosen_protocol(weir.port("grpc")) is None           # not asked: h2 by prior knowledge
        assert chosen_protocol(weir.port("http"), "h2", "http/1.1") == "http/1.1"


def test_a_client_needs_a_certificate_of_the_authority(tmp_path, authority):
    cert, key = (path.read_bytes() for path in authority.sign("client", "DNS:client.test"))
    other = Authority(tmp_path, "other")
    foreign = tuple(path.read_bytes() for path in other.sign("foreign", "DNS:client.test"))
    with serve(tmp_path, authority, "--tls-client-ca", tmp_path / "ca.pem") as weir:
        with client(weir, authority.pem(), private_key=key, certificate_chain=cert) as asker:
            assert asker.ask("load", [("user", "a")]).overall == OK
        with client(weir, authority.pem(), private_key=foreign[1], certificate_chain=foreign[0]) as asker:
            assert asker.refusal(b"")[0] == grpc.StatusCode.UNAVAILABLE
        with client(weir, authority.pem()) as asker:
            assert asker.refusal(b"")[0] == grpc.StatusCode.UNAVAILABLE
        weir.wait_for("TLS failed", 2)


def test_a_client_s_certificate_must_bear_the_name(tmp_path, authority):
    good = tuple(path.read_bytes() for path in authority.sign("client", "DNS:client.test"))
    bad = tuple(path.read_bytes() for path in authority.sign("another", "DNS:another.test"))
    with serve(tmp_path, authority, "--tls-client-ca", tmp_path / "ca.pem", "--tls-client-san", "client.test") as weir:
        with client(weir, authority.pem(), private_key=good[1], certificate_chain=good[0]) as asker:
            assert asker.ask("load", [("user", "a")]).overall == OK
        with client(weir, authority.pem(), private_key=bad[1], certificate_chain=bad[0]) as asker:
            assert asker.refusal(b"")[0] == grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("reconnects", [False, True], ids=["old connections", "new connections"])
def test_certificates_are_exchanged_under_load(tmp_path, authority, reconnects):
    with serve(tmp_path, authority) as weir:
        with Load(weir.address("grpc"), weir.port("http"), ca=authority.pem(), reconnects=reconnects) as load:
            for number in range(1, 11):
                authority.sign("server", "DNS:weir.test")
                weir.signal(signal.SIGHUP)
                # Of three listeners.
                wait_until(lambda wanted=number: reloads(weir) >= 3 * wanted, "new certificates")
                load.wait_for_more(30)
        load.check()
        assert load.not_answered == 0


def reloads(weir):
    return sum(one["event"] == "certificates loaded" for one in weir.events())


def test_who_speaks_no_tls_is_told_nothing_and_logged(tmp_path, authority):
    with serve(tmp_path, authority) as weir:
        connection = http.client.HTTPConnection("127.0.0.1", weir.port("http"), timeout=PATIENCE_S)
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            connection.request("GET", "/healthcheck")
            connection.getresponse()
        connection.close()
        weir.wait_for("TLS failed")
