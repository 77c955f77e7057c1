"""The models of tests/model, by spin: what must hold does, and each planted bug is found.

SPDX-License-Identifier: Apache-2.0
"""
import importlib.machinery
import importlib.util
import os

import pytest

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "model")


def load_run():
    loader = importlib.machinery.SourceFileLoader("model_run", os.path.join(FOLDER, "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


RUN = load_run()


@pytest.mark.parametrize("model, definitions, holds", RUN.MODELS,
                         ids=[" ".join([model, *definitions]) for model, definitions, _ in RUN.MODELS])
def test_a_model_holds_or_its_planted_bug_is_found(model, definitions, holds, tmp_path):
    errors, states = RUN.search(model, definitions, tmp_path)
    assert errors is not None, f"the search was cut short after {states} states"
    assert (errors == 0) == holds
