/* listen.c - the listeners of the service: which there are, who speaks TLS, what is told of peers.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "serve/service_internal.h"

#define WHY_LEN 512

struct front {
    const char *name;
    enum weir_front number;
    const struct weir_protocol *protocol; /* NULL: not in this version */
    bool offers_h2;
    enum weir_setting_number setting;
    size_t offset; /* of the address in the settings */
};

#define FRONT_BASE(NUMBER, id)                                                                     \
    .name = #id, .number = WEIR_FRONT_##NUMBER, .setting = WEIR_SETTING_NUMBER_##id,               \
    .offset = offsetof(struct weir_settings, id)

static const struct front fronts[] = {
#define WEIR_FRONT(NUMBER, id, h2)                                                                 \
    {FRONT_BASE(NUMBER, id), .protocol = &weir_front_##id, .offers_h2 = (h2)},
#define WEIR_FRONT_LATER(NUMBER, id) {FRONT_BASE(NUMBER, id)},
#include "serve/fronts.def"
#undef WEIR_FRONT
#undef WEIR_FRONT_LATER
};

/* ---- events of the net, to the log ---- */

static void on_event(void *ctx, enum weir_net_event event, const char *peer, const char *detail)
{
    static const struct {
        const char *event;
        enum weir_log_level level;
    } words[] = {
        [WEIR_NET_REFUSED] = {"connection refused", WEIR_LOG_WARN},
        [WEIR_NET_FIRST_LATE] = {"no request in time", WEIR_LOG_INFO},
        [WEIR_NET_IDLE] = {"idle connection closed", WEIR_LOG_DEBUG},
        [WEIR_NET_SLOW] = {"request not whole in time", WEIR_LOG_INFO},
        [WEIR_NET_OVERFLOW] = {"answers not read", WEIR_LOG_WARN},
        [WEIR_NET_TLS] = {"TLS failed", WEIR_LOG_INFO},
        [WEIR_NET_NO_FILES] = {"out of descriptors", WEIR_LOG_ERROR},
    };
    const struct weir_service_listener *at = ctx;
    WEIR_LOG(at->service->log, words[event].level, words[event].event,
             WEIR_LOG_TEXT("listener", weir_listener_address(at->listener)),
             WEIR_LOG_KEY("peer", weir_str_of(peer)),
             WEIR_LOG_TEXT("detail", detail != NULL ? detail : "-"));
}

/* ---- TLS ---- */

/* Whether a word is in a list with commas. */
static bool is_in_list(const char *list, const char *word)
{
    size_t len = strlen(word);
    while (*list != '\0') {
        size_t item = strcspn(list, ",");
        if (item == len && strncmp(list, word, len) == 0)
            return true;
        list += item + (list[item] == ',');
    }
    return false;
}

static bool wants_tls(const struct weir_settings *settings, const struct front *front)
{
    if (strcmp(settings->tls, "off") == 0 || front->number == WEIR_FRONT_DESK)
        return false; /* what never leaves the host is not encrypted */
    if (strcmp(settings->tls, "auto") == 0)
        return settings->tls_cert[0] != '\0' && front->number != WEIR_FRONT_ADMIN;
    return strcmp(settings->tls, "all") == 0 || is_in_list(settings->tls, front->name);
}

static int check_tls_list(const struct weir_settings *settings)
{
    static const char known[] = "auto,all,off,grpc,http,resp,admin";
    const char *at = settings->tls;
    while (*at != '\0') {
        char word[32];
        size_t len = strcspn(at, ",");
        snprintf(word, sizeof(word), "%.*s", (int)len, at);
        if (!is_in_list(known, word)) {
            weir_service_complain(
                "%s: '%s' is not a listener; there are grpc, http, resp and admin",
                settings->sources[WEIR_SETTING_NUMBER_tls].from, word);
            return WEIR_ERR_INVALID;
        }
        at += len + (at[len] == ',');
    }
    return 0;
}

static int open_tls(struct weir_service_listener *at, const struct front *front)
{
    const struct weir_settings *settings = at->service->settings;
    struct weir_tls_options options = {
        .cert_path = settings->tls_cert,
        .key_path = settings->tls_key,
        .client_ca_path = settings->tls_client_ca[0] != '\0' ? settings->tls_client_ca : NULL,
        .client_san = settings->tls_client_san[0] != '\0' ? settings->tls_client_san : NULL,
        .offer_h2 = front->offers_h2,
    };
    char why[WHY_LEN];
    if (!wants_tls(settings, front))
        return 0;
    int err = weir_tls_new(&at->tls, &options, why, sizeof(why));
    if (err != 0)
        weir_service_complain("%s: TLS: %s", front->name, why);
    return err;
}

void weir_service_reload_tls(struct weir_service *service, bool is_forced)
{
    for (size_t i = 0; i < service->listener_count; i++) {
        struct weir_service_listener *at = &service->listeners[i];
        char why[WHY_LEN];
        if (at->tls == NULL || (!is_forced && !weir_tls_has_changed(at->tls)))
            continue;
        if (weir_tls_reload(at->tls, why, sizeof(why)) != 0)
            WEIR_LOG(service->log, WEIR_LOG_ERROR, "certificates not loaded",
                     WEIR_LOG_TEXT("listener", weir_listener_address(at->listener)),
                     WEIR_LOG_TEXT("reason", why), WEIR_LOG_TEXT("in_use", "the old ones"));
        else
            WEIR_LOG(service->log, WEIR_LOG_INFO, "certificates loaded",
                     WEIR_LOG_TEXT("listener", weir_listener_address(at->listener)));
    }
}

/* ---- listeners ---- */

static int open_one(struct weir_service *service, const struct front *front, const char *address)
{
    const struct weir_settings *settings = service->settings;
    struct weir_service_listener *at = &service->listeners[service->listener_count];
    *at = (struct weir_service_listener){.service = service, .front = front->number};
    char why[WHY_LEN];
    int err = open_tls(at, front);
    if (err != 0)
        return err;
    struct weir_listen_options options = {
        .address = address,
        .protocol = front->protocol,
        .protocol_ctx = service,
        .tls = at->tls,
        .limits = {.connections_max = (uint32_t)settings->connections_max,
                   .output_max = (uint32_t)settings->output_max,
                   .idle_ms = (uint32_t)settings->idle_timeout,
                   .first_ms = (uint32_t)settings->first_timeout,
                   .request_ms = (uint32_t)settings->request_timeout},
        .is_shared = settings->reuse_port,
        .on_event = on_event,
        .event_ctx = at,
    };
    err = weir_listener_new(&at->listener, service->loops, service->worker_count, &options, why,
                            sizeof(why));
    if (err != 0) {
        weir_service_complain("%s: %s", settings->sources[front->setting].from, why);
        weir_tls_free(at->tls);
        return err;
    }
    service->listener_count++;
    return 0;
}

/* A default that cannot be had is left out; a wish that cannot be granted is refused. */
static int refuse_later(const struct weir_settings *settings, const struct front *front)
{
    if (settings->sources[front->setting].is_default)
        return 0;
    weir_service_complain("%s: %s is not in this version", settings->sources[front->setting].from,
                          front->name);
    return WEIR_ERR_UNSUPPORTED;
}

/* Who asks there counts in the same table, and so is on the same host. */
static int check_desk(const struct weir_settings *settings)
{
    if (strcmp(settings->desk, "off") == 0 ||
        strncmp(settings->desk, WEIR_ADDRESS_UNIX, sizeof(WEIR_ADDRESS_UNIX) - 1) == 0)
        return 0;
    weir_service_complain("%s: '%s' must be unix:PATH or off",
                          settings->sources[WEIR_SETTING_NUMBER_desk].from, settings->desk);
    return WEIR_ERR_INVALID;
}

int weir_service_listen(struct weir_service *service)
{
    int err = check_tls_list(service->settings);
    if (err == 0)
        err = check_desk(service->settings);
    for (size_t i = 0; err == 0 && i < sizeof(fronts) / sizeof(fronts[0]); i++) {
        const char *address;
        memcpy(&address, (const char *)service->settings + fronts[i].offset, sizeof(address));
        if (strcmp(address, "off") == 0)
            continue;
        if (fronts[i].protocol != NULL)
            err = open_one(service, &fronts[i], address);
        else
            err = refuse_later(service->settings, &fronts[i]);
    }
    return err;
}
