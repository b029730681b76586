#include "agent/settings.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

int clp_settings_read(struct clp_config *c, const char *path, struct clp_config_error *error)
{
    int r = clp_config_init(c);
    if (r < 0) {
        snprintf(error->text, sizeof(error->text), "out of memory");
        return r;
    }
    r = clp_config_read_file(c, path ? path : CLP_CONFIG_DEFAULT_PATH, error);
    if (r == -ENOENT && !path)
        r = 0;
    if (r == 0)
        r = clp_config_read_environment(c, environ, error);
    return r == 0 ? clp_config_check(c, error) : r;
}
