/* gateway_run.c - nginx, and what runs beside it: started, reloaded, ended together.
 *
 *     weir gateway --+-- nginx: master, workers       ends: so does the gateway
 *       (waits for   +-- weir serve, admin and store  ends: started again, two seconds later
 *        signals)    +-- the demonstration's API
 *
 * Children are in process groups of their own, so that Ctrl-C comes here alone and nginx can finish
 * what it has begun; and should the gateway be killed, the kernel ends them.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "gateway.h"

#include "base/str.h"
#include "net/net.h"
#include "table/table.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define READY_MS 10000  /* nginx binds its addresses at once, or never */
#define SERVE_PAUSE_S 2 /* before weir serve, which has ended, is started again */
#define NOT_THERE 127   /* how a child ends whose program cannot be run, as a shell's would */
#define MODULE "ngx_http_weir_module.so"

enum child { NGINX, SERVE, BESIDE, CHILDREN };

struct run {
    struct gateway *gateway;
    const struct gateway_life *life;
    char folder[64];
    char conf[96], pid[96];
    char desk[112];           /* unix:PATH, in a folder of its own: where nginx asks weir serve */
    pid_t children[CHILDREN]; /* 0: not running */
    int log_fd;               /* or -1; see gateway_log.c */
    bool is_ending;
    bool is_serve_ending; /* because we said so */
    time_t serve_at;      /* when it may be started */
    time_t ends_at;
};

/* ---- before the start ---- */

/* Where weir itself lies. */
static void own_path(char out[GATEWAY_PATH_LEN])
{
    ssize_t len = readlink("/proc/self/exe", out, GATEWAY_PATH_LEN - 1);
    out[len > 0 ? len : 0] = '\0';
}

bool gateway_find_module(struct gateway *gateway)
{
    /* In the build folder, where it was installed, or where Debian's modules are. */
    static const char *const places[] = {"/nginx/" MODULE, "/../lib/nginx/modules/" MODULE};
    char folder[GATEWAY_PATH_LEN], path[2 * GATEWAY_PATH_LEN];
    const char *module = gateway->set.module;
    own_path(folder);
    char *slash = strrchr(folder, '/');
    if (slash != NULL)
        *slash = '\0';
    for (size_t i = 0; module == NULL && i < CLI_COUNT_OF(places); i++) {
        snprintf(path, sizeof(path), "%s%s", folder, places[i]);
        if (access(path, R_OK) == 0)
            module = path;
    }
    if (module == NULL)
        module = "/usr/lib/nginx/modules/" MODULE;
    gateway->set.module =
        weir_arena_str(&gateway->arena, (struct weir_str){module, strlen(module) + 1}).ptr;
    if (access(module, R_OK) == 0)
        return true;
    cli_complain("gateway: nginx's module for weir, %s: %s; --module says where it is", module,
                 strerror(errno));
    return false;
}

static bool write_conf(struct run *run)
{
    struct weir_buf text;
    const char *why = NULL;
    if (run->gateway->set.store != NULL)
        run->gateway->desk = run->desk;
    weir_buf_init(&text, SIZE_MAX);
    bool ok = gateway_write_nginx(&text, run->gateway, &why);
    if (ok) {
        FILE *to = fopen(run->conf, "w");
        ok = to != NULL && fwrite(text.ptr, 1, text.len, to) == text.len;
        if (to != NULL && fclose(to) != 0)
            ok = false;
        why = strerror(errno);
    }
    if (!ok)
        cli_complain("gateway: %s: %s", run->conf, why);
    weir_buf_fini(&text);
    return ok;
}

static const char *desk_path(const struct run *run)
{
    return run->desk + strlen(WEIR_ADDRESS_UNIX);
}

/* A folder that nginx's workers may look into: the socket gets its group. */
static bool make_desk(struct run *run)
{
    const struct passwd *user = gateway_user();
    char folder[96];
    snprintf(folder, sizeof(folder), "%s/desk", run->folder);
    snprintf(run->desk, sizeof(run->desk), WEIR_ADDRESS_UNIX "%s/weir.sock", folder);
    if (mkdir(folder, 0700) == 0 && (user == NULL || (chown(folder, (uid_t)-1, user->pw_gid) == 0 &&
                                                      chmod(folder, 02750) == 0)))
        return true;
    cli_complain("gateway: %s: %s", folder, strerror(errno));
    return false;
}

