"""libweir as its users meet it: installed, found by pkg-config, linked from C and C++.

SPDX-License-Identifier: Apache-2.0
"""
import os
import re
import subprocess

import pytest

BUILD = os.environ["WEIR_BUILD"]
SOURCE = os.environ["WEIR_SOURCE"]

PROGRAM = """
#include <stdio.h>
#include <weir/weir.h>

int main(void)
{
    struct weir_options options = {};
    struct weir *w;
    if (weir_open(&w, &options))
        return 1;
    weir_close(w);
    puts(weir_version());
    return 0;
}
"""


def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """What `make install` would leave, below a folder of its own."""
    root = tmp_path_factory.mktemp("root")
    run("meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", str(root))
    return root


@pytest.fixture(scope="module")
def flags(installed):
    """A function: what pkg-config says when asked, about the library as it is installed."""
    config, = installed.rglob("weir.pc")
    env = {**os.environ, "PKG_CONFIG_PATH": str(config.parent), "PKG_CONFIG_SYSROOT_DIR": str(installed)}
    return lambda *which: run("pkg-config", *which, "weir", env=env).split()


def declared():
    with open(f"{SOURCE}/include/weir/weir.h", encoding="utf-8") as header:
        text = header.read()
    return set(re.findall(r"^WEIR_API [^;(]*?\b(weir_\w+)\(", text, re.M))


def test_exports_what_the_header_declares_and_nothing_else():
    table = run("nm", "-D", "--defined-only", f"{BUILD}/lib/libweir.so")
    assert {row.split()[-1] for row in table.splitlines()} == declared()


def test_needs_only_libyaml_and_libpcre2():
    needed = re.findall(r"NEEDED +(\S+)", run("objdump", "-p", f"{BUILD}/lib/libweir.so"))
    assert {re.split(r"-|\.so", name)[0] for name in needed} <= {"libc", "libyaml", "libpcre2"}


def test_soname_carries_the_version_of_the_interface():
    assert re.search(r"SONAME +libweir\.so\.0$", run("objdump", "-p", f"{BUILD}/lib/libweir.so"), re.M)


def test_installs_the_public_headers_only(installed):
    headers = {str(path.relative_to(installed)).partition("include/")[2] for path in installed.rglob("*.h")}
    assert headers == {"weir/weir.h", "weir/types.h"}


@pytest.mark.parametrize("compiler, name", [("gcc", "program.c"), ("g++", "program.cpp")])
@pytest.mark.parametrize("kind", ["shared", "static"])
def test_a_program_compiles_links_and_runs(installed, flags, tmp_path, compiler, name, kind):
    (tmp_path / name).write_text(PROGRAM)
    library, = installed.rglob("libweir.so")
    if kind == "static":
        libraries = [str(library.with_suffix(".a")), *flags("--libs-only-l", "--static")]
        libraries.remove("-lweir")
    else:
        libraries = flags("--libs")
    run(compiler, "-Wall", "-Wextra", "-Werror", *flags("--cflags"), str(tmp_path / name),
        "-o", str(tmp_path / "program"), *libraries)
    said = run(str(tmp_path / "program"), env={**os.environ, "LD_LIBRARY_PATH": str(library.parent)})
    assert said.strip() == flags("--modversion")[0]
