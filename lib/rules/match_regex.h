/* match_regex.h - regular expressions (PCRE2), searched for in a value; ^ and $ bind them to its
 * ends.
 *
 * Compiled to machine code at load.  A match gives up after a bounded number of steps, and giving
 * up counts as a match: a value made to be slow is limited, not let through.
 *
 * Purity: no I/O.  Matching allocates nothing: what PCRE2 needs lies on the stack.
 * Threads: any number may match at once.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_RULES_MATCH_REGEX_H
#define WEIR_RULES_MATCH_REGEX_H

#include <stdbool.h>
#include <stddef.h>
#include <weir/weir.h>

struct weir_regex;

#define WEIR_REGEX_SHOWN_LEN 64

/* 0; WEIR_ERR_NOMEM; or WEIR_ERR_RULES, why[] saying what is wrong with the pattern at byte
 * *offset. */
WEIR_MUST_CHECK int weir_regex_new(struct weir_regex **out, struct weir_str pattern, char *why,
                                   size_t why_len, size_t *offset);
bool weir_regex_matches(struct weir_regex *regex, struct weir_str text);

/* All regexes of a set are one list, to be freed together. */
void weir_regex_link(struct weir_regex *regex, struct weir_regex **list);
/* A pattern of the list that has given up, and how many times; NULL where there is none that has
 * not been told yet (or has given up ten times as often since).  From one thread. */
const char *weir_regex_next_slow(struct weir_regex *list, unsigned long *times);
void weir_regex_free_all(struct weir_regex *list);

#endif
