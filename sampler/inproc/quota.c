#include "sampler/inproc/quota.h"

#include "base/core/proctext.h"
#include "sampler/inproc/procfile.h"

uint32_t clp_quota_share(uint64_t used, uint64_t limit, uint32_t ours)
{
    uint64_t others = used > ours ? used - ours : 0;
    uint64_t share = limit > others ? (limit - others) / 4 : 0;
    return (uint32_t)CLP_MIN(share, (uint64_t)UINT32_MAX);
}

uint32_t clp_quota_read(uint32_t ours)
{
    char text[4096];
    struct clp_proc_status status;
    int64_t n = clp_procfile_read("/proc/self/status", text, sizeof(text));
    if (n <= 0 || clp_proctext_status(text, (size_t)n, &status) < 0)
        return 0;
    return clp_quota_share(status.sigq_used, status.sigq_limit, ours);
}
