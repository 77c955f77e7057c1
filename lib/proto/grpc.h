/* grpc.h - gRPC over HTTP/2: what is between a stream of h2.h and a protobuf message.
 *
 *     :path /package.Service/Method      which method
 *     content-type application/grpc      or it is no gRPC at all: HTTP status 415
 *     grpc-timeout 20m                   a deadline, counted from when the headers came
 *     0 | length, 4 bytes | message      the body; we neither send nor take compressed ones
 *
 *     :status 200, message, grpc-status 0               what worked
 *     :status 200, grpc-status N, grpc-message TEXT     what did not, in one frame
 *
 * Calls with one message in and one out, or one in and many out; nobody needs more of us.
 *
 * Purity: no I/O, no clock, no allocation.  Threads: as the stream's connection.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_PROTO_GRPC_H
#define WEIR_PROTO_GRPC_H

#include "proto/h2.h"

#include <weir/types.h>

#define WEIR_GRPC_PREFIX 5               /* bytes before a message */
#define WEIR_GRPC_MESSAGE_MAX (1u << 20) /* bytes of a message from a client */
#define WEIR_GRPC_NO_DEADLINE UINT64_MAX
#define WEIR_GRPC_NO_METHOD UINT32_MAX

/* The numbers of grpc-status that we use. */
enum weir_grpc_code {
    WEIR_GRPC_OK = 0,
    WEIR_GRPC_UNKNOWN = 2,
    WEIR_GRPC_INVALID_ARGUMENT = 3,
    WEIR_GRPC_DEADLINE_EXCEEDED = 4,
    WEIR_GRPC_NOT_FOUND = 5,
    WEIR_GRPC_RESOURCE_EXHAUSTED = 8,
    WEIR_GRPC_UNIMPLEMENTED = 12,
    WEIR_GRPC_INTERNAL = 13,
    WEIR_GRPC_UNAVAILABLE = 14,
};

/* What a call was refused with; text is borrowed, or NULL. */
struct weir_grpc_status {
    enum weir_grpc_code code;
    const char *text;
};

/* What gRPC must remember of a stream; the user keeps it in the stream's extra bytes. */
struct weir_grpc_call {
    uint64_t deadline_ns;
    uint32_t method; /* its place in the table, or WEIR_GRPC_NO_METHOD */
    bool is_post, is_grpc, is_encoded;
};

/* The methods of a server, by path. */
struct weir_grpc_methods {
    const struct weir_str *paths;
    uint32_t count;
};

/* The headers that we look at, as struct weir_h2_events wants to know. */
#define WEIR_GRPC_NAME_LENS (1u << 5 | 1u << 7 | 1u << 12 | 1u << 13)

void weir_grpc_begin(struct weir_grpc_call *call);
void weir_grpc_header(struct weir_grpc_call *call, const struct weir_grpc_methods *methods,
                      struct weir_str name, struct weir_str value, uint64_t now_ns);

/* Whether the prefix, if it is there, announces more than MESSAGE_MAX: the rest need not come. */
bool weir_grpc_is_too_large(const struct weir_h2_stream *stream);

/* The message of a complete request: its bytes, or why there is none.  HTTP itself may be wrong:
 * *http_status is then not 200, and the answer is weir_grpc_refuse_http(). */
struct weir_grpc_status weir_grpc_message(const struct weir_grpc_call *call,
                                          const struct weir_h2_stream *stream, uint64_t now_ns,
                                          struct weir_str *message, uint32_t *http_status);

/* Room for one message of the response, its prefix written; NULL where it is too large. */
uint8_t *weir_grpc_out(struct weir_h2 *h2, struct weir_h2_stream *stream, size_t len);
/* Answers with the one message that is in the stream's response. */
void weir_grpc_reply(struct weir_h2 *h2, struct weir_h2_stream *stream);
/* Begins an answer of many messages: more by out() and weir_h2_resume(). */
void weir_grpc_reply_open(struct weir_h2 *h2, struct weir_h2_stream *stream);
/* Ends it: the server goes down. */
void weir_grpc_end_unavailable(struct weir_h2 *h2, struct weir_h2_stream *stream);
/* Answers without a message. */
void weir_grpc_refuse(struct weir_h2 *h2, struct weir_h2_stream *stream,
                      struct weir_grpc_status status);
/* Answers somebody who does not speak gRPC. */
void weir_grpc_refuse_http(struct weir_h2 *h2, struct weir_h2_stream *stream, uint32_t status);

/* A grpc-timeout in nanoseconds (at most 8 digits and a unit of HMSmun); WEIR_GRPC_NO_DEADLINE
 * where it is none, or longer than 64 bits hold. */
uint64_t weir_grpc_timeout(struct weir_str text);
/* text as grpc-message wants it: all but printable ASCII, and %, as %XX; cut at room bytes. */
size_t weir_grpc_percent(const char *text, char *out, size_t room);

#endif
