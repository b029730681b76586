/* What a running agent does, as `clrpulse status` and `clrpulse check --audit` show it: text for
 * people, JSON for machines. Pure, but for the numbers about the agent's own process. */
#ifndef CLP_AGENT_STATUS_H
#define CLP_AGENT_STATUS_H

#include "agent/limits.h"
#include "agent/outbox.h"
#include "agent/port.h"
#include "agent/roster.h"
#include "agent/walltime.h"
#include "base/strbuf.h"

struct clp_status {
    const char *config_path; /* "" when no file was read */
    uint64_t now_ns, started_ns;
    uint64_t period_ns;
    const struct clp_roster *roster;
    const struct clp_walltime *walltime;
    struct clp_port_counts port;
    const struct clp_limits *limits; /* the agent's own; NULL: none */
    const struct clp_outbox_lane *lanes;
    size_t lane_count;
    /* The agent itself. */
    uint64_t cpu_ns, resident_bytes;
    unsigned threads, descriptors;
};

/* Fills in the agent's own part. What cannot be read is 0. */
void clp_status_measure_self(struct clp_status *s);

void clp_status_text(const struct clp_status *s, struct clp_strbuf *to);
void clp_status_json(const struct clp_status *s, struct clp_strbuf *to);
/* Our totals of each target beside the kernel's. */
void clp_status_audit(const struct clp_status *s, struct clp_strbuf *to);

uint64_t clp_status_seconds_since(const struct clp_status *s, uint64_t then_ns);
/* The CPU clock of a process, all its threads, as the kernel keeps it; 0 when it is gone. */
uint64_t clp_kernel_cpu_ns(int32_t pid);
/* Its threads now; 0 when it is gone. */
uint64_t clp_kernel_threads(int32_t pid);
/* "3d04h", "3h02m", "2m05s". */
void clp_status_duration(uint64_t seconds, char *buf, size_t cap);

#endif
