/* Any bytes as what an intake answered: there is always an outcome, and a sentence of valid text
 * without control characters; nothing but 2xx, or gRPC's 0, counts as taken. */
#include "uploader/verdict.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct clp_intake *in, int status, char *said)
{
    static char secret[] = "tokenOrKey";
    char *words[] = {secret};
    const struct clp_secrets secrets = {.items = words, .count = 1};
    struct clp_upload_result result = {.http_status = 0};
    clp_verdict_of_reply(in, status, said, &secrets, &result);
    if (result.outcome > CLP_OUTCOME_DROP || !*result.text ||
        (result.outcome == CLP_OUTCOME_DONE) != (status >= 200 && status < 300) ||
        (result.outcome != CLP_OUTCOME_DONE && strstr(said, secret)))
        abort();
    for (const char *c = result.text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum clp_upload_kind kinds[] = {CLP_UPLOAD_HTTP, CLP_UPLOAD_PYROSCOPE,
                                                 CLP_UPLOAD_DATADOG, CLP_UPLOAD_OTLP,
                                                 CLP_UPLOAD_PARCA};
    struct clp_intake *in = NULL;
    char body[4097], text[4097] = "", header[64];
    if (size < 4)
        return 0;
    int status = 200 + (data[1] | data[2] << 8) % 400;
    struct clp_upload u = {.kind = kinds[data[0] % CLP_ARRAY_LEN(kinds)], .url = "http://x"};
    size_t len = size - 4 < sizeof(body) - 1 ? size - 4 : sizeof(body) - 1;
    memcpy(body, data + 4, len);
    body[len] = '\0';
    if (clp_intake_open(&u, &in, NULL) < 0)
        return 0;
    /* The first bytes stand for gRPC's headers as well, which replies mostly lack. */
    size_t header_len = data[3] % 2 ? strnlen(body, sizeof(header) - 1) : 0;
    memcpy(header, body, header_len);
    header[header_len] = '\0';
    struct clp_reply reply = {.status = status,
                              .body = body,
                              .len = len,
                              .grpc_status = clp_reply_grpc_code(header, strcspn(header, "\n")),
                              .grpc_message = header};
    if (reply.grpc_status < -1 || reply.grpc_status > 999)
        abort();
    if (in->kind->judge)
        status = in->kind->judge(&reply, text, sizeof(text));
    check(in, status, in->kind->judge ? text : body);
    clp_intake_close(in);
    return 0;
}
