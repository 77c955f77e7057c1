"""The service's life: start, settings, signals, listeners, systemd.  What it answers is elsewhere.

SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest

import rls_wire
from rls_wire import OK, OVER_LIMIT, Client, descriptor
from service import PATIENCE_S, WEIR, Service, wait_until

DONE, NO, USAGE, WORLD = 0, 1, 2, 3

RULES = """\
domain: api
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 3}
"""

OTHER_RULES = RULES.replace("requests_per_unit: 3", "requests_per_unit: 100")


def serve(*flags, env=None):
    """Runs weir serve to its end, with a bare environment."""
    clean = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME") or name.endswith("_OPTIONS")}
    done = subprocess.run([WEIR, "serve", *map(str, flags)], capture_output=True, text=True, timeout=PATIENCE_S,
                          env={**clean, **(env or {})}, stdin=subprocess.DEVNULL)
    assert "Sanitizer" not in done.stderr, done.stderr
    return done


def ask(address, user="alice"):
    with Client(address) as client:
        return client.ask("api", descriptor(("user", user))).overall


def rules_file(tmp_path, text=RULES):
    path = tmp_path / "rules.yaml"
    path.write_text(text)
    return path


def config_of(done):
    """{setting: (value, origin)} of --print-config."""
    assert done.returncode == DONE, done.stderr
    pairs = (line.split(": ", 1) for line in done.stdout.splitlines() if line and not line.startswith("#"))
    return {name: (rest.partition("'")[2].rpartition("'")[0], rest.rpartition("# ")[2]) for name, rest in pairs}


# ---- settings ----

def test_defaults_are_loopback():
    config = config_of(serve("--print-config"))
    for name in ("grpc", "http", "resp", "admin"):
        assert config[name][0].startswith("127.0.0.1:"), name
        assert config[name][1] == "default"


def test_flags_win_over_the_file_and_the_file_over_the_environment(tmp_path):
    path = tmp_path / "weir.yaml"
    path.write_text("grpc: ':1'\nhttp: ':2'\ngrace: 3s\n")
    env = {"WEIR_GRPC": ":11", "WEIR_HTTP": ":12", "WEIR_RESP": ":13"}
    config = config_of(serve("--print-config", "--config", path, "--grpc", ":21", env=env))
    assert config["grpc"] == (":21", "--grpc")
    assert config["http"] == (":2", f"{path}:2:7")
    assert config["resp"] == (":13", "WEIR_RESP in the environment")
    assert config["admin"][1] == "default"


def test_what_is_printed_can_be_read_again(tmp_path):
    path = tmp_path / "weir.yaml"
    first = serve("--print-config", "--grpc", "unix:/tmp/it's", "--threads=3", "--shadow-mode")
    path.write_text(first.stdout)
    again = config_of(serve("--print-config", "--config", path))
    assert {name: value for name, (value, _) in again.items()} == \
        {name: value for name, (value, _) in config_of(first).items()}


@pytest.mark.parametrize("env, setting, value", [
    ({"GRPC_HOST": "0.0.0.0"}, "grpc", "0.0.0.0:8081"),
    ({"GRPC_PORT": "9"}, "grpc", "127.0.0.1:9"),
    ({"GRPC_HOST": "::", "GRPC_PORT": "9"}, "grpc", "[::]:9"),
    ({"GRPC_UDS": "/run/rl.sock", "GRPC_PORT": "9"}, "grpc", "unix:/run/rl.sock"),
    ({"HOST": "0.0.0.0", "PORT": "9"}, "http", "0.0.0.0:9"),
    ({"DEBUG_PORT": "9"}, "admin", "127.0.0.1:9"),
    ({"RUNTIME_ROOT": "/data", "RUNTIME_SUBDIRECTORY": "ratelimit"}, "rules", "/data/ratelimit/config"),
    ({"RUNTIME_ROOT": "/data", "RUNTIME_APPDIRECTORY": "c"}, "rules", "/data/c"),
    ({"SHADOW_MODE": "true"}, "shadow_mode", "true"),
    ({"MERGE_DOMAIN_CONFIG": "T"}, "merge_domains", "T"),
    ({"LOG_LEVEL": "WARNING", "LOG_FORMAT": "json"}, "log_level", "WARNING"),
    ({"LIMIT_RESPONSE_HEADERS_ENABLED": "1"}, "response_headers", "1"),
    ({"LIMIT_LIMIT_HEADER": "X-L"}, "limit_header", "X-L"),
    ({"GRPC_SERVER_USE_TLS": "true", "GRPC_SERVER_TLS_CERT": "/c"}, "tls", "grpc"),
    ({"GRPC_SERVER_TLS_CERT": "/c", "GRPC_SERVER_USE_TLS": "false"}, "tls", "off"),
    ({"USE_STATSD": "true", "STATSD_HOST": "s"}, "statsd", "s:8125"),
    ({"STATSD_HOST": "s"}, "statsd", "off"),
    ({"USE_STATSD": "true"}, "statsd_protocol", "tcp"),
    ({"USE_STATSD": "true", "STATSD_PROTOCOL": "udp"}, "statsd_protocol", "udp"),
    ({}, "statsd_protocol", "udp"),
    ({"NEAR_LIMIT_RATIO": "0.5"}, "near_limit_ratio", "0.5"),
])
def test_variables_of_envoyproxy_ratelimit(env, setting, value):
    assert config_of(serve("--print-config", env=env))[setting][0] == value


def test_compat_listens_everywhere_unless_told():
    config = config_of(serve("--print-config", "--compat", "--http", "127.0.0.1:1"))
    assert config["grpc"][0] == ":8081"
    assert config["http"][0] == "127.0.0.1:1"
    assert config["admin"][0] == "127.0.0.1:6070"


@pytest.mark.parametrize("flags, env, says", [
    (["--threads", "x"], {}, "--threads: 'x' is not a number from 0 to 1024"),
    (["--threads", "1025"], {}, "--threads: '1025'"),
    (["--grace", "soon"], {}, "--grace: 'soon' is not a time"),
    (["--table-size", "64q"], {}, "--table-size: '64q' is not a size"),
    (["--log-level", "loud"], {}, "one of error|warn|info|debug"),
    (["--shadow-mode=maybe"], {}, "--shadow-mode: 'maybe' is not on or off"),
    (["--near-limit-ratio", "1.5"], {}, "--near-limit-ratio"),
    ([], {"WEIR_THREADS": "many"}, "WEIR_THREADS in the environment: 'many'"),
    ([], {"SHADOW_MODE": "perhaps"}, "SHADOW_MODE in the environment: 'perhaps' is not on or off"),
    (["--grcp", "off"], {}, "did you mean --grpc?"),
])
def test_wrong_settings_name_their_place(flags, env, says):
    done = serve(*flags, env=env)
    assert done.returncode == USAGE
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_wrong_file_names_line_and_column_and_all_errors(tmp_path):
    path = tmp_path / "weir.yaml"
    path.write_text("grpc: ':1'\ntheads: 3\ngrace: soon\nhttp: {a: b}\n")
    done = serve("--config", path)
    assert done.returncode == USAGE
    assert f"{path}:2:1: 'theads' is not known here; did you mean 'threads'?" in done.stderr
    assert f"{path}:3:8: 'soon' is not a time" in done.stderr
    assert f"{path}:4:7:" in done.stderr


def test_a_wrong_value_that_is_overruled_does_not_matter():
    assert serve("--print-config", "--threads", "2", env={"WEIR_THREADS": "many"}).returncode == DONE


def test_help_lists_every_setting():
    text = subprocess.run([WEIR, "help", "serve"], capture_output=True, text=True).stdout
    for name in config_of(serve("--print-config")):
        assert f"--{name.replace('_', '-')}" in text, name


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:99999", "::1:80", "unix:"])
def test_a_wrong_address_is_wrong_usage(address):
    done = serve("--grpc", address, "--http", "off", "--table", "none")
    assert done.returncode == USAGE
    assert done.stderr.startswith("weir: --grpc: ")


@pytest.mark.parametrize("flags", [
    ["--store-global", "redis://127.0.0.1"], ["--site", "here"], ["--compat-keys"], ["--consistency", "eventual"],
    ["--store-wait", "1"]])
def test_what_needs_a_store_is_not_ignored_without_one(flags):
    done = serve(*flags, "--table", "none", "--grpc", "127.0.0.1:0", "--http", "off")
    assert done.returncode == USAGE
    assert flags[0] in done.stderr and "--store redis://HOST" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("flags", [["--store-leases=off"], ["--consistency", "eventual"]])
def test_waiting_for_replicas_is_refused_where_there_is_nothing_to_wait_for(flags):
    done = serve("--store-wait", "1", *flags, "--store", "redis://127.0.0.1:1", "--table", "none", "--grpc",
                 "127.0.0.1:0", "--http", "off")
    assert done.returncode == USAGE
    assert "--store-wait is for" in done.stderr and flags[0] in done.stderr


# ---- start ----

def test_bad_rules_are_refused_with_their_errors(tmp_path):
    rules = rules_file(tmp_path, "domain: api\ndescriptors:\n  - kye: user\n")
    done = serve("--rules", rules, "--table", "none", "--grpc", "127.0.0.1:0", "--http", "off")
    assert done.returncode == NO
    assert f"{rules}:3:5: " in done.stderr and "key" in done.stderr


def test_a_missing_file_of_settings_is_the_world():
    done = serve("--config", "/nowhere/weir.yaml")
    assert done.returncode == WORLD
    assert done.stderr == "weir: cannot read '/nowhere/weir.yaml': No such file or directory\n"


def test_who_names_no_rules_is_told_what_that_means(tmp_path):
    with Service(tmp_path, None) as weir:
        weir.wait_for("no_rules")


def test_missing_rules_are_the_world(tmp_path):
    done = serve("--rules", tmp_path / "none.yaml", "--table", "none", "--grpc", "127.0.0.1:0", "--http", "off")
    assert done.returncode == WORLD
    assert done.stderr.splitlines() == [
        f"cannot read '{tmp_path}/none.yaml': No such file or directory",
        f"weir: there are no rules at {tmp_path}/none.yaml (--rules); --start-without-rules waits for them"]


def test_a_table_that_cannot_be_had_is_said_once(tmp_path):
    done = serve("--table", tmp_path / "no" / "table", "--grpc", "127.0.0.1:0", "--http", "off")
    assert done.returncode == WORLD
    first, second = done.stderr.splitlines()
    assert str(tmp_path / "no" / "table") in first and second == "weir: cannot start, for the reason above"


def test_a_start_without_rules_waits_for_them(tmp_path):
    flags = ["--start-without-rules", "--healthy-with-rules"]
    with Service(tmp_path, "descriptors: 3\n", flags=flags) as weir:
        with Client(weir.address("grpc")) as client:
            assert client.health("ratelimit") == rls_wire.NOT_SERVING
            weir.rules(RULES)
            wait_until(lambda: client.health("ratelimit") == rls_wire.SERVING, "health")
        assert [ask(weir.address("grpc")) for _ in range(4)] == [OK] * 3 + [OVER_LIMIT]


def test_a_taken_port_is_said():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = serve("--grpc", address, "--http", "off", "--table", "none")
    assert done.returncode == WORLD
    assert done.stderr.strip() == f"weir: --grpc: {address}: address already in use"


def test_two_may_share_a_port_unless_told(tmp_path):
    with Service(tmp_path, RULES) as weir:
        done = serve("--grpc", weir.address("grpc"), "--http", "off", "--table", "none", "--reuse-port=off")
        assert done.returncode == WORLD
        assert "address already in use" in done.stderr


def test_certificates_that_are_missing_are_named(tmp_path):
    done = serve("--tls-cert", tmp_path / "c.pem", "--tls-key", tmp_path / "k.pem", "--grpc", "127.0.0.1:0",
                 "--http", "off", "--table", "none")
    assert done.returncode == WORLD
    assert "c.pem" in done.stderr


# ---- signals ----

@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_well(tmp_path, number):
    weir = Service(tmp_path, RULES)
    weir.signal(number)
    weir.wait_for("gone")
    weir.process.wait(timeout=PATIENCE_S)
    weir.stop()
    assert [one["event"] for one in weir.events()][-2:] == ["draining", "gone"]


def test_rules_are_loaded_when_they_change(tmp_path):
    with Service(tmp_path, RULES) as weir:
        answers = [ask(weir.address("grpc")) for _ in range(4)]
        assert answers == [OK, OK, OK, OVER_LIMIT]
        weir.rules(OTHER_RULES)
        wait_until(lambda: ask(weir.address("grpc")) == OK, "the new limit")


def test_a_hangup_reloads_and_bad_rules_change_nothing(tmp_path):
    with Service(tmp_path, RULES) as weir:
        weir.rules("domain: [\n")
        weir.signal(signal.SIGHUP)
        weir.wait_for("reload")
        wait_until(lambda: any(one["level"] == "error" for one in weir.events()), "an error")
        assert [ask(weir.address("grpc")) for _ in range(4)] == [OK, OK, OK, OVER_LIMIT]
        weir.rules(OTHER_RULES)
        weir.signal(signal.SIGHUP)
        wait_until(lambda: ask(weir.address("grpc")) == OK, "the new limit")


def test_a_hangup_reads_log_settings_and_names_those_that_wait(tmp_path):
    config = tmp_path / "weir.yaml"
    config.write_text("log_level: info\ngrace: 10s\n")
    with Service(tmp_path, RULES, flags=["--config", config]) as weir:
        config.write_text("log_level: warn\ngrace: 11s\n")
        weir.signal(signal.SIGHUP)
        weir.wait_for("setting waits for a restart")
        waiting = [one for one in weir.events() if one["event"] == "setting waits for a restart"]
        assert [(one["setting"], one["value"]) for one in waiting] == [("grace", "11s")]
        weir.stop()
        assert "draining" not in [one["event"] for one in weir.events()]     # that is info


def test_health_turns_before_listeners_close(tmp_path):
    with Service(tmp_path, RULES, flags=["--drain-delay", "1s"]) as weir:
        with Client(weir.address("grpc")) as client:
            assert client.health("ratelimit") == rls_wire.SERVING
            weir.signal(signal.SIGTERM)
            weir.wait_for("draining")
            assert client.health("ratelimit") == rls_wire.NOT_SERVING
            with Client(weir.address("grpc")) as late:                 # still listening
                assert late.ask("api", descriptor(("user", "late"))).overall == OK
        weir.process.wait(timeout=PATIENCE_S)                          # a second signal would end it at once


def test_a_second_signal_ends_it_at_once(tmp_path):
    weir = Service(tmp_path, RULES, flags=["--drain-delay", "1h"])
    weir.signal(signal.SIGTERM)
    weir.wait_for("draining")
    weir.signal(signal.SIGTERM)
    assert weir.process.wait(timeout=PATIENCE_S) == WORLD


def test_counts_survive_a_restart_and_an_upgrade(tmp_path):
    table = tmp_path / "table"
    with Service(tmp_path, RULES, table=table) as weir:
        assert [ask(weir.address("grpc")) for _ in range(2)] == [OK, OK]
    with Service(tmp_path, RULES, table=table) as old:
        assert ask(old.address("grpc")) == OK
        with Service(tmp_path, RULES, table=table, flags=["--grpc", old.address("grpc")]) as new:
            old.stop()
            assert ask(new.address("grpc")) == OVER_LIMIT


# ---- listeners ----

def test_unix_sockets_serve_and_vanish(tmp_path):
    path = tmp_path / "weir.sock"
    with Service(tmp_path, RULES, flags=["--grpc", f"unix:{path}"]) as weir:
        assert path.stat().st_mode & 0o777 == 0o660
        assert weir.address("grpc") == f"unix:{path}"
        assert ask(f"unix:{path}") == OK
    assert not path.exists()


def test_a_stale_socket_is_replaced(tmp_path):
    path = tmp_path / "weir.sock"
    weir = Service(tmp_path, RULES, flags=["--grpc", f"unix:{path}"])
    weir.kill()
    assert path.exists()
    with Service(tmp_path, RULES, flags=["--grpc", f"unix:{path}", "--reuse-port=off"]):
        assert ask(f"unix:{path}") == OK


def test_the_silent_are_closed_and_logged(tmp_path):
    with Service(tmp_path, RULES, flags=["--first-timeout", "50ms"]) as weir:
        with socket.create_connection(("127.0.0.1", weir.port("grpc")), timeout=PATIENCE_S) as silent:
            while silent.recv(1000):
                pass                                                     # SETTINGS, then the end
        weir.wait_for("no request in time")
        assert "127.0.0.1" not in next(one["peer"] for one in weir.events() if one["event"] == "no request in time")


def test_the_least_loaded_thread_gets_the_next_connection(tmp_path):
    with Service(tmp_path, RULES, threads=2, listeners=("http",)) as weir:
        idle = [socket.create_connection(("127.0.0.1", weir.port("http"))) for _ in range(20)]
        tasks = pathlib.Path(f"/proc/{weir.process.pid}/task")
        wait_until(lambda: {"weir-0", "weir-1"} <= {(task / "comm").read_text().strip() for task in tasks.iterdir()},
                   "both threads")
        for one in idle:
            one.close()


# ---- TLS ----

def make_certificate(tmp_path, name):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-keyout", tmp_path / "key.new", "-out", tmp_path / "cert.new", "-days", "2", "-subj",
                    f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"], check=True, capture_output=True)
    (tmp_path / "key.new").rename(tmp_path / "key.pem")
    (tmp_path / "cert.new").rename(tmp_path / "cert.pem")
    return tmp_path / "cert.pem", tmp_path / "key.pem"


def shown_certificate(port):
    """What the server shows now, in DER."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as raw:
        with context.wrap_socket(raw) as connection:
            return connection.getpeercert(binary_form=True)


