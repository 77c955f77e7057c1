/* gossip_laws.c - nodes that tell a store what they admitted, over messages that are late, lost,
 * repeated and overtaken: never more passes than the bound, and in the end all know the same.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "algo_subject.h"
#include "store/gossip.h"

#include <string.h>

#define NODES_MAX 6u
#define MAIL_MAX 64u
#define STEPS 2000u

struct node {
    struct weir_tally tally;
    uint64_t used; /* what its table says: own hits, and others' that it has learned of */
};

/* A question under way to the store, or its answer on the way back. */
struct mail {
    uint32_t node;
    bool is_answer;
    uint64_t own;
    struct weir_peer heard[NODES_MAX];
};

struct world {
    uint32_t nodes_count, mail_count;
    struct weir_limit limit;
    struct node nodes[NODES_MAX];
    struct weir_peer store[NODES_MAX];
    struct mail mail[MAIL_MAX];
};

static uint64_t id_of(uint32_t node)
{
    return (uint64_t)(node + 1) << 32;
}

static void make_world(struct luck *luck, struct world *w)
{
    memset(w, 0, sizeof(*w));
    w->nodes_count = 2 + (uint32_t)roll_to(luck, NODES_MAX - 2);
    w->limit.requests = 1 + (uint32_t)roll_any(luck, 2000);
    for (uint32_t i = 0; i < w->nodes_count; i++) {
        w->nodes[i].tally.tag = 1;
        w->store[i].id = id_of(i);
    }
}

static uint64_t admitted_by_all(const struct world *w)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < w->nodes_count; i++)
        sum += weir_tally_own(&w->nodes[i].tally);
    return sum;
}

static uint64_t known_of_others(const struct node *node)
{
    uint64_t sum = node->tally.peers.rest;
    for (uint32_t i = 0; i < node->tally.peers.count; i++)
        sum += node->tally.peers.list[i].hits;
    return sum;
}

static void request(struct luck *luck, struct world *w)
{
    struct node *node = &w->nodes[roll_to(luck, w->nodes_count - 1)];
    uint64_t hits = 1 + (one_in(luck, 4) ? roll_to(luck, weir_tally_unit(&w->limit) / 2) : 0);
    if (weir_tally_reserve(&node->tally, 1, hits, 2 * weir_tally_unit(&w->limit)) != WEIR_RESERVED)
        return;
    bool is_admitted = node->used + hits <= w->limit.requests;
    (void)weir_tally_settle(&node->tally, hits, is_admitted);
    node->used += is_admitted ? hits : 0;
}

static void tell(struct luck *luck, struct world *w)
{
    uint32_t node = (uint32_t)roll_to(luck, w->nodes_count - 1);
    if (w->mail_count < MAIL_MAX)
        w->mail[w->mail_count++] =
            (struct mail){.node = node, .own = weir_tally_own(&w->nodes[node].tally)};
}

/* The store keeps the greatest that each node ever said. */
static void serve(struct world *w, struct mail *mail)
{
    struct weir_peer *field = &w->store[mail->node];
    field->hits = mail->own > field->hits ? mail->own : field->hits;
    memcpy(mail->heard, w->store, sizeof(mail->heard));
    mail->is_answer = true;
}

static void hear(struct world *w, const struct mail *mail)
{
    struct node *node = &w->nodes[mail->node];
    node->used +=
        weir_peers_merge(&node->tally.peers, mail->heard, w->nodes_count, id_of(mail->node));
    weir_tally_ack(&node->tally, mail->own);
}

/* Any message may move next, in any order; some are lost, some delivered again later. */
static void deliver(struct luck *luck, struct world *w)
{
    if (w->mail_count == 0)
        return;
    uint32_t at = (uint32_t)roll_to(luck, w->mail_count - 1);
    struct mail *mail = &w->mail[at];
    bool is_lost = one_in(luck, 8), stays = one_in(luck, 8);
    if (!is_lost && !mail->is_answer) {
        serve(w, mail);
        return;
    }
    if (!is_lost)
        hear(w, mail);
    if (is_lost || !stays)
        *mail = w->mail[--w->mail_count];
}

static void step(struct luck *luck, struct world *w)
{
    switch (roll_to(luck, 3)) {
    case 0:
        tell(luck, w);
        break;
    case 1:
        deliver(luck, w);
        break;
    default:
        request(luck, w);
    }
}

static void nodes_exceed_a_limit_by_no_more_than_the_bound(void **state)
{
    (void)state;
    struct luck luck = luck_of(__func__);
    struct world *w = test_malloc(sizeof(*w));
    uint64_t exceeded = 0, rounds = scaled(400);
    for (luck.round = 0; luck.round < rounds; luck.round++) {
        make_world(&luck, w);
        uint64_t unit = weir_tally_unit(&w->limit), most = w->limit.requests;
        for (luck.step = 0; luck.step < STEPS; luck.step++) {
            step(&luck, w);
            uint64_t sum = admitted_by_all(w);
            CHECK_ALL(&luck, sum <= most + w->nodes_count * 2 * unit);
            /* semantics: (N-1) * U * (ceil((2s + RTT)/s) + 1), where the last is at least 4 */
            CHECK_ALL(&luck, sum <= most + (w->nodes_count - 1) * unit * 4);
        }
        exceeded += admitted_by_all(w) > most;
    }
    assert_true(exceeded > rounds / 100); /* it was tried */
    test_free(w);
}

static void whatever_happens_to_messages_all_know_the_same_in_the_end(void **state)
{
    (void)state;
    struct luck luck = luck_of(__func__);
    struct world *w = test_malloc(sizeof(*w));
    uint64_t rounds = scaled(400);
    for (luck.round = 0; luck.round < rounds; luck.round++) {
        make_world(&luck, w);
        uint64_t mishap = roll_to(&luck, STEPS);
        for (luck.step = 0; luck.step < STEPS; luck.step++) {
            step(&luck, w);
            if (luck.step == mishap && one_in(&luck, 2)) /* the store restarts empty */
                for (uint32_t i = 0; i < w->nodes_count; i++)
                    w->store[i].hits = 0;
        }
        /* Twice all around: the second time each hears what the last said the first time. */
        for (uint32_t i = 0; i < 2 * w->nodes_count; i++) {
            uint32_t node = i % w->nodes_count;
            struct mail mail = {.node = node, .own = weir_tally_own(&w->nodes[node].tally)};
            serve(w, &mail);
            hear(w, &mail);
        }
        uint64_t sum = admitted_by_all(w);
        for (uint32_t i = 0; i < w->nodes_count; i++) {
            const struct node *node = &w->nodes[i];
            CHECK_ALL(&luck, known_of_others(node) + weir_tally_own(&node->tally) == sum);
            CHECK_ALL(&luck, node->used == sum); /* each hit was counted once */
            CHECK_ALL(&luck, w->store[i].hits == weir_tally_own(&node->tally));
        }
    }
    test_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_exceed_a_limit_by_no_more_than_the_bound),
        cmocka_unit_test(whatever_happens_to_messages_all_know_the_same_in_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
