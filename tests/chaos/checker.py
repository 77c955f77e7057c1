"""Did more pass than may?  Reads a history (history.py) and looks for an interval that has more than the limit's bound.

When a request was decided is known only to lie between asking and answering.  So what counts against an interval is
what must have been decided inside it, asked after its beginning and answered before its end.  A violation that is
reported is one whatever the instants were.  What slips through is at most what was under way at the two ends.

Two laws are enough for nearly all algorithms, on time itself or on the numbers of its windows:

    rate(first, more, each)     n intervals of `each` have at most first + n * more             buckets, windows, ticks
    rolling(length, most)       no interval of this length has more than `most`                 logs, sub-windows, slots

With S(x) hits asked before x and A(y) answered by y, at least A(y) - S(x) were decided from x to y.  It is exact but
for requests that were under way from before x until after y, and it makes both laws linear: a million requests take
seconds.

As a program:   checker.py HISTORY DESCRIPTOR=ALGORITHM,LIMIT,SECONDS[,burst=N][,buckets=N]...
SPDX-License-Identifier: Apache-2.0
"""
import dataclasses
import pathlib
import sys

import history

NS = 10**9


@dataclasses.dataclass(frozen=True)
class Limit:
    """As a rule has it."""
    algorithm: str
    limit: int
    window_s: int = 1
    burst: int | None = None
    buckets: int = 1
    refill: str = "continuous"
    rounding: str = "down"
    on_store_error: str | None = None

    @property
    def window_ns(self):
        return self.window_s * NS

    @property
    def room(self):
        """What may pass at once."""
        burst = self.limit if self.burst is None else self.burst
        return {"token_bucket": burst, "leaky_bucket": burst + 1}.get(self.algorithm, self.limit)

    def yaml(self):
        """The value of `rate_limit`.  Refused hits are not counted, so that counts can be compared."""
        words = [f"algorithm: {self.algorithm}", f"requests_per_unit: {self.limit}", "unit: second",
                 f"unit_multiplier: {self.window_s}"]
        words += [f"burst: {self.burst}"] * (self.burst is not None) + [f"buckets: {self.buckets}"] * (self.buckets > 1)
        words += [f"refill: {self.refill}"] * (self.refill != "continuous")
        words += [f"rounding: {self.rounding}"] * (self.rounding != "down")
        words += [f"on_store_error: {self.on_store_error}"] * (self.on_store_error is not None)
        words += ["count_rejected: false"] * (self.algorithm == "fixed_window")
        return "{" + ", ".join(words) + "}"


def admitted(hits):
    return [hit for hit in hits if hit.verdict == history.OK and hit.hits > 0]


