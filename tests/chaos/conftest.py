"""The rigs of the other suites are ours, too.

SPDX-License-Identifier: Apache-2.0
"""
import pathlib
import sys

import pytest

pytest.register_assert_rewrite("trial")     # so that it says what was found instead
for suite in "conformance", "e2e":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / suite))


def pytest_terminal_summary(terminalreporter):
    import figures
    for line in figures.lines():
        terminalreporter.write_line(line)
