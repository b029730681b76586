/* Secrets by reference, so that they need stand in no configuration. */
#ifndef CLP_UPLOADER_SECRET_H
#define CLP_UPLOADER_SECRET_H

#include "base/core/core.h"

#define CLP_SECRET_MAX_BYTES 8192u

/* "file:PATH": what the file holds, without blanks and line ends at its end, read each time since
 * tokens are renewed; "env:NAME": the variable; else the text itself. *ret is the caller's: wipe it
 * with clp_secret_free. 0, -ENOKEY (no such variable), -EINVAL (a line end or NUL inside), -ENOMEM,
 * or what reading said. */
int clp_secret_get(const char *spec, char **ret) CLP_MUST_USE;
/* Accepts NULL. For CLP_CLEANUP. */
void clp_secret_free(char **secret);

/* Less is in every text, and is not looked for. */
#define CLP_SECRET_MIN_BYTES 4u

/* What must not be seen in what the other side, or a library, says. */
struct clp_secrets {
    char **items;
    size_t count;
};
/* Each 0 or -ENOMEM; NULL and "" add nothing. */
int clp_secrets_add(struct clp_secrets *s, const char *secret) CLP_MUST_USE;
/* The URL's user, password and the values of its query, as they stand there and decoded, and what
 * basic authentication makes of the two; all of it, when it cannot be read. */
int clp_secrets_add_url(struct clp_secrets *s, const char *url) CLP_MUST_USE;
/* What basic authentication makes of them. */
int clp_secrets_add_basic(struct clp_secrets *s, const char *user,
                          const char *password) CLP_MUST_USE;
/* Overwrites them wherever they stand in `text`, and what the end of `text` has of the beginning of
 * one, since texts are cut. */
void clp_secrets_redact(const struct clp_secrets *s, char *text);
/* Wipes and frees. */
void clp_secrets_done(struct clp_secrets *s);

#endif
