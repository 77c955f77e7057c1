/* SPDX-License-Identifier: Apache-2.0 */
#include "demo.h"

#include "cli.h"

#include "algo/limit.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GREEN "\033[32m"
#define YELLOW "\033[33m"
#define RED "\033[31m"
#define BOLD "\033[1m"
#define PLAIN "\033[0m"
#define CURSOR_HIDE "\033[?25l"
#define CURSOR_SHOW "\033[?25h"

#define BAR_LEN 10

void demo_screen_init(struct demo_screen *s)
{
    *s = (struct demo_screen){.is_tty = isatty(STDOUT_FILENO) == 1};
    s->has_color = s->is_tty && getenv("NO_COLOR") == NULL;
    if (s->is_tty)
        fputs(CURSOR_HIDE, stdout);
}

void demo_screen_fini(struct demo_screen *s)
{
    if (s->is_tty)
        fputs(CURSOR_SHOW, stdout);
    fflush(stdout);
}

static const char *paint(const struct demo_screen *s, const char *color)
{
    return s->has_color ? color : "";
}

/* Ends a line of the frame: what an earlier frame left behind it goes. */
static void end_line(struct demo_screen *s)
{
    fputs(s->is_tty ? "\033[K\n" : "\n", stdout);
    s->drawn_lines++;
}

/* More arrives than an eye can follow.  Whoever was shown least is shown next. */
void demo_screen_offer(struct demo_screen *s, const struct demo_event *event)
{
    if (s->has_candidate && s->shown_by_user[s->candidate.user] <= s->shown_by_user[event->user])
        return;
    s->candidate = *event;
    s->has_candidate = true;
}

static void print_event(struct demo_screen *s, const struct demo_event *event)
{
    struct cli_words wait;
    const struct weir_status *status = &event->status;
    printf("%8.3f s  %-8s %-15s ", (double)event->at_ns / 1e9, event->user_name, event->what);
    if (status->code != WEIR_CODE_OK) {
        cli_words_duration(&wait, status->retry_after_ns);
        printf("%s429%s  retry in %s%s", paint(s, RED), paint(s, PLAIN), wait.text,
               event->is_by_everyone ? " (limit on everyone)" : "");
    } else if (status->delay_ns > 0) {
        cli_words_duration(&wait, status->delay_ns);
        printf("%sheld%s for %s, then passed on", paint(s, YELLOW), paint(s, PLAIN), wait.text);
    } else {
        printf("%sok%s   %llu of %llu left", paint(s, GREEN), paint(s, PLAIN),
               (unsigned long long)status->remaining, (unsigned long long)status->limit);
    }
    end_line(s);
}

static void print_row(void *ctx, const struct weir_rule_stats *rule)
{
    struct demo_screen *s = ctx;
    struct cli_words rate, allowed, refused;
    char bar[BAR_LEN + 1];
    uint64_t filled = 0;
    if (rule->total_hits > 0) /* one cell at the least, where anything was refused */
        filled = (rule->over_limit * BAR_LEN + rule->total_hits - 1) / rule->total_hits;
    for (uint64_t i = 0; i < BAR_LEN; i++)
        bar[i] = i < filled ? '#' : '.';
    bar[BAR_LEN] = '\0';
    cli_words_rate(&rate, rule->info.requests_per_unit, rule->info.unit,
                   rule->info.unit_multiplier);
    if (rule->info.algorithm == WEIR_CONCURRENCY)
        snprintf(rate.text, sizeof(rate.text), "%u at a time", rule->info.requests_per_unit);
    printf("%-9.*s %-23s%-17s %8s %7s ", (int)(rule->info.id.len < 9 ? rule->info.id.len : 9),
           rule->info.id.ptr, weir_algorithm_name(rule->info.algorithm), rate.text,
           cli_words_count(&allowed, rule->total_hits - rule->over_limit),
           cli_words_count(&refused, rule->over_limit));
    printf("%s%.*s%s%s", paint(s, RED), (int)filled, bar, paint(s, PLAIN), bar + filled);
    end_line(s);
}

static void print_totals(struct demo_screen *s, struct weir *engine)
{
    printf("%s%-9s %-23s%-17s %8s %7s %s%s", paint(s, BOLD), "rule", "algorithm", "limit",
           "allowed", "refused", "share", paint(s, PLAIN));
    end_line(s);
    weir_stats_rules(engine, print_row, s);
}

static void print_head(struct demo_screen *s, const struct demo_traffic *t, uint64_t elapsed_ns)
{
    struct cli_words requests, refused, delayed;
    printf("%sweir demo%s  %llu s: %s requests, %s refused, %s held", paint(s, BOLD),
           paint(s, PLAIN), (unsigned long long)(elapsed_ns / WEIR_NS_PER_S),
           cli_words_count(&requests, t->requests), cli_words_count(&refused, t->refused),
           cli_words_count(&delayed, t->delayed));
    end_line(s);
}

/* Moves what was chosen since the last frame into the stream; false where nothing came. */
static bool advance_stream(struct demo_screen *s)
{
    if (!s->has_candidate)
        return false;
    if (s->stream_count == DEMO_STREAM_LINES)
        memmove(&s->stream[0], &s->stream[1], sizeof(s->stream) - sizeof(s->stream[0]));
    else
        s->stream_count++;
    s->stream[s->stream_count - 1] = s->candidate;
    s->shown_by_user[s->candidate.user]++;
    s->has_candidate = false;
    return true;
}

static void draw(struct demo_screen *s, struct weir *engine, const struct demo_traffic *t,
                 uint64_t elapsed_ns, const char *footer)
{
    if (s->drawn_lines > 0)
        printf("\033[%uA\r", s->drawn_lines);
    s->drawn_lines = 0;
    print_head(s, t, elapsed_ns);
    end_line(s);
    for (uint32_t i = 0; i < DEMO_STREAM_LINES; i++) {
        if (i < s->stream_count)
            print_event(s, &s->stream[i]);
        else
            end_line(s);
    }
    end_line(s);
    print_totals(s, engine);
    end_line(s);
    fputs(footer, stdout);
    end_line(s);
    fflush(stdout);
}

void demo_screen_frame(struct demo_screen *s, struct weir *engine, const struct demo_traffic *t,
                       uint64_t elapsed_ns)
{
    bool is_new = advance_stream(s);
    if (s->is_tty) {
        draw(s, engine, t, elapsed_ns, "Ctrl-C ends");
        return;
    }
    if (is_new)
        print_event(s, &s->stream[s->stream_count - 1]);
    fflush(stdout);
}

void demo_screen_totals(struct demo_screen *s, struct weir *engine, const struct demo_traffic *t,
                        uint64_t elapsed_ns)
{
    if (s->is_tty) { /* the last frame, brought up to date, is the final table */
        draw(s, engine, t, elapsed_ns, "");
        return;
    }
    end_line(s);
    print_head(s, t, elapsed_ns);
    print_totals(s, engine);
}
