/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/http1.h"
#include "proto/text.h"

#include "base/str.h"

static const struct {
    int status;
    struct weir_str line;
} lines[] = {
#define LINE(status, reason)                                                                       \
    {                                                                                              \
        status,                                                                                    \
        {                                                                                          \
#status " " reason, sizeof(#status " " reason) - 1                                     \
        }                                                                                          \
    }
    LINE(200, "OK"),
    LINE(202, "Accepted"),
    LINE(204, "No Content"),
    LINE(400, "Bad Request"),
    LINE(401, "Unauthorized"),
    LINE(403, "Forbidden"),
    LINE(404, "Not Found"),
    LINE(405, "Method Not Allowed"),
    LINE(408, "Request Timeout"),
    LINE(409, "Conflict"),
    LINE(413, "Content Too Large"),
    LINE(414, "URI Too Long"),
    LINE(415, "Unsupported Media Type"),
    LINE(429, "Too Many Requests"),
    LINE(431, "Request Header Fields Too Large"),
    LINE(500, "Internal Server Error"),
    LINE(501, "Not Implemented"),
    LINE(503, "Service Unavailable"),
    LINE(505, "HTTP Version Not Supported"),
#undef LINE
};

static struct weir_str line_of(int status)
{
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        if (lines[i].status == status)
            return lines[i].line;
    return (struct weir_str){.len = 0};
}

struct weir_str weir_http1_reason(int status)
{
    struct weir_str line = line_of(status);
    return line.len > 4 ? (struct weir_str){.ptr = line.ptr + 4, .len = line.len - 4} : line;
}

static void put_status(struct weir_text *text, int status)
{
    struct weir_str line = line_of(status);
    WEIR_TEXT_PUT(text, "HTTP/1.1 ");
    if (line.len > 0) {
        weir_text_put(text, line);
    } else {
        weir_text_put_number(text, (uint64_t)status);
        WEIR_TEXT_PUT(text, " ");
    }
    WEIR_TEXT_PUT(text, "\r\n");
}

size_t weir_http1_answer_write(char *buf, size_t cap, const struct weir_http1_answer *answer)
{
    struct weir_text text = weir_text_in(buf, cap);
    put_status(&text, answer->status);
    if (answer->date.len > 0) {
        WEIR_TEXT_PUT(&text, "Date: ");
        weir_text_put(&text, answer->date);
        WEIR_TEXT_PUT(&text, "\r\n");
    }
    if (answer->content_type.len > 0) {
        WEIR_TEXT_PUT(&text, "Content-Type: ");
        weir_text_put(&text, answer->content_type);
        WEIR_TEXT_PUT(&text, "\r\n");
    }
    WEIR_TEXT_PUT(&text, "Content-Length: ");
    weir_text_put_number(&text, answer->body.len);
    WEIR_TEXT_PUT(&text, "\r\n");
    weir_text_put(&text, answer->lines);
    if (!answer->keeps_open)
        WEIR_TEXT_PUT(&text, "Connection: close\r\n");
    else if (answer->is_http10)
        WEIR_TEXT_PUT(&text, "Connection: keep-alive\r\n");
    WEIR_TEXT_PUT(&text, "\r\n");
    if (!answer->is_head)
        weir_text_put(&text, answer->body);
    return text.has_overflowed ? 0 : weir_text_len(&text);
}

static char *put_two(char *to, uint64_t number)
{
    *to++ = (char)('0' + number / 10 % 10);
    *to++ = (char)('0' + number % 10);
    return to;
}

static char *put_word(char *to, const char *word, size_t len)
{
    memcpy(to, word, len);
    return to + len;
}

/* The civil date of a day since 1970, by Hinnant's days_from_civil turned round: eras of 400 years,
 * each beginning on 1 March. */
void weir_http1_date(char out[WEIR_HTTP1_DATE_LEN], uint64_t unix_s)
{
    static const char days[] = "Thu, Fri, Sat, Sun, Mon, Tue, Wed, ";
    static const char months[] = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec ";
    uint64_t day = unix_s / 86400 % 2932897; /* up to 31 December 9999 */
    uint64_t second = unix_s % 86400;
    uint64_t shifted = day + 719468, era = shifted / 146097, of_era = shifted % 146097;
    uint64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    uint64_t of_year = of_era - (365 * year + year / 4 - year / 100);
    uint64_t month = (5 * of_year + 2) / 153; /* from March */
    uint64_t of_month = of_year - (153 * month + 2) / 5 + 1;
    uint64_t month0 = month < 10 ? month + 2 : month - 10;
    year += era * 400 + (month0 < 2);
    char *to = put_word(out, days + day % 7 * 5, 5);
    to = put_two(to, of_month);
    *to++ = ' ';
    to = put_word(to, months + month0 * 4, 4);
    to = put_two(put_two(to, year / 100), year % 100);
    *to++ = ' ';
    to = put_two(to, second / 3600);
    *to++ = ':';
    to = put_two(to, second / 60 % 60);
    *to++ = ':';
    to = put_two(to, second % 60);
    put_word(to, " GMT", 4);
}
