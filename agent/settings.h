/* Reads the settings as every command does: defaults, file, environment. */
#ifndef CLP_AGENT_SETTINGS_H
#define CLP_AGENT_SETTINGS_H

#include "base/core/core.h"
#include "config/config.h"

/* `path` NULL: the default file, which need not exist. 0, or a negative errno with a sentence.
 * Release *c with clp_config_done in any case. */
int clp_settings_read(struct clp_config *c, const char *path,
                      struct clp_config_error *ret_error) CLP_MUST_USE;

#endif
