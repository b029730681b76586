#include "tests/snapshot/compare.h"

#include "base/core/core.h"

#include <stdlib.h>

uint32_t clp_compare_fold(uint32_t *ids, uint32_t count)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++)
        if (n == 0 || ids[n - 1] != ids[i])
            ids[n++] = ids[i];
    return n;
}

/* Length of the longest common subsequence, one row at a time. */
static uint32_t common(const uint32_t *a, uint32_t n, const uint32_t *b, uint32_t m)
{
    uint32_t *row = calloc(m + 1, sizeof(*row));
    if (!row)
        abort();
    for (uint32_t i = 0; i < n; i++) {
        uint32_t diagonal = 0;
        for (uint32_t j = 0; j < m; j++) {
            uint32_t above = row[j + 1];
            row[j + 1] = a[i] == b[j] ? diagonal + 1 : CLP_MAX(above, row[j]);
            diagonal = above;
        }
    }
    uint32_t length = row[m];
    free(row);
    return length;
}

struct clp_comparison clp_compare(const uint32_t *truth, uint32_t truth_count, const uint32_t *ours,
                                  uint32_t our_count)
{
    uint32_t n = truth_count, m = our_count;
    for (; n && m && truth[n - 1] == ours[m - 1]; n--)
        m--;
    for (; n && m && *truth == *ours; n--, m--) {
        truth++;
        ours++;
    }
    uint32_t same = n && m ? common(truth, n, ours, m) : 0;
    return (struct clp_comparison){.missing = n - same, .invented = m - same};
}