def test_certificates_are_exchanged_without_a_restart(tmp_path):
    cert, key = make_certificate(tmp_path, "weir.test")
    with Service(tmp_path, RULES, flags=["--tls-cert", cert, "--tls-key", key]) as weir:
        first = shown_certificate(weir.port("grpc"))
        assert first == ssl.PEM_cert_to_DER_cert(cert.read_text())
        make_certificate(tmp_path, "weir.test")
        weir.signal(signal.SIGHUP)
        weir.wait_for("certificates loaded")
        second = shown_certificate(weir.port("grpc"))
        assert second == ssl.PEM_cert_to_DER_cert(cert.read_text()) != first
        make_certificate(tmp_path, "weir.test")                          # and without a signal
        wait_until(lambda: shown_certificate(weir.port("grpc")) != second, "the third certificate")
        third = shown_certificate(weir.port("grpc"))
        cert.write_text("nonsense\n")
        weir.signal(signal.SIGHUP)
        weir.wait_for("certificates not loaded")
        assert shown_certificate(weir.port("grpc")) == third


# ---- systemd ----

def test_systemd_is_told(tmp_path):
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(path))
        systemd.settimeout(PATIENCE_S)
        env = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "400000"}
        with Service(tmp_path, RULES, env=env) as weir:
            assert systemd.recv(1000).startswith(b"READY=1")
            for _ in range(3):
                assert systemd.recv(1000) == b"WATCHDOG=1"
            weir.signal(signal.SIGHUP)
            said = b""
            while not said.startswith(b"RELOADING=1\nMONOTONIC_USEC="):
                said = systemd.recv(1000)
            while not said.startswith(b"READY=1"):
                said = systemd.recv(1000)
        while not said.startswith(b"STOPPING=1"):
            said = systemd.recv(1000)


