/* SPDX-License-Identifier: Apache-2.0 */
#include "net/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPT_BATCH 64 /* connections for one event: others have work to do too */
#define PAUSE_MS 100    /* without descriptors */

#define CONNECTIONS_MAX_DEFAULT 65536
#define OUTPUT_MAX_DEFAULT (4u << 20)
#define IDLE_MS_DEFAULT (5 * 60 * 1000)
#define FIRST_MS_DEFAULT (10 * 1000)
#define REQUEST_MS_DEFAULT (30 * 1000)

void weir_listener_tell(struct weir_listener *listener, enum weir_net_event event, const char *peer,
                        const char *detail)
{
    if (listener->on_event != NULL)
        listener->on_event(listener->event_ctx, event, peer, detail);
}

void weir_net_raise_files(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files); /* if not, then not: accepting copes */
    }
}

/* ---- accepting, in the thread of loops[0] ---- */

/* A connection on its way to another loop. */
struct arrival {
    struct weir_post post;
    struct weir_side *side;
    int fd;
    char peer[INET6_ADDRSTRLEN];
};

static void forget_arrival(struct weir_side *side, int fd)
{
    close(fd);
    /* relaxed: counts only */
    atomic_fetch_sub_explicit(&side->listener->open, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&side->loop->load, 1, memory_order_relaxed);
}

static void run_arrival(struct weir_post *post, struct weir_loop *loop)
{
    struct arrival *arrival = (struct arrival *)post;
    if (loop != NULL)
        weir_conn_begin(arrival->side, arrival->fd, arrival->peer);
    else
        forget_arrival(arrival->side, arrival->fd);
    free(arrival);
}

static struct weir_side *least_loaded(struct weir_listener *listener)
{
    struct weir_side *best = &listener->sides[0];
    for (uint32_t i = 1; i < listener->loop_count; i++)
        if (weir_loop_load(listener->sides[i].loop) < weir_loop_load(best->loop))
            best = &listener->sides[i];
    return best;
}

/* Adds a connection to the load of some loop that will not be gone when it gets there.
 *
 *     here:  load += 1;          look at is_leaving
 *     loop:  is_leaving = true;  look at load, and end at 0
 *
 * All four are sequentially consistent, so one of the two sees the other: either we take another
 * loop, or that one waits for us.  Our own loop runs, whatever it is told meanwhile. */
static struct weir_side *arrive(struct weir_listener *listener)
{
    struct weir_side *side = least_loaded(listener), *own = &listener->sides[0];
    atomic_fetch_add_explicit(&side->loop->load, 1, memory_order_seq_cst);
    if (side == own || !atomic_load_explicit(&side->loop->is_leaving, memory_order_seq_cst))
        return side;
    atomic_fetch_sub_explicit(&side->loop->load, 1, memory_order_seq_cst);
    uv_async_send(&side->loop->async); /* it may have waited for us */
    atomic_fetch_add_explicit(&own->loop->load, 1, memory_order_seq_cst);
    return own;
}

static void refuse(struct weir_listener *listener, int fd, const char *peer)
{
    atomic_fetch_add_explicit(&listener->refused, 1, memory_order_relaxed);
    close(fd);
    weir_listener_tell(listener, WEIR_NET_REFUSED, peer, "too many connections");
}

static void hand_over(struct weir_listener *listener, int fd, const char *peer)
{
    /* relaxed: one thread accepts, so the maximum cannot be passed */
    if (atomic_load_explicit(&listener->open, memory_order_relaxed) >=
        listener->limits.connections_max) {
        refuse(listener, fd, peer);
        return;
    }
    struct weir_side *side = arrive(listener);
    atomic_fetch_add_explicit(&listener->accepted, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&listener->open, 1, memory_order_relaxed);
    if (side->loop == listener->loops[0]) {
        weir_conn_begin(side, fd, peer);
        return;
    }
    struct arrival *arrival = malloc(sizeof(*arrival));
    if (arrival == NULL) {
        forget_arrival(side, fd);
        return;
    }
    *arrival = (struct arrival){.post.run = run_arrival, .side = side, .fd = fd};
    snprintf(arrival->peer, sizeof(arrival->peer), "%s", peer);
    weir_loop_post(side->loop, &arrival->post);
}

