/* How the profiling side of the runtime and an attaching agent know the library.
 *
 * Included by both: the agent names the class in AttachProfiler, the library answers to it.  The
 * start-up form is CORECLR_ENABLE_NOTIFICATION_PROFILERS=1 with
 * CORECLR_NOTIFICATION_PROFILERS="<path>=" CLP_CLSID_TEXT ";" (the last ';' is needed from 9 on).
 */
#ifndef CLP_WIRE_CLSID_H
#define CLP_WIRE_CLSID_H

#include <stdint.h>

#define CLP_CLSID_TEXT "{5780a302-ffc7-4c05-a9a4-941fd7dd6f8d}"

/* The same as it lies in memory and in AttachProfiler: the first three fields little-endian. */
#define CLP_CLSID_BYTES                                                                            \
    {                                                                                              \
        0x02, 0xa3, 0x80, 0x57, 0xc7, 0xff, 0x05, 0x4c, 0xa9, 0xa4, 0x94, 0x1f, 0xd7, 0xdd, 0x6f,  \
            0x8d                                                                                   \
    }

/* What AttachProfiler answers, as the library chose it. */
enum clp_attach_result {
    CLP_ATTACH_OK = 0,
    /* The library was active already and has taken the new reader: a success for the reader. The
     * runtime drops the second instance (CORPROF_E_PROFILER_CANCEL_ACTIVATION). */
    CLP_ATTACH_JOINED = (int32_t)0x80131375,
    /* It is on its way out; try again in a moment (CORPROF_E_PROFILER_DETACHING). */
    CLP_ATTACH_LEAVING = (int32_t)0x80131367,
    /* The target's owner forbade it (CLRPULSE_DISABLE=1, or a profiler switch of the runtime);
     * E_ACCESSDENIED. */
    CLP_ATTACH_DISABLED = (int32_t)0x80070005,
    /* The client data is not clp_attach_data of this wire version; E_INVALIDARG. */
    CLP_ATTACH_BAD_DATA = (int32_t)0x80070057,
    /* A table or a thread could not be made; E_OUTOFMEMORY. */
    CLP_ATTACH_NO_MEMORY = (int32_t)0x8007000e,
    /* The runtime refused an interface or an event that the library needs; E_FAIL. */
    CLP_ATTACH_FAILED = (int32_t)0x80004005,
};

#endif
