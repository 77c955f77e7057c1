"""envoyproxy/ratelimit, read off its description and written as plainly as can be: what random requests must get.

It knows none of our code.  Where docs/migration.md says that we differ, it is said here, too.
SPDX-License-Identifier: Apache-2.0
"""
UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800, "month": 2592000, "year": 31536000}
UNLIMITED = 4294967295


def glob_matches(pattern, text):
    first, *middle = pattern.split("*")
    last = middle.pop()
    if len(text) < sum(map(len, pattern.split("*"))) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in middle:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def composite(rule):
    return rule["key"] + ("_" + rule["value"] if rule.get("value") else "")


def choose(rules, key, value):
    """The child that an entry goes to: the exact text, the first wildcard, the bare key; or None."""
    whole = f"{key}_{value}"
    exact = [rule for rule in rules if composite(rule) == whole]
    wild = [rule for rule in rules if "*" in composite(rule) and glob_matches(composite(rule), whole)]
    bare = [rule for rule in rules if composite(rule) == key]
    return (exact + wild + bare + [None])[0]


def find(rules, entries):
    """(the rule with a limit that the entries lead to, whose counter that is), or (None, None)."""
    rule, counter = None, []
    for key, value in entries:
        rule = choose(rules, key, value)
        if rule is None:
            return None, None
        counter.append((key, (composite(rule), "shared") if rule.get("share_threshold") else value))
        rules = rule.get("descriptors", [])
    return (rule, tuple(counter)) if "rate_limit" in rule else (None, None)


class Reading:
    """domains: name -> rules, as in the file."""

    def __init__(self, domains, shadow_mode=False, quota_mode=False):
        self.domains, self.shadow_mode, self.quota_mode = domains, shadow_mode, quota_mode
        self.counts = {}

    def limit_of(self, domain, one):
        """What limits a descriptor: a dict, or None."""
        if domain not in self.domains:
            return None
        if "limit" in one:
            number, unit = one["limit"]
            return {"requests_per_unit": number, "unit": unit, "counter": tuple(one["entries"])}
        rule, counter = find(self.domains[domain], one["entries"])
        if rule is None:
            return None
        return {**rule["rate_limit"], "counter": counter, "shadow": rule.get("shadow_mode"),
                "quota": rule.get("quota_mode")}

    def count(self, domain, limit, hits, is_negative):
        """(is it over?, remaining)"""
        most = limit.get("requests_per_unit", 0)
        key = domain, limit["counter"], limit["unit"], limit.get("name")     # the name: ours, as windows keep apart
        before = self.counts.get(key, 0)
        after = max(0, before - hits) if is_negative else before + hits
        if most > 0:                                                         # ours: a limit of 0 counts nothing
            self.counts[key] = after
        is_over = not is_negative and (after if most > 0 else hits) > most
        return is_over, max(0, most - after)

    def ask(self, domain, descriptors, hits_addend, now_s):
        """descriptors: {"entries": ..., "limit": (number, unit)?, "hits": n?, "negative": bool?};
        (overall, statuses)"""
        limits = [self.limit_of(domain, one) for one in descriptors]
        replaced = {other["name"] for limit in limits if limit for other in limit.get("replaces", [])}
        statuses, in_quota = [], []
        for one, limit in zip(descriptors, limits):
            quota = self.quota_mode or bool(limit and limit.get("quota"))
            status = {"code": "OK"}
            if limit and limit.get("unlimited"):                             # which nothing replaces
                status["limitRemaining"], quota = UNLIMITED, False
            elif limit is None or limit.get("name") in replaced:
                quota = self.quota_mode
            else:
                hits = one.get("hits", max(1, hits_addend))
                is_over, remaining = self.count(domain, limit, hits, one.get("negative"))
                length = UNITS[limit["unit"]]
                status = {"code": "OVER_LIMIT" if is_over and not limit.get("shadow") else "OK",
                          "limit": (limit.get("name", ""), limit.get("requests_per_unit", 0), limit["unit"].upper()),
                          "limitRemaining": 0 if is_over else remaining, "reset": length - now_s % length}
            statuses.append(status)
            in_quota.append(quota)
        over = [status["code"] != "OK" for status in statuses]
        is_over = any(one for one, quota in zip(over, in_quota) if not quota) or \
            (any(in_quota) and all(one for one, quota in zip(over, in_quota) if quota))
        return "OVER_LIMIT" if is_over and not self.shadow_mode else "OK", statuses