static bool make_folder(struct run *run)
{
    const char *tmp = getenv("TMPDIR");
    int len = snprintf(run->folder, sizeof(run->folder), "%s/weir-gateway-XXXXXX",
                       tmp != NULL ? tmp : "/tmp");
    if (len < 0 || (size_t)len >= sizeof(run->folder))
        snprintf(run->folder, sizeof(run->folder), "/tmp/weir-gateway-XXXXXX");
    /* Workers, who are somebody else, must reach their temporary files in it. */
    if (mkdtemp(run->folder) == NULL || chmod(run->folder, 0711) != 0) {
        cli_complain("gateway: %s: %s", run->folder, strerror(errno));
        return false;
    }
    snprintf(run->conf, sizeof(run->conf), "%s/nginx.conf", run->folder);
    snprintf(run->pid, sizeof(run->pid), "%s/nginx.pid", run->folder);
    return make_desk(run);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

/* ---- children ---- */

/* 0 in the child, as fork(). */
static pid_t begin_child(void)
{
    sigset_t none;
    pid_t parent = getpid(), pid = fork();
    if (pid != 0)
        return pid;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) /* it has died already */
        _exit(0);
    return 0;
}

static void exec_nginx(struct run *run)
{
    const char *program = run->gateway->set.nginx;
    char *const arguments[] = {"nginx", "-p", run->folder, "-c", run->conf, "-e", "stderr", NULL};
    gateway_exec_nginx(program, arguments);
    cli_complain("gateway: %s: %s; --nginx says where it is", program, strerror(errno));
}

static void exec_serve(const struct run *run)
{
    const struct gateway_texts *set = &run->gateway->set;
    const char *desk = set->store != NULL ? run->desk : "off";
    char self[GATEWAY_PATH_LEN];
    own_path(self);
    if (set->store != NULL && setenv("WEIR_STORE", set->store, 1) != 0) /* may have a password */
        return;
    execl(self, "weir", "serve", "--rules", set->rules, "--table", set->table, "--table-size",
          set->table_size, "--grpc", "off", "--http", "off", "--resp", "off", "--admin", set->admin,
          "--desk", desk, "--log-level", "warn", "--log-rules=off", (char *)NULL);
    cli_complain("gateway: weir serve: %s", strerror(errno));
}

static void start(struct run *run, enum child which)
{
    fflush(NULL);
    pid_t pid = begin_child();
    if (pid == 0) {
        if (which == NGINX)
            exec_nginx(run);
        else if (which == SERVE)
            exec_serve(run);
        else
            run->life->beside->fn(run->life->beside->ctx);
        _exit(NOT_THERE);
    }
    if (pid < 0)
        cli_complain("gateway: cannot start a process: %s", strerror(errno));
    run->children[which] = pid > 0 ? pid : 0;
    if (which == SERVE)
        run->is_serve_ending = false;
}

static void tell(const struct run *run, enum child which, int number)
{
    if (run->children[which] > 0)
        kill(run->children[which], number);
}

static bool needs_serve(const struct run *run)
{
    return strcmp(run->gateway->set.admin, "off") != 0 || run->gateway->set.store != NULL;
}

static bool is_any_left(const struct run *run)
{
    return run->children[NGINX] > 0 || run->children[SERVE] > 0 || run->children[BESIDE] > 0;
}

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* nginx writes its pid once it has bound its addresses; weir serve has a socket then. */
static bool is_there(const struct run *run, enum child which)
{
    struct stat st;
    if (which == NGINX)
        return stat(run->pid, &st) == 0 && st.st_size > 0;
    return stat(desk_path(run), &st) == 0;
}

