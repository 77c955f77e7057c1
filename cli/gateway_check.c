/* gateway_check.c - values that nginx or weir serve would refuse, refused before either runs.
 *
 * Their words would name a file that is gone by then; ours name the flag, or the place in
 * gateway.yaml, and what would be right.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "gateway.h"

#include "base/str.h"
#include "net/net.h"
#include "rules/match_cidr.h"
#include "store/redis/url.h"
#include "table/table.h"

#include <stdlib.h>

#define WORKERS_MAX 1024
#define SECONDS_MAX 3600

/* What is wrong, while it is looked for. */
struct check {
    char *why;
    size_t why_len;
};

static bool is_not(const struct check *c, const char *word, const char *wanted)
{
    snprintf(c->why, c->why_len, "'%s' is not %s", word, wanted);
    return false;
}

/* One of the words, which end with NULL. */
static bool check_one_of(const struct check *c, const char *word, const char *const *words)
{
    char wanted[128] = "one of";
    for (size_t i = 0; words[i] != NULL; i++) {
        size_t len = strlen(wanted);
        if (strcmp(word, words[i]) == 0)
            return true;
        snprintf(wanted + len, sizeof(wanted) - len, "%s %s", i > 0 ? "," : "", words[i]);
    }
    const char *nearest = cli_nearest(word, words);
    is_not(c, word, wanted);
    if (nearest != NULL) {
        size_t len = strlen(c->why);
        snprintf(c->why + len, c->why_len - len, "; did you mean '%s'?", nearest);
    }
    return false;
}

static bool check_dialect(const struct check *c, const char *word)
{
    static const char *const words[] = {"legacy",      "ietf-11", "reset-epoch",
                                        "reset-delta", "none",    NULL};
    return check_one_of(c, word, words);
}

static bool check_body(const struct check *c, const char *word)
{
    static const char *const words[] = {"plain", "problem", "html", "none", NULL};
    return check_one_of(c, word, words);
}

static bool check_address(const struct check *c, const char *word)
{
    char host[WEIR_ADDRESS_HOST_LEN_MAX + 1];
    const char *port;
    size_t unix_len = strlen(WEIR_ADDRESS_UNIX);
    bool is_unix = strncmp(word, WEIR_ADDRESS_UNIX, unix_len) == 0;
    if (is_unix ? word[unix_len] == '/' : weir_address_split(word, host, &port))
        return true;
    return is_not(c, word, "an address: HOST:PORT, :PORT, [IPv6]:PORT or unix:/PATH");
}

/* nginx cannot tell which port the system chose, and so takes no 0. */
static bool check_listen(const struct check *c, const char *word)
{
    const char *colon = strrchr(word, ':');
    if (colon == NULL || colon[1] != '0' || strspn(colon + 1, "0") != strlen(colon + 1))
        return check_address(c, word);
    return is_not(c, word, "an address that nginx can listen on: its port is from 1 to 65535");
}

static bool check_admin(const struct check *c, const char *word)
{
    return strcmp(word, "off") == 0 || check_address(c, word);
}

static bool check_proxy(const struct check *c, const char *word)
{
    struct weir_cidr cidr;
    const char *why;
    bool is_exact;
    return strcmp(word, WEIR_ADDRESS_UNIX) == 0 ||
           weir_cidr_parse(&cidr, weir_str_of(word), &why, &is_exact) ||
           is_not(c, word, "an address or a network, as in 192.0.2.1 or 10.0.0.0/8, or unix:");
}

/* As nginx reads sizes, which knows no terabytes. */
static bool check_size(const struct check *c, const char *word)
{
    uint64_t bytes;
    size_t len = strlen(word);
    if (cli_parse_size(word, &bytes) && bytes >= WEIR_TABLE_BYTES_MIN &&
        (word[len - 1] | 0x20) != 't')
        return true;
    return is_not(c, word, "a size of at least 1m, such as 64m or 2g");
}

static bool is_number(const char *word, unsigned long most)
{
    size_t len = strlen(word);
    if (len == 0 || len > 4 || strspn(word, "0123456789") != len)
        return false;
    unsigned long number = strtoul(word, NULL, 10);
    return number >= 1 && number <= most;
}

static bool check_workers(const struct check *c, const char *word)
{
    return strcmp(word, "auto") == 0 || is_number(word, WORKERS_MAX) ||
           is_not(c, word, "auto or a number from 1 to 1024");
}

static bool check_seconds(const struct check *c, const char *word)
{
    return is_number(word, SECONDS_MAX) || is_not(c, word, "a number of seconds from 1 to 3600");
}

static bool check_store(const struct check *c, const char *word)
{
    struct weir_redis_url url;
    return weir_redis_url_parse(&url, weir_str_of(word), c->why, c->why_len) == 0;
}

static bool check_service(const struct check *c, const char *word)
{
    size_t unix_len = strlen(WEIR_ADDRESS_UNIX);
    return (strncmp(word, WEIR_ADDRESS_UNIX, unix_len) == 0 && word[unix_len] == '/') ||
           is_not(c, word, "the address of a weir serve --desk: unix:/PATH");
}

/* Calls check_word for each part of a list with commas; one at least must be there. */
static bool check_list(const struct check *c, const char *list,
                       bool (*check_word)(const struct check *c, const char *word))
{
    char word[GATEWAY_PATH_LEN];
    bool is_any = false;
    for (list += strspn(list, ", "); *list != '\0'; list += strspn(list, ", ")) {
        size_t len = strcspn(list, ", ");
        snprintf(word, sizeof(word), "%.*s", (int)len, list);
        if (!check_word(c, word))
            return false;
        list += len;
        is_any = true;
    }
    return is_any || check_word(c, "");
}

static bool check_headers(const struct check *c, const char *list)
{
    if (!check_list(c, list, check_dialect))
        return false;
    if (strstr(list, "reset-epoch") == NULL || strstr(list, "reset-delta") == NULL)
        return true;
    snprintf(c->why, c->why_len, "reset-epoch and reset-delta say different things by one name");
    return false;
}

bool gateway_check(enum gateway_kind kind, const char *text, char *why, size_t why_len)
{
    const struct check c = {why, why_len};
    switch (kind) {
    case GATEWAY_TEXT:
    case GATEWAY_PATH:
    case GATEWAY_PROGRAM:
        return true;
    case GATEWAY_ADDRESSES:
        return check_list(&c, text, check_listen);
    case GATEWAY_ADMIN:
        return check_admin(&c, text);
    case GATEWAY_SIZE:
        return check_size(&c, text);
    case GATEWAY_HEADERS:
        return check_headers(&c, text);
    case GATEWAY_BODY:
        return check_body(&c, text);
    case GATEWAY_PROXIES:
        return check_list(&c, text, check_proxy);
    case GATEWAY_WORKERS:
        return check_workers(&c, text);
    case GATEWAY_SECONDS:
        return check_seconds(&c, text);
    case GATEWAY_STORE:
        return check_store(&c, text);
    case GATEWAY_SERVICE:
        return check_service(&c, text);
    }
    return true;
}
