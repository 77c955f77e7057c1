"""The rigs of tests/conformance are ours, too.

SPDX-License-Identifier: Apache-2.0
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "conformance"))
