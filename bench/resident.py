"""resident.py BUILD RULES - anonymous memory that an engine with so many rules, and one session, adds to a
process, through libweir as a program would use it.

SPDX-License-Identifier: Apache-2.0
"""
import ctypes
import os
import pathlib
import sys
import tempfile


def anonymous():
    for line in pathlib.Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def main(build, rules):
    lib = ctypes.CDLL(str(pathlib.Path(build, "lib/libweir.so").resolve()))
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        with open(f"{folder}/rules.yaml", "w", encoding="utf-8") as file:
            file.write("domain: d\ndescriptors:\n")
            for i in range(rules):
                file.write(f"- {{key: k, value: v{i}, rate_limit: {{unit: minute, requests_per_unit: {i}}}}}\n")
        # struct weir_options begins with the two paths; zeroes are the defaults of all the rest.
        options = (ctypes.c_char_p * 64)(f"{folder}/rules.yaml".encode(), f"{folder}/table".encode())
        engine, session = ctypes.c_void_p(), ctypes.c_void_p()
        before = anonymous()
        if lib.weir_open(ctypes.byref(engine), ctypes.byref(options)) or \
                lib.weir_session_open(ctypes.byref(session), engine):
            sys.exit("bench: libweir does not open")
        print(anonymous() - before)
        lib.weir_session_close(session)
        lib.weir_close(engine)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
