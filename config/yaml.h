/* The YAML side of config.h; internal to this folder. */
#ifndef CLP_CONFIG_YAML_H
#define CLP_CONFIG_YAML_H

#include "config/config.h"

/* `text` is what stands under `upload:`; replaces all destinations. */
int clp_config_read_uploads(struct clp_config *c, const char *name, const char *text, size_t len,
                            struct clp_config_error *ret_error) CLP_MUST_USE;
void clp_config_uploads_done(struct clp_config *c);

#endif