static void on_pause_over(uv_timer_t *timer);
static void on_incoming(uv_poll_t *poll, int status, int events);

/* Without descriptors the socket stays readable and we would spin: so we look away for a while. */
static void pause_accepting(struct weir_listener *listener)
{
    uv_poll_stop(&listener->poll);
    uv_timer_start(&listener->pause, on_pause_over, PAUSE_MS, 0);
    weir_listener_tell(listener, WEIR_NET_NO_FILES, listener->address, strerror(errno));
}

/* False: nothing more to accept for now. */
static bool accept_one(struct weir_listener *listener)
{
    struct sockaddr_storage from = {0};
    socklen_t from_len = sizeof(from);
    char peer[INET6_ADDRSTRLEN];
    int fd =
        accept4(listener->fd, (struct sockaddr *)&from, &from_len, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
        weir_address_peer(&from, peer, sizeof(peer));
        hand_over(listener, fd, peer);
        return true;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        pause_accepting(listener);
        return false;
    }
    /* Anything else but an empty queue concerns a connection that is gone already. */
    return errno != EAGAIN && errno != EWOULDBLOCK && errno != EBADF && errno != EINVAL;
}

static void on_incoming(uv_poll_t *poll, int status, int events)
{
    struct weir_listener *listener = poll->data;
    (void)events;
    if (status < 0)
        return;
    weir_loop_enter(listener->loops[0]);
    for (int i = 0; i < ACCEPT_BATCH && accept_one(listener); i++)
        continue;
}

static void on_pause_over(uv_timer_t *timer)
{
    struct weir_listener *listener = timer->data;
    uv_poll_start(&listener->poll, UV_READABLE, on_incoming);
}

/* ---- beginning and end ---- */

struct listener_post {
    struct weir_post post;
    struct weir_listener *listener;
};

static void run_start(struct weir_post *post, struct weir_loop *loop)
{
    struct weir_listener *listener = ((struct listener_post *)post)->listener;
    free(post);
    if (loop == NULL || loop->is_draining)
        return;
    listener->poll.data = listener->pause.data = listener;
    if (uv_poll_init(&loop->uv, &listener->poll, listener->fd) != 0)
        return; /* epoll has no room: the peers wait in the queue, the other listeners go on */
    uv_timer_init(&loop->uv, &listener->pause);
    listener->is_accepting = true;
    listener->next = loop->listeners;
    loop->listeners = listener;
    uv_poll_start(&listener->poll, UV_READABLE, on_incoming);
}

static void on_poll_closed(uv_handle_t *handle)
{
    struct weir_listener *listener = handle->data;
    close(listener->fd);
    listener->fd = -1;
}

void weir_listener_shut(struct weir_listener *listener)
{
    if (!listener->is_accepting)
        return;
    weir_address_unlink(listener);
    /* Who waits in the queue was promised a connection: the kernel said so when it came. */
    while (accept_one(listener))
        continue;
    listener->is_accepting = false;
    uv_close((uv_handle_t *)&listener->poll, on_poll_closed);
    uv_close((uv_handle_t *)&listener->pause, NULL);
}

static void run_close(struct weir_post *post, struct weir_loop *loop)
{
    if (loop != NULL)
        weir_listener_shut(((struct listener_post *)post)->listener);
    free(post);
}

static int post_to_acceptor(struct weir_listener *listener,
                            void (*run)(struct weir_post *post, struct weir_loop *loop))
{
    struct listener_post *post = malloc(sizeof(*post));
    if (post == NULL)
        return WEIR_ERR_NOMEM;
    *post = (struct listener_post){.post.run = run, .listener = listener};
    weir_loop_post(listener->loops[0], &post->post);
    return 0;
}

void weir_listener_close(struct weir_listener *listener)
{
    /* Without memory it stays open until the loop stops, which is soon after. */
    (void)!post_to_acceptor(listener, run_close);
}

