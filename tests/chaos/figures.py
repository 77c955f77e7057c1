"""What was measured on the way, told at the end of a run: it is no test, and it is worth knowing.

SPDX-License-Identifier: Apache-2.0
"""
TOLD = []


def tell(title, **numbers):
    TOLD.append((title, numbers))


def lines():
    for title, numbers in TOLD:
        yield f"{title:40} " + "  ".join(f"{name} {number:,.1f}" for name, number in numbers.items())
