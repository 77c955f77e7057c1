/* limit.c - the smallest useful program with libweir: how often may this user do this?
 *
 *     cc limit.c $(pkg-config --cflags --libs weir) && ./a.out rules.yaml api user alice 5
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

static void say(void *ctx, enum weir_level level, const char *line)
{
    (void)ctx, (void)level;
    fprintf(stderr, "%s\n", line);
}

int main(int argc, char **argv)
{
    struct weir_options options = {.rules_path = argc > 1 ? argv[1] : NULL, .log = say};
    struct weir *w;
    struct weir_session *s;
    if (argc != 6) {
        fprintf(stderr, "usage: %s RULES DOMAIN KEY VALUE TIMES\n", argv[0]);
        return 2;
    }
    if (weir_open(&w, &options) != 0 || weir_session_open(&s, w) != 0)
        return 1;

    struct weir_entry entry = {{argv[3], strlen(argv[3])}, {argv[4], strlen(argv[4])}};
    struct weir_descriptor descriptor = {.entries = &entry, .entry_count = 1};
    struct weir_request request = {{argv[2], strlen(argv[2])}, &descriptor, 1, 1};
    struct weir_status status;
    struct weir_decision decision = {.statuses = &status};
    for (long left = strtol(argv[5], NULL, 10); left > 0; left--) {
        if (weir_check(s, &request, weir_now(w), &decision) != 0)
            break;
        printf("%s, %llu left\n", decision.overall == WEIR_CODE_OK ? "OK" : "OVER_LIMIT",
               (unsigned long long)status.remaining);
    }
    weir_session_close(s);
    weir_close(w);
    return 0;
}
