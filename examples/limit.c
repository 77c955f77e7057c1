/* limit.c - the smallest useful program with libweir: may ada do this five times?
 *
 *     cc examples/limit.c $(pkg-config --cflags --libs weir) && ./a.out examples/limit.yaml
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <weir/weir.h>

int main(int argc, char **argv)
{
    struct weir_options options = {.rules_path = argc > 1 ? argv[1] : "examples/limit.yaml"};
    struct weir *w;
    struct weir_session *s;
    int err = weir_open(&w, &options); /* options.log, if set, is told the line and column */
    if (err != 0 || (err = weir_session_open(&s, w)) != 0)
        return fprintf(stderr, "%s: %s\n", options.rules_path, weir_strerror(err)), 1;

    struct weir_entry entry = {.key = {"user", 4}, .value = {"ada", 3}};
    struct weir_descriptor descriptor = {.entries = &entry, .entry_count = 1};
    struct weir_request request = {{"example", 7}, &descriptor, 1, 1};
    struct weir_status status;
    struct weir_decision decision = {.statuses = &status};
    for (int i = 0; i < 5 && (err = weir_check(s, &request, weir_now(w), &decision)) == 0; i++)
        printf("%s: %u left, come back in %.1f s\n",
               decision.overall == WEIR_CODE_OK ? "yes" : "no", (unsigned)status.remaining,
               (double)status.retry_after_ns / 1e9);
    weir_session_close(s);
    weir_close(w);
    return err != 0;
}
