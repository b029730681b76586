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

#endif
