"""A real file system in memory that is too small for the table: an error in words, not a SIGBUS later.

A namespace of our own has one: as an ordinary user where the kernel lets us (unshare -rm), else as root (unshare -m).
SPDX-License-Identifier: Apache-2.0
"""
import os
import subprocess
import warnings

import pytest
from weir_cli import DONE, WEIR, WORLD, rules_file

WAYS = [["unshare", "-rm"], ["unshare", "-m"]]


def way():
    """How a mount of our own can be had, or None."""
    for one in WAYS:
        done = subprocess.run([*one, "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/mnt"], capture_output=True)
        if done.returncode == 0:
            return one
    return None


def in_small(tmp_path, size, *command):
    """Runs weir where `small` is a tmpfs of that size; with none to be had, below a limit on the size of files."""
    small, how = tmp_path / "small", way()
    small.mkdir(exist_ok=True)
    if how is None:
        warnings.warn("NO tmpfs CAN BE MOUNTED HERE: a limit on the size of files stands in for it")
        script = f"ulimit -f {size // 512}; trap '' XFSZ; " + 'exec "$@"'
        return weir_under(["sh", "-c", script, "sh"], *command)
    script = f"mount -t tmpfs -o size={size} tmpfs '{small}' && exec " + '"$@"'
    return weir_under([*how, "sh", "-c", script, "sh"], *command)


def weir_under(wrapper, *command):
    done = subprocess.run([*wrapper, WEIR, *map(str, command)], capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL, env=dict(os.environ))
    assert done.returncode >= 0, f"killed by signal {-done.returncode}: {done.stderr}"
    return done


@pytest.mark.parametrize("command", [
    ["serve", "--grpc", "off", "--http", "off", "--resp", "off", "--admin", "off"],
    ["replay"],
], ids=["serve", "replay"])
def test_a_table_that_does_not_fit_is_refused_at_once(tmp_path, command):
    table = tmp_path / "small" / "table"
    done = in_small(tmp_path, 1 << 20, *command, "--rules", rules_file(tmp_path), "--table", table, "--table-size",
                    "16m")
    assert done.returncode == WORLD, done.stderr
    assert "cannot allocate" in done.stderr and str(table) in done.stderr, done.stderr


def test_a_table_that_fits_is_used(tmp_path):
    """The same way round, so that the refusal above is the size's doing."""
    done = in_small(tmp_path, 32 << 20, "replay", "--rules", rules_file(tmp_path), "--table",
                    tmp_path / "small" / "table", "--table-size", "16m")
    assert done.returncode == DONE, done.stderr
