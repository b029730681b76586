/* What becomes of a profile after a reply: one table (verdicts.def) for all kinds. */
#ifndef CLP_UPLOADER_VERDICT_H
#define CLP_UPLOADER_VERDICT_H

#include "uploader/intake.h"

/* `said` is the start of the reply's body. Fills everything but retry_after_ns. */
void clp_verdict_of_reply(const struct clp_intake *in, int status, const char *said,
                          struct clp_upload_result *ret);
/* No reply came: `error` is curl's sentence, `code` its number. */
void clp_verdict_of_failure(const struct clp_intake *in, int code, const char *error,
                            struct clp_upload_result *ret);

#endif