static bool is_ready(const struct run *run, enum child which)
{
    siginfo_t ended = {.si_pid = 0};
    for (int waited = 0; waited < READY_MS; waited += 10) {
        if (is_there(run, which))
            return true;
        if (waitid(P_PID, (id_t)run->children[which], &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            ended.si_pid != 0)
            return false;
        sleep_ms(10);
    }
    return true; /* slow, then; it says itself what is wrong */
}

/* ---- life ---- */

/* What nginx would have removed. */
static void remove_sockets(const char *listen)
{
    char path[GATEWAY_PATH_LEN];
    for (; *listen != '\0'; listen += strcspn(listen, ",")) {
        listen += strspn(listen, ", ");
        if (sscanf(listen, WEIR_ADDRESS_UNIX "%4095[^, ]", path) == 1)
            unlink(path);
    }
}

/* Its time is over.  An nginx that has been told to finish, and is then told to stop, complains
 * about each connection that is left, a WebSocket's say: so it is not told. */
static void kill_nginx(struct run *run)
{
    if (run->children[NGINX] == 0)
        return;
    kill(-run->children[NGINX], SIGKILL); /* its workers are in its group */
    remove_sockets(run->gateway->set.listen);
}

static void end_all(struct run *run, int number)
{
    if (run->is_ending)
        kill_nginx(run);
    else
        tell(run, NGINX, number == SIGQUIT ? SIGTERM : SIGQUIT);
    run->is_ending = true;
    run->ends_at = time(NULL) + strtol(run->gateway->set.grace, NULL, 10);
    tell(run, SERVE, SIGTERM);
    tell(run, BESIDE, SIGTERM);
}

/* What weir serve is started with, in one text of malloc's.  NULL: no memory. */
static char *serve_words(const struct gateway *gateway)
{
    const struct gateway_texts *set = &gateway->set;
    char *words = NULL;
    int len = asprintf(&words, "%s\n%s\n%s\n%s\n%s", set->admin, set->rules, set->table,
                       set->table_size, set->store != NULL ? set->store : "");
    return len >= 0 ? words : NULL;
}

/* One with other words begins anew; live() starts it. */
static void reload_serve(struct run *run, const char *before)
{
    char *now = serve_words(run->gateway);
    run->is_serve_ending = before == NULL || now == NULL || strcmp(before, now) != 0;
    tell(run, SERVE, run->is_serve_ending ? SIGTERM : SIGHUP);
    free(now);
}

static void reload(struct run *run)
{
    char *before = serve_words(run->gateway);
    if (run->life->reload != NULL && !run->life->reload(run->life->ctx, run->gateway))
        cli_complain("gateway: the old configuration stays");
    else if (gateway_find_module(run->gateway) && gateway_log_begin(run->gateway, &run->log_fd) &&
             write_conf(run))
        tell(run, NGINX, SIGHUP);
    reload_serve(run, before);
    free(before);
}

/* Takes note of all that have ended.  Returns nginx's status, or -1. */
static int bury(struct run *run)
{
    int status, nginx_status = -1;
    for (pid_t pid = waitpid(-1, &status, WNOHANG); pid > 0; pid = waitpid(-1, &status, WNOHANG))
        for (enum child i = 0; i < CHILDREN; i++) {
            if (run->children[i] != pid)
                continue;
            run->children[i] = 0;
            if (i == SERVE)
                run->serve_at = time(NULL) + (run->is_serve_ending ? 0 : SERVE_PAUSE_S);
            if (i == NGINX)
                nginx_status = status;
            else if (!run->is_ending && !(i == SERVE && run->is_serve_ending))
                cli_complain("gateway: %s has ended%s", i == SERVE ? "its weir serve" : "the API",
                             i == SERVE ? "; it is started again" : "");
        }
    return nginx_status;
}

static void handle(struct run *run, int number)
{
    if (number == SIGTERM || number == SIGINT || number == SIGQUIT || number == SIGALRM)
        end_all(run, number);
    else if (number == SIGHUP)
        reload(run);
    else if (number == SIGUSR1)
        tell(run, NGINX, SIGUSR1); /* logs were rotated */
}

/* Until all have ended.  Says what the exit status is. */
static enum cli_exit live(struct run *run, const sigset_t *signals)
{
    enum cli_exit status = CLI_DONE;
    while (is_any_left(run)) {
        struct timespec second = {.tv_sec = 1};
        handle(run, sigtimedwait(signals, NULL, &second));
        int nginx_status = bury(run);
        if (nginx_status >= 0 && !run->is_ending) {
            if (!WIFEXITED(nginx_status) || WEXITSTATUS(nginx_status) != NOT_THERE)
                cli_complain("gateway: nginx has ended");
            status = CLI_WORLD;
            end_all(run, SIGTERM);
        }
        if (run->is_ending && time(NULL) > run->ends_at)
            end_all(run, SIGTERM);
        else if (!run->is_ending && needs_serve(run) && run->children[SERVE] == 0 &&
                 time(NULL) >= run->serve_at)
            start(run, SERVE);
    }
    return status;
}

static enum cli_exit begin(struct run *run, const sigset_t *signals)
{
    if (!write_conf(run))
        return CLI_WORLD;
    if (run->life->beside != NULL)
        start(run, BESIDE);
    if (run->gateway->set.store != NULL) { /* whom nginx asks is there first */
        start(run, SERVE);
        if (run->children[SERVE] == 0 || !is_ready(run, SERVE))
            cli_complain("gateway: until weir serve runs, this machine counts for itself");
    }
    start(run, NGINX);
    if (run->children[NGINX] > 0 && is_ready(run, NGINX)) {
        if (needs_serve(run) && run->children[SERVE] == 0)
            start(run, SERVE);
        if (run->life->on_ready != NULL)
            run->life->on_ready(run->life->ctx, run->gateway);
    }
    return live(run, signals);
}

static int no_attribute(void *ctx, struct weir_str key, struct weir_str *value)
{
    (void)ctx;
    (void)key;
    (void)value;
    return 0;
}

/* Whether the rules can be asked for a route: its domain is there, or there is only one. */
static bool has_domain(struct weir_session *session, const char *domain)
{
    struct weir_decision decision;
    struct weir_http http = {.attribute = no_attribute};
    if (domain != NULL)
        http.domain = weir_str_of(domain);
    int err = weir_check_http(session, &http, 0, &decision);
    if (err == WEIR_ERR_NOT_FOUND)
        cli_complain("gateway: the rules have no domain '%s': nothing would be limited", domain);
    else if (err == WEIR_ERR_DOMAIN_EMPTY)
        cli_complain("gateway: the rules have several domains: --domain says which one");
    return err != WEIR_ERR_NOT_FOUND && err != WEIR_ERR_DOMAIN_EMPTY;
}

static enum cli_exit check_domains(const struct gateway *gateway, struct weir *engine)
{
    struct weir_session *session = NULL;
    int err = weir_session_open(&session, engine);
    bool ok = true;
    for (uint32_t i = 0; i < gateway->route_count && err == 0 && ok; i++) {
        const struct gateway_route *route = &gateway->routes[i];
        ok = route->is_unlimited ||
             has_domain(session, route->domain != NULL ? route->domain : gateway->set.domain);
    }
    if (err == 0)
        weir_session_close(session);
    return ok ? cli_exit_of(err) : CLI_USAGE;
}

/* All that nginx would refuse of the rules, told as `weir check` tells it; and what it would not,
 * but limit nothing. */
static enum cli_exit check_rules(const struct gateway *gateway)
{
    struct weir *engine = NULL;
    struct weir_options options = {
        .rules_path = gateway->set.rules, .table_bytes = WEIR_TABLE_BYTES_MIN, .log = cli_log};
    int err = weir_open(&engine, &options);
    if (err)
        return cli_exit_of(err);
    enum cli_exit status = check_domains(gateway, engine);
    weir_close(engine);
    return status;
}

/* Somebody else's port is told now, not every two seconds by a weir serve that cannot have it. */
static bool check_admin(const struct gateway *gateway)
{
    char why[512];
    if (strcmp(gateway->set.admin, "off") == 0 ||
        weir_listener_try(gateway->set.admin, why, sizeof(why)) == 0)
        return true;
    cli_complain("gateway: %s; --admin says where else, or off", why);
    return false;
}

/* nginx's workers read the rules again when they change, as whoever they are. */
static void warn_of_rules(const struct gateway *gateway)
{
    const struct passwd *user = gateway_user();
    int status = 0;
    if (user == NULL)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        bool can_read = setgroups(0, NULL) == 0 && setgid(user->pw_gid) == 0 &&
                        setuid(user->pw_uid) == 0 && access(gateway->set.rules, R_OK) == 0;
        _exit(can_read ? 0 : 1);
    }
    if (pid > 0 && waitpid(pid, &status, 0) == pid && status != 0)
        cli_complain("gateway: %s may not read %s: when it changes, send a SIGHUP", user->pw_name,
                     gateway->set.rules);
}

enum cli_exit gateway_run(struct gateway *gateway, const struct gateway_life *life)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGALRM, SIGCHLD};
    struct run run = {.gateway = gateway, .life = life, .log_fd = -1};
    sigset_t signals, before;
    enum cli_exit status = check_rules(gateway);
    if (status != CLI_DONE)
        return status;
    if (!check_admin(gateway) || !gateway_find_module(gateway) ||
        !gateway_log_begin(gateway, &run.log_fd) || !make_folder(&run))
        return CLI_WORLD;
    warn_of_rules(gateway);
    weir_net_raise_files();
    sigemptyset(&signals);
    for (size_t i = 0; i < CLI_COUNT_OF(numbers); i++)
        sigaddset(&signals, numbers[i]);
    sigprocmask(SIG_BLOCK, &signals, &before);
    status = begin(&run, &signals);
    if (run.log_fd >= 0)
        close(run.log_fd);
    nftw(run.folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    /* Who said it twice is obeyed already, and would only spoil how we end. */
    while (sigtimedwait(&signals, NULL, &(struct timespec){0}) > 0)
        continue;
    sigprocmask(SIG_SETMASK, &before, NULL);
    return status;
}
