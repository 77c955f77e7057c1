"""A real Envoy before a real application, with weir as its rate limit service.

    config = bootstrap(app_port, clusters=[cluster("weir", weir.port("grpc"), http2=True)],
                       filters=[limiter()], rate_limits=[by_header("x-user", "user")])
    with Envoy(tmp_path, config) as envoy:
        ask(envoy.port, "/", X_User="ann")

Envoy is where tools/setup puts it.  It chooses its ports itself and tells them over its admin listener.
SPDX-License-Identifier: Apache-2.0
"""
import json
import pathlib
import subprocess

from http_rig import PATIENCE_S, ask
from service import wait_until

ENVOY = pathlib.Path(__file__).resolve().parents[2] / "build/venv/bin/envoy"
TYPE = "type.googleapis.com/envoy."
HCM = "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
HTTP_OPTIONS = "extensions.upstreams.http.v3.HttpProtocolOptions"
ACCESS = {"status": "%RESPONSE_CODE%", "flags": "%RESPONSE_FLAGS%", "user": "%REQ(X-USER)%",
          "told": "%DYNAMIC_METADATA(envoy.filters.http.ratelimit)%"}


# ---- configuration ----

def typed(name, kind, **fields):
    return {"name": name, "typed_config": {"@type": TYPE + kind, **fields}}


def address(port):
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def cluster(name, port, http2=False, **more):
    """One server on loopback."""
    made = {"name": name, "connect_timeout": "10s", **more, "load_assignment": {
        "cluster_name": name, "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(port)}}]}]}}
    if http2:
        made["typed_extension_protocol_options"] = {"envoy." + HTTP_OPTIONS: {
            "@type": TYPE + HTTP_OPTIONS, "explicit_http_config": {"http2_protocol_options": {}}}}
    return made


def limiter(**more):
    """The filter that asks weir.  Envoy's own timeout, 20 ms, would make a busy machine a failure."""
    return typed("envoy.filters.http.ratelimit", "extensions.filters.http.ratelimit.v3.RateLimit", **{
        "domain": "api", "timeout": "10s", "rate_limit_service": {
            "transport_api_version": "V3", "grpc_service": {"envoy_grpc": {"cluster_name": "weir"}}}, **more})


def by_header(header, key, **more):
    """A rate limit with one entry, the value of a header; no header, no descriptor."""
    return {"actions": [{"request_headers": {"header_name": header, "descriptor_key": key}}], **more}


def bootstrap(app_port, clusters, filters, rate_limits=(), has_hits=False, **more):
    """A whole configuration: one listener, one route.  Envoy knows hits only in the filter's own part of a route."""
    own = {"@type": TYPE + "extensions.filters.http.ratelimit.v3.RateLimitPerRoute", "rate_limits": list(rate_limits)}
    route = {"match": {"prefix": "/"}, "route": {"cluster": "app"}}
    if has_hits:
        route["typed_per_filter_config"] = {"envoy.filters.http.ratelimit": own}
    else:
        route["route"]["rate_limits"] = list(rate_limits)
    manager = typed("envoy.filters.network.http_connection_manager", HCM, **{
        "stat_prefix": "ingress",
        "access_log": [typed("envoy.access_loggers.file", "extensions.access_loggers.file.v3.FileAccessLog",
                             path="access.log", log_format={"json_format": ACCESS})],
        "http_filters": [*filters, typed("envoy.filters.http.router", "extensions.filters.http.router.v3.Router")],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]}, **more})
    return {"static_resources": {
        "listeners": [{"name": "ingress", "address": address(0), "filter_chains": [{"filters": [manager]}]}],
        "clusters": [cluster("app", app_port), *clusters]}}


# ---- the process ----

class Envoy:
    """config: a configuration, or its YAML."""

    def __init__(self, folder, config):
        self.folder = pathlib.Path(folder)
        path, admin = self.folder / "envoy.yaml", self.folder / "envoy.admin"
        path.write_text(config if isinstance(config, str) else json.dumps(config))
        self.output = open(self.folder / "envoy.log", "w+")
        self.process = subprocess.Popen(
            [ENVOY, "-c", path, "--admin-address-path", admin, "--disable-hot-restart", "--concurrency", "1",
             "--log-level", "warning", "--file-flush-interval-msec", "10", "--config-yaml",
             json.dumps({"admin": {"address": address(0)}})],
            cwd=self.folder, stdin=subprocess.DEVNULL, stdout=self.output, stderr=subprocess.STDOUT)
        try:
            wait_until(lambda: self._is_alive() and admin.exists() and admin.read_text(), "Envoy's admin listener")
            self.admin_port = int(admin.read_text().rpartition(":")[2])
            wait_until(lambda: self._is_alive() and self.admin("/ready") == "LIVE\n", "Envoy")
        except AssertionError:
            self.stop()
            raise
        listener = json.loads(self.admin("/listeners?format=json"))["listener_statuses"][0]
        self.port = listener["local_address"]["socket_address"]["port_value"]

    def _is_alive(self):
        assert self.process.poll() is None, "Envoy ended:\n" + (self.folder / "envoy.log").read_text()
        return True

    def admin(self, path):
        return ask(self.admin_port, path).body.decode()

    def accesses(self, count):
        """The access log, once it has so many lines."""
        path = self.folder / "access.log"
        wait_until(lambda: path.exists() and path.read_text().count("\n") >= count, f"{count} lines of the access log")
        return [json.loads(line) for line in path.read_text().splitlines()]

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=PATIENCE_S)
        finally:
            self.process.kill()
            self.output.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
