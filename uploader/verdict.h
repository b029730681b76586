/* What becomes of a profile after a reply: one table (verdicts.def) for all kinds. */
#ifndef CLP_UPLOADER_VERDICT_H
#define CLP_UPLOADER_VERDICT_H

#include "uploader/intake.h"
#include "uploader/secret.h"

/* `said` is the start of the reply's body. Some answer with what they were asked, so `secrets` are
 * overwritten in it. Fills everything but retry_after_ns. */
void clp_verdict_of_reply(const struct clp_intake *in, int status, char *said,
                          const struct clp_secrets *secrets, struct clp_upload_result *ret);
/* No reply came: `error` is curl's sentence, `code` its number. */
void clp_verdict_of_failure(const struct clp_intake *in, int code, const char *error,
                            struct clp_upload_result *ret);

#endif