# ---- logs ----

def test_logfmt_is_the_default(tmp_path):
    with Service(tmp_path, RULES, flags=["--log-format", "json"]) as weir:
        assert json.loads(weir.lines[0])["level"] == "info"
    process = subprocess.Popen([WEIR, "serve", "--table", "none", "--grpc", "127.0.0.1:0", "--http", "off", "--resp",
                                "off", "--admin", "off"], stderr=subprocess.PIPE, text=True)
    first = process.stderr.readline()
    assert " level=info event=listening protocol=grpc address=127.0.0.1:" in first
    process.terminate()
    assert process.wait(timeout=PATIENCE_S) == DONE
    process.stderr.close()


def test_a_flood_of_lines_is_counted_instead(tmp_path):
    with Service(tmp_path, RULES, flags=["--log-rate", "5", "--first-timeout", "10ms"], listeners=("http",)) as weir:
        def annoy():
            for _ in range(50):
                with socket.create_connection(("127.0.0.1", weir.port("http")), timeout=PATIENCE_S) as one:
                    one.recv(1)
        threads = [threading.Thread(target=annoy) for _ in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        end = time.monotonic() + PATIENCE_S
        while not any(one["event"] == "lines dropped" for one in weir.events()) and time.monotonic() < end:
            annoy()
        assert any(one["event"] == "lines dropped" for one in weir.events())
        late = [one["time"][:19] for one in weir.events() if one["event"] == "no request in time"]
        assert max(late.count(second) for second in late) <= 5
