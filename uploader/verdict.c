#include "uploader/verdict.h"

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>

#define ANY_KIND "*"

static const struct verdict {
    const char *kind;
    int low, high;
    const char *words;
    enum clp_outcome outcome;
    const char *advice;
} verdicts[] = {
#define KIND_ANY ANY_KIND
#define KIND_OTLP "otlp"
#define CLP_VERDICT(kind, low, high, words, outcome, advice)                                       \
    {KIND_##kind, low, high, words, CLP_OUTCOME_##outcome, advice},
#include "uploader/verdicts.def"
};

static bool holds(const char *text, const char *word, size_t len)
{
    char copy[64];
    (void)snprintf(copy, sizeof(copy), "%.*s", (int)len, word);
    return strcasestr(text, copy) != NULL;
}

static bool holds_one_of(const char *text, const char *words)
{
    if (!*words)
        return true;
    for (;;) {
        size_t len = strcspn(words, "|");
        if (holds(text, words, len))
            return true;
        if (!words[len])
            return false;
        words += len + 1;
    }
}

static const struct verdict *find(const char *kind, int status, const char *said)
{
    for (size_t i = 0; i < CLP_ARRAY_LEN(verdicts); i++) {
        const struct verdict *v = &verdicts[i];
        if (status >= v->low && status <= v->high &&
            (strcmp(v->kind, ANY_KIND) == 0 || strcmp(v->kind, kind) == 0) &&
            holds_one_of(said, v->words))
            return v;
    }
    return NULL;
}

void clp_verdict_of_reply(const struct clp_intake *in, int status, char *said,
                          const struct clp_secrets *secrets, struct clp_upload_result *ret)
{
    const struct verdict *v = find(in->kind->name, status, said);
    ret->http_status = status;
    ret->outcome = v ? v->outcome : CLP_OUTCOME_DROP;
    if (ret->outcome == CLP_OUTCOME_DONE) {
        clp_upload_say(ret, "%s", in->where);
        return;
    }
    clp_secrets_redact(secrets, said); /* only now: a secret may be a word of the table */
    const char *advice = v ? v->advice : "";
    clp_upload_say(ret, "%s answered %d%s%s%s%s%s", in->where, status, *advice ? " (" : "", advice,
                   *advice ? ")" : "", *said ? ": " : "", said);
}

/* curl's words, when the other side is gone before the first request; the code has better ones. */
#define HUNG_UP "getpeername"
#define HUNG_UP_ADVICE                                                                             \
    "it hung up at once; if it wants a client certificate, check cert_file and key_file"

/* curl's own words say what; these say what to do. */
static const char *advice_for(int code, const char *error)
{
    static const struct {
        int code;
        const char *word, *advice;
    } table[] = {
        {CURLE_PEER_FAILED_VERIFICATION, "expired", "its certificate must be renewed"},
        {CURLE_PEER_FAILED_VERIFICATION, "not yet valid",
         "it is not valid yet: check this machine's clock"},
        {CURLE_PEER_FAILED_VERIFICATION, "self-signed",
         "name the authority that signed it in ca_file"},
        {CURLE_PEER_FAILED_VERIFICATION, "unable to get local issuer",
         "name the authority that signed it in ca_file"},
        {CURLE_PEER_FAILED_VERIFICATION, "subject name",
         "the url must name the host as the certificate does"},
        {CURLE_PEER_FAILED_VERIFICATION, "", "its certificate is not one that we trust"},
        {CURLE_SSL_CERTPROBLEM, "", "check cert_file and key_file"},
        {CURLE_SSL_CACERT_BADFILE, "", "check ca_file"},
        {CURLE_SSL_CONNECT_ERROR, "", "check that the url's scheme and port are right"},
        {CURLE_WRITE_ERROR, "header", "its answer's head has no end: check that the url is right"},
        {CURLE_COULDNT_CONNECT, "",
         "check that it runs, and that the url, and proxy if one is set, are right"},
        {CURLE_COULDNT_RESOLVE_HOST, "", "check the host in the url"},
        {CURLE_COULDNT_RESOLVE_PROXY, "", "check proxy"},
        {CURLE_RECV_ERROR, "CONNECT", "check proxy, its user and password"},
        {CURLE_PROXY, "", "check proxy, its user and password"},
        {CURLE_RECV_ERROR, "certificate required", "it wants cert_file and key_file"},
        {CURLE_RECV_ERROR, "alert", "it does not accept our cert_file"},
        {CURLE_RECV_ERROR, HUNG_UP, HUNG_UP_ADVICE},
        {CURLE_SEND_ERROR, HUNG_UP, HUNG_UP_ADVICE},
    };
    for (size_t i = 0; i < CLP_ARRAY_LEN(table); i++)
        if (table[i].code == code && strcasestr(error, table[i].word))
            return table[i].advice;
    return "";
}

void clp_verdict_of_failure(const struct clp_intake *in, int code, const char *error,
                            struct clp_upload_result *ret)
{
    const char *text = *error ? error : curl_easy_strerror((CURLcode)code);
    const char *advice = advice_for(code, text);
    if (in->socket && code == CURLE_COULDNT_CONNECT) /* curl speaks of a host and its port */
        text = "nobody listens at this socket";
    if (strncmp(text, HUNG_UP, strlen(HUNG_UP)) == 0)
        text = curl_easy_strerror((CURLcode)code);
    ret->http_status = 0;
    ret->outcome = CLP_OUTCOME_LATER; /* networks and certificates get mended */
    clp_upload_say(ret, "cannot send to %s: %s%s%s", in->where, text, *advice ? "; " : "", advice);
}
