/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

#include "algo/limit.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

const char *cli_words_bytes(struct cli_words *buf, uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    double value = (double)bytes;
    while (value >= 1024 && unit + 1 < CLI_COUNT_OF(units)) {
        value /= 1024;
        unit++;
    }
    /* Whole numbers lose their ".0": "64 MiB" is what was asked for, "64.0 MiB" was measured. */
    bool is_whole = unit == 0 || bytes % (UINT64_C(1) << (10 * unit)) == 0;
    snprintf(buf->text, sizeof(buf->text), is_whole ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return buf->text;
}

static const char *two_parts(struct cli_words *buf, uint64_t high, const char *high_unit,
                             uint64_t low, const char *low_unit)
{
    if (low == 0)
        snprintf(buf->text, sizeof(buf->text), "%" PRIu64 " %s", high, high_unit);
    else
        snprintf(buf->text, sizeof(buf->text), "%" PRIu64 " %s %" PRIu64 " %s", high, high_unit,
                 low, low_unit);
    return buf->text;
}

const char *cli_words_duration(struct cli_words *buf, uint64_t ns)
{
    if (ns == WEIR_NEVER) {
        snprintf(buf->text, sizeof(buf->text), "never");
        return buf->text;
    }
    if (ns < 1000)
        snprintf(buf->text, sizeof(buf->text), "%" PRIu64 " ns", ns);
    else if (ns < 1000000)
        snprintf(buf->text, sizeof(buf->text), "%.3g us", (double)ns / 1e3);
    else if (ns < WEIR_NS_PER_S)
        snprintf(buf->text, sizeof(buf->text), "%.3g ms", (double)ns / 1e6);
    else if (ns < 60 * WEIR_NS_PER_S)
        snprintf(buf->text, sizeof(buf->text), "%.3g s", (double)ns / 1e9);
    else if (ns < 3600 * WEIR_NS_PER_S)
        return two_parts(buf, ns / WEIR_NS_PER_S / 60, "min", ns / WEIR_NS_PER_S % 60, "s");
    else if (ns < 48 * 3600 * WEIR_NS_PER_S)
        return two_parts(buf, ns / WEIR_NS_PER_S / 3600, "h", ns / WEIR_NS_PER_S / 60 % 60, "min");
    else
        return two_parts(buf, ns / WEIR_NS_PER_S / 86400, "d", ns / WEIR_NS_PER_S / 3600 % 24, "h");
    return buf->text;
}

const char *cli_words_count(struct cli_words *buf, uint64_t number)
{
    char digits[24];
    int len = snprintf(digits, sizeof(digits), "%" PRIu64, number);
    char *to = buf->text;
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            *to++ = ',';
        *to++ = digits[i];
    }
    *to = '\0';
    return buf->text;
}

const char *cli_words_rate(struct cli_words *buf, uint64_t requests, enum weir_unit unit,
                           uint32_t multiplier)
{
    const char *name = weir_unit_name(unit);
    struct cli_words number;
    cli_words_count(&number, requests);
    if (name == NULL)
        name = "unknown unit";
    if (multiplier > 1)
        snprintf(buf->text, sizeof(buf->text), "%.40s per %" PRIu32 " %.20ss", number.text,
                 multiplier, name);
    else
        snprintf(buf->text, sizeof(buf->text), "%.40s per %.20s", number.text, name);
    return buf->text;
}

const char *cli_words_share(struct cli_words *buf, uint64_t part, uint64_t whole)
{
    if (whole == 0)
        snprintf(buf->text, sizeof(buf->text), "-");
    else
        snprintf(buf->text, sizeof(buf->text), "%.1f %%", 100.0 * (double)part / (double)whole);
    return buf->text;
}

void cli_complain(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fflush(stdout); /* what was printed so far comes first, also where both go to one place */
    fputs("weir: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

void cli_log(void *ctx, enum weir_level level, const char *line)
{
    (void)ctx;
    if (level == WEIR_LEVEL_INFO)
        return;
    fflush(stdout);
    fprintf(stderr, "%s\n", line);
}

enum cli_exit cli_cannot_open(const char *rules, int err)
{
    if (err == WEIR_ERR_RULES)
        cli_complain("%s: %s", rules, weir_strerror(err));
    else
        cli_complain("cannot start: %s", weir_strerror(err));
    return cli_exit_of(err);
}

enum cli_exit cli_exit_of(int err)
{
    if (err == 0)
        return CLI_DONE;
    return err == WEIR_ERR_RULES ? CLI_NO : CLI_WORLD;
}