def spans(hits, each_ns=1):
    """(first, last, hits) of what was admitted, in nanoseconds or in windows."""
    return [(hit.first_ns // each_ns, hit.last_ns // each_ns, hit.hits) for hit in admitted(hits)]


def steps(values):
    """[(x, sum up to and with x)] of (x, amount), in order."""
    total, out = 0, []
    for x, amount in sorted(values):
        total += amount
        if out and out[-1][0] == x:
            out[-1] = x, total
        else:
            out.append((x, total))
    return out


def before(asked):
    """[(x, sum before x)]"""
    return list(zip((x for x, _ in asked), (0, *(total for _, total in asked)), strict=False))


def rate(decided, first, more, each):
    """The most by which an interval of any length d exceeds first + floor(more * d / each)."""
    begins = [(x, sooner * each - more * x) for x, sooner in before(steps((x, amount) for x, _, amount in decided))]
    worst, i = 0, 0
    for y, total in steps((y, amount) for _, y, amount in decided):
        # The least so far is the worst beginning for all that ends later.
        while i < len(begins) and begins[i][0] <= y:
            least = min(least, begins[i][1]) if i else begins[i][1]
            i += 1
        over = (total - first) * each - more * y - least
        worst = max(worst, -(-over // each))
    return worst


def rolling(decided, length, most):
    """The most by which an interval from x to x + length, both included, exceeds `most`."""
    answered = steps((y, amount) for _, y, amount in decided)
    worst, i, total = 0, 0, 0
    for x, sooner in before(steps((x, amount) for x, _, amount in decided)):
        while i < len(answered) and answered[i][0] <= x + length:
            total = answered[i][1]
            i += 1
        worst = max(worst, total - sooner - most)
    return worst


def sliding(hits, limit):
    """The weighted counter: at y in window i, what was admitted in i, and is left of i - 1, is within the limit."""
    width, windows = limit.window_ns, {}
    for first, last, amount in spans(hits):
        if first // width == last // width:
            windows.setdefault(last // width, []).append((last, amount))
    totals = {i: sum(amount for _, amount in found) for i, found in windows.items()}
    worst = 0
    for i, found in windows.items():
        for y, total in steps(found):
            rest = totals.get(i - 1, 0) * (width - y % width)
            rest = -(-rest // width) if limit.rounding == "up" else rest // width
            worst = max(worst, total + rest - limit.limit)
    return worst


def excess(hits, limit):
    """How many more than the bound passed of one key, at the worst place; 0: none."""
    width = limit.window_ns
    if limit.algorithm == "fixed_window":
        return rate(spans(hits, width), limit.limit, limit.limit, 1)
    if limit.algorithm == "token_bucket" and limit.refill == "interval":
        return rate(spans(hits, width), limit.room, limit.limit, 1)
    if limit.algorithm in ("token_bucket", "leaky_bucket"):
        return rate(spans(hits), limit.room, limit.limit, width)
    if limit.algorithm == "sliding_window_log":
        return rolling(spans(hits), width, limit.limit)
    if limit.algorithm == "concurrency":        # never released: a slot is held for a window at least
        return rolling(spans(hits), width - 1, limit.limit)
    if limit.buckets > 1:
        return rolling(spans(hits, width // limit.buckets), limit.buckets, limit.limit)
    return sliding(hits, limit)


def utilisation(hits, limit, from_ns, to_ns):
    """What was admitted from one instant of Redis's clock to another, by what the limit allows at the most in between.
    For a key that is asked for more than it may have all the time; what may have passed outside does not count."""
    width = limit.window_ns
    if limit.algorithm == "sliding_window_counter" and limit.buckets > 1:
        width += width // limit.buckets         # the oldest sub-window counts in full
    if limit.algorithm == "concurrency":
        width += width // 2                     # slots end on a grid of half a window
    grid = width if limit.algorithm == "fixed_window" or limit.refill == "interval" else 1
    from_ns, to_ns = -(-from_ns // grid) * grid, to_ns // grid * grid
    passed = sum(hit.hits for hit in admitted(hits) if from_ns <= hit.first_ns and hit.last_ns < to_ns)
    if limit.algorithm in ("token_bucket", "leaky_bucket") and limit.refill == "continuous":
        return passed / (limit.room + limit.limit * (to_ns - from_ns) / width)
    return passed / (limit.limit * max(1, (to_ns - from_ns) / width))


def count_in(hits, from_ns, to_ns):
    """(least, most) hits that were counted from one instant of Redis's clock to another.  The least were told to be
    allowed, and the most are also those nobody heard the answer of."""
    least = sum(hit.hits for hit in admitted(hits) if from_ns <= hit.first_ns and hit.last_ns < to_ns)
    most = sum(hit.hits for hit in hits if hit.first_ns < to_ns and hit.last_ns >= from_ns
               and hit.verdict not in (history.OVER, history.ERROR))
    return least, most


def check(hits, limits):
    """{key: excess} of the keys whose bound was passed.  limits: of each descriptor."""
    found = {key: excess(some, limits[key[0]]) for key, some in history.by_key(hits).items()}
    return {key: number for key, number in found.items() if number > 0}


def limit_of(text):
    """fixed_window,100,1,burst=5"""
    algorithm, number, window_s, *more = text.split(",")
    fields = {name: value if name in ("refill", "rounding") else int(value) for name, _, value in
              (word.partition("=") for word in more)}
    return Limit(algorithm, int(number), int(window_s), **fields)


def main(arguments):
    if len(arguments) < 2:
        sys.exit("usage: checker.py HISTORY "
                 "DESCRIPTOR=ALGORITHM,LIMIT,SECONDS[,burst=N][,buckets=N][,refill=interval]...")
    limits = {int(name): limit_of(text) for name, _, text in (one.partition("=") for one in arguments[1:])}
    hits = history.read(pathlib.Path(arguments[0]))
    found = check(hits, limits)
    for key, number in found.items():
        print(f"descriptor {key[0]}, value {key[1]}: {number} more than its bound")
    print(f"{len(hits)} requests, {sum(hit.hits for hit in admitted(hits))} hits admitted, "
          f"{len(found)} keys over their bound")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
