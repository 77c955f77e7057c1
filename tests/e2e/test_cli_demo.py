"""weir demo --terminal: it runs, fits a terminal, stops when asked, and leaves nothing behind.

SPDX-License-Identifier: Apache-2.0
"""
import os
import pty
import re
import signal
import subprocess
import time

from weir_cli import DONE, NO, ROOT, WEIR, rules_file, weir

RULES = ["everyone", "coupon", "upload", "search", "login", "message", "report", "address"]


def test_without_a_terminal_it_prints_lines_and_a_table(tmp_path):
    done = weir("demo", "--terminal", "--seconds", "1.5", env=dict(TMPDIR=str(tmp_path)))
    assert done.returncode == DONE and done.stderr == ""
    assert "\033" not in done.stdout
    assert re.search(r"^ *\d+\.\d{3} s  \w+ ", done.stdout, re.M)
    for rule in RULES:
        assert re.search(rf"^{rule} ", done.stdout, re.M), done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert os.listdir(tmp_path) == []


def test_an_interrupt_ends_it_with_the_totals(tmp_path):
    process = subprocess.Popen([WEIR, "demo", "--terminal"], stdout=subprocess.PIPE, text=True,
                               env=dict(os.environ, TMPDIR=str(tmp_path)))
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=10)
    assert process.returncode == DONE and re.search(r"^everyone ", output, re.M)
    assert os.listdir(tmp_path) == []


def test_in_a_terminal_each_frame_is_drawn_over_the_last():
    controller, terminal = pty.openpty()
    process = subprocess.Popen([WEIR, "demo", "--terminal", "--seconds", "1"], stdout=terminal, stderr=terminal)
    os.close(terminal)
    output = b""
    while True:
        try:
            chunk = os.read(controller, 65536)
        except OSError:         # the other end is closed
            break
        if not chunk:
            break
        output += chunk
    assert process.wait(timeout=10) == DONE
    text = output.decode()
    assert text.startswith("\033[?25l") and text.rstrip().endswith("\033[?25h")
    frames = re.split(r"\033\[\d+A\r", text)
    assert len(frames) > 3
    for frame in frames:
        rows = re.sub(r"\033\[[0-9;?]*[a-zA-Z]", "", frame).split("\r\n")
        assert len(rows) <= 25 and max(map(len, rows)) <= 80


def test_rules_may_be_changed_while_it_runs(tmp_path):
    text = (ROOT / "examples/rules/terminal.yaml").read_text()
    path = rules_file(tmp_path, text)
    process = subprocess.Popen([WEIR, "demo", "--terminal", "--seconds", "3", "--rules", path], stdout=subprocess.PIPE,
                               text=True)
    process.stdout.readline()
    time.sleep(0.2)
    path.write_text(text.replace("requests_per_unit: 40", "requests_per_unit: 41"))
    output, _ = process.communicate(timeout=20)
    assert process.returncode == DONE and "41 per second" in output


def test_bad_rules_are_told(tmp_path):
    done = weir("demo", "--terminal", "--rules", rules_file(tmp_path, "domain: [\n"))
    assert done.returncode == NO and "rules.yaml:" in done.stderr
