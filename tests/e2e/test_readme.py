"""The README does what it says: its commands give its output, its links lead somewhere.

SPDX-License-Identifier: Apache-2.0
"""
import os
import re
import subprocess

import pytest

BUILD = os.environ["WEIR_BUILD"]
SOURCE = os.environ["WEIR_SOURCE"]

with open(f"{SOURCE}/README.md", encoding="utf-8") as readme:
    README = readme.read()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.M | re.S)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the files that the README shows."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "rules.yaml").write_text(blocks("yaml")[0])
    (folder / "logins.jsonl").write_text(blocks("json")[0])
    (folder / "build").symlink_to(BUILD)
    return folder


@pytest.mark.parametrize("block", blocks("console"))
def test_a_command_prints_what_the_readme_shows(folder, block):
    command, _, wanted = block.partition("\n")
    done = subprocess.run(command.removeprefix("$ "), shell=True, cwd=folder, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout == wanted


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_somewhere(page):
    with open(f"{SOURCE}/{page}", encoding="utf-8") as text:
        links = re.findall(r"\]\(([^)#:]+)\)", text.read())
    assert [link for link in links if not os.path.exists(f"{SOURCE}/{link}")] == []


def test_every_make_target_that_is_named_exists():
    pages = [README, open(f"{SOURCE}/CONTRIBUTING.md", encoding="utf-8").read()]
    named = set(re.findall(r"\bmake ([a-z]+)", "".join(re.findall(r"`[^`\n]+`|^make .*$", "".join(pages), re.M))))
    with open(f"{SOURCE}/Makefile", encoding="utf-8") as makefile:
        targets = set(re.findall(r"^([a-z]+):", makefile.read(), re.M))
    assert named - targets == set()
    assert {"run", "test"} <= named