static uint32_t or_default(uint32_t value, uint32_t otherwise)
{
    return value != 0 ? value : otherwise;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static int make_sides(struct weir_listener *listener, struct weir_loop **loops, uint32_t count)
{
    listener->loops = calloc(count, sizeof(struct weir_loop *));
    listener->sides = calloc(count, sizeof(struct weir_side));
    if (listener->loops == NULL || listener->sides == NULL)
        return WEIR_ERR_NOMEM;
    listener->loop_count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct weir_side *side = &listener->sides[i];
        listener->loops[i] = side->loop = loops[i];
        side->listener = listener;
        side->limit_ms[PHASE_FIRST] = listener->limits.first_ms;
        side->limit_ms[PHASE_IDLE] = listener->limits.idle_ms;
        side->limit_ms[PHASE_AMID] = least(listener->limits.request_ms, listener->limits.idle_ms);
        side->limit_ms[PHASE_OWED] = UINT32_MAX;
        side->limit_ms[PHASE_ASKED] = ASKED_MS;
        side->limit_ms[PHASE_LINGER] = LINGER_MS;
        side->limit_ms[PHASE_LATE] = LATE_MS;
        side->grain_ms = listener->limits.idle_ms / 16;
    }
    return 0;
}

/* That is not anywhere yet. */
static struct weir_listener *make_listener(const char *address, char *why, size_t why_len)
{
    struct weir_listener *listener = calloc(1, sizeof(*listener));
    if (listener == NULL)
        snprintf(why, why_len, "%s: out of memory", address);
    else
        listener->fd = -1;
    return listener;
}

int weir_listener_try(const char *address, char *why, size_t why_len)
{
    struct weir_listener *listener = make_listener(address, why, why_len);
    if (listener == NULL)
        return WEIR_ERR_NOMEM;
    int err = weir_address_listen(listener, address, false, why, why_len);
    weir_listener_free(listener);
    return err;
}

int weir_listener_new(struct weir_listener **out, struct weir_loop **loops, uint32_t loop_count,
                      const struct weir_listen_options *options, char *why, size_t why_len)
{
    WEIR_ASSERT(loop_count > 0);
    struct weir_listener *listener = make_listener(options->address, why, why_len);
    if (listener == NULL)
        return WEIR_ERR_NOMEM;
    listener->protocol = options->protocol;
    listener->protocol_ctx = options->protocol_ctx;
    listener->tls = options->tls;
    listener->on_event = options->on_event;
    listener->event_ctx = options->event_ctx;
    listener->limits = (struct weir_net_limits){
        .connections_max = or_default(options->limits.connections_max, CONNECTIONS_MAX_DEFAULT),
        .output_max = or_default(options->limits.output_max, OUTPUT_MAX_DEFAULT),
        .idle_ms = or_default(options->limits.idle_ms, IDLE_MS_DEFAULT),
        .first_ms = or_default(options->limits.first_ms, FIRST_MS_DEFAULT),
        .request_ms = or_default(options->limits.request_ms, REQUEST_MS_DEFAULT),
    };
    int err = make_sides(listener, loops, loop_count);
    if (err != 0)
        snprintf(why, why_len, "%s: out of memory", options->address);
    else
        err = weir_address_listen(listener, options->address, options->is_shared, why, why_len);
    if (err == 0) {
        err = post_to_acceptor(listener, run_start);
        if (err != 0)
            snprintf(why, why_len, "%s: out of memory", options->address);
    }
    if (err != 0) {
        weir_listener_free(listener);
        return err;
    }
    *out = listener;
    return 0;
}

const char *weir_listener_address(const struct weir_listener *listener)
{
    return listener->address;
}

void weir_listener_free(struct weir_listener *listener)
{
    if (listener == NULL)
        return;
    if (listener->fd >= 0) {
        weir_address_unlink(listener);
        close(listener->fd);
    }
    free(listener->address);
    free(listener->unix_path);
    free(listener->loops);
    free(listener->sides);
    free(listener);
}

void weir_listener_stats(const struct weir_listener *listener, struct weir_listener_stats *out)
{
    /* relaxed throughout: numbers for people */
    *out = (struct weir_listener_stats){
        .accepted = atomic_load_explicit(&listener->accepted, memory_order_relaxed),
        .open = atomic_load_explicit(&listener->open, memory_order_relaxed),
        .refused = atomic_load_explicit(&listener->refused, memory_order_relaxed),
    };
    for (uint32_t i = 0; i < listener->loop_count; i++) {
        const struct weir_side *side = &listener->sides[i];
        out->timed_out += atomic_load_explicit(&side->timed_out, memory_order_relaxed);
        out->overflowed += atomic_load_explicit(&side->overflowed, memory_order_relaxed);
    }
}
