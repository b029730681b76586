/* The part of the CLR profiling API that the library uses, in C.
 *
 * Slots, interface ids and constants follow dotnet/runtime, src/coreclr/inc/corprof.idl, cor.h and
 * corhdr.h, as of .NET 8 to 10.  The interfaces are append-only: a slot never changes its meaning.
 * Calls go through a table of C function pointers, `self` first, System V calling convention; there
 * are no destructor slots.  WCHAR is a 16-bit unit. */
#ifndef CLP_SAMPLER_INPROC_CLR_H
#define CLP_SAMPLER_INPROC_CLR_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int32_t clr_hresult;
#define CLR_OK(hr) ((hr) >= 0)

enum {
    CLR_S_OK = 0,
    CLR_S_FALSE = 1,
    CLR_E_NOINTERFACE = (int32_t)0x80004002,
    CLR_E_POINTER = (int32_t)0x80004003,
    CLR_CLASS_E_NOAGGREGATION = (int32_t)0x80040110,
    CLR_CLASS_E_CLASSNOTAVAILABLE = (int32_t)0x80040111,
    CLR_E_FUNCTION_NOT_COMPILED = (int32_t)0x80131350,
};

struct clr_guid {
    uint32_t a;
    uint16_t b, c;
    uint8_t d[8];
};
static_assert(sizeof(struct clr_guid) == 16, "as in memory");

#define CLR_IID_UNKNOWN                                                                            \
    {                                                                                              \
        0, 0, 0,                                                                                   \
        {                                                                                          \
            0xc0, 0, 0, 0, 0, 0, 0, 0x46                                                           \
        }                                                                                          \
    }
#define CLR_IID_CLASS_FACTORY                                                                      \
    {                                                                                              \
        1, 0, 0,                                                                                   \
        {                                                                                          \
            0xc0, 0, 0, 0, 0, 0, 0, 0x46                                                           \
        }                                                                                          \
    }
/* ICorProfilerInfo9: GetNativeCodeStartAddresses and GetCodeInfo4; .NET Core 2.1 and later. */
#define CLR_IID_INFO9                                                                              \
    {                                                                                              \
        0x008170db, 0xf8cc, 0x4796,                                                                \
        {                                                                                          \
            0x9a, 0x51, 0xdc, 0x8a, 0xa0, 0xb4, 0x70, 0x12                                         \
        }                                                                                          \
    }
/* ICorProfilerInfo13: handles, and with Info12 before it sessions; .NET 6 and later. */
#define CLR_IID_INFO13                                                                             \
    {                                                                                              \
        0x6e6c7ee2, 0x0701, 0x4ec2,                                                                \
        {                                                                                          \
            0x9d, 0x29, 0x2e, 0x87, 0x33, 0xb6, 0x69, 0x34                                         \
        }                                                                                          \
    }
/* IMetaDataImport2 */
#define CLR_IID_METADATA_IMPORT2                                                                   \
    {                                                                                              \
        0xfce5efa0, 0x8bba, 0x4f8e,                                                                \
        {                                                                                          \
            0xa0, 0x36, 0x8f, 0x20, 0x22, 0xb0, 0x84, 0x66                                         \
        }                                                                                          \
    }

/* Event mask, low half and high half. */
enum {
    CLR_MONITOR_MODULE_LOADS = 0x4,
    CLR_MONITOR_ASSEMBLY_LOADS = 0x8,
    CLR_MONITOR_JIT_COMPILATION = 0x20,
    CLR_MONITOR_THREADS = 0x200,
    CLR_ENABLE_STACK_SNAPSHOT = 0x10000000,
};
enum {
    CLR_HIGH_DYNAMIC_FUNCTION_UNLOADS = 0x4,
    CLR_HIGH_MONITOR_EVENT_PIPE = 0x80,
};

/* GetModuleInfo2's flags. */
enum {
    CLR_MODULE_DISK = 0x1,
    CLR_MODULE_DYNAMIC = 0x4,
    CLR_MODULE_COLLECTIBLE = 0x8,
    CLR_MODULE_FLAT_LAYOUT = 0x20,
};

typedef uint64_t clr_function_id; /* MethodDesc*; reused after the method has gone */
typedef uint64_t clr_module_id;
typedef uint64_t clr_assembly_id;
typedef uint64_t clr_class_id;
typedef uint64_t clr_thread_id; /* Thread* */

struct clr_code_range {
    uint64_t start;
    uint64_t size;
};
struct clr_function_ref {
    clr_function_id function;
    uint64_t rejit;
};
/* COR_PRF_EVENTPIPE_PROVIDER_CONFIG */
struct clr_event_provider {
    const uint16_t *name;
    uint64_t keywords;
    uint32_t level;
    const uint16_t *filter;
};
struct clr_il_map {
    uint32_t il;         /* offset, or a negative number for what comes from no IL */
    uint32_t start, end; /* native offsets */
};
static_assert(sizeof(struct clr_event_provider) == 32, "as in memory");
static_assert(sizeof(struct clr_code_range) == 16 && sizeof(struct clr_function_ref) == 16 &&
                  sizeof(struct clr_il_map) == 12,
              "COR_PRF_CODE_INFO, COR_PRF_FUNCTION, COR_DEBUG_IL_TO_NATIVE_MAP");

/* Any COM object. */
struct clr_object;
struct clr_object_slots {
    clr_hresult (*query_interface)(struct clr_object *self, const struct clr_guid *iid, void **ret);
    uint32_t (*add_ref)(struct clr_object *self);
    uint32_t (*release)(struct clr_object *self);
};
struct clr_object {
    const struct clr_object_slots *slots;
};

/* ICorProfiler{Function,Module,Thread}Enum; elements are struct clr_function_ref or 64-bit ids. */
struct clr_enum;
struct clr_enum_slots {
    struct clr_object_slots base;
    void *unused_3[3];
    clr_hresult (*get_count)(struct clr_enum *self, uint32_t *ret);                          /* 6 */
    clr_hresult (*next)(struct clr_enum *self, uint32_t cap, void *elements, uint32_t *got); /* 7 */
};
struct clr_enum {
    const struct clr_enum_slots *slots;
};

/* StackSnapshotCallback: function 0 stands for a run of native frames. */
typedef clr_hresult clr_stack_callback(clr_function_id function, uint64_t ip, uint64_t frame,
                                       uint32_t context_bytes, uint8_t *context, void *user);

struct clr_info;
struct clr_info_slots {
    struct clr_object_slots base;
    void *unused_3[8];
    clr_hresult (*is_array_class)(struct clr_info *self, clr_class_id id, uint32_t *element_type,
                                  clr_class_id *element, uint32_t *rank);                   /* 11 */
    clr_hresult (*get_thread_info)(struct clr_info *self, clr_thread_id id, uint32_t *tid); /* 12 */
    clr_hresult (*get_current_thread_id)(struct clr_info *self, clr_thread_id *ret);        /* 13 */
    void *unused_14[7];
    clr_hresult (*get_module_metadata)(struct clr_info *self, clr_module_id id, uint32_t open_flags,
                                       const struct clr_guid *iid, void **ret); /* 21 */
    clr_hresult (*get_il_function_body)(struct clr_info *self, clr_module_id module, uint32_t token,
                                        const uint8_t **ret, uint32_t *ret_bytes); /* 22 */
    void *unused_23[13];
    clr_hresult (*do_stack_snapshot)(struct clr_info *self, clr_thread_id thread,
                                     clr_stack_callback *callback, uint32_t flags, void *user,
                                     uint8_t *context,
                                     uint32_t context_bytes); /* 36; for counted.c and tests */
    void *unused_37[1];
    clr_hresult (*get_function_info2)(struct clr_info *self, clr_function_id id, uint64_t frame,
                                      clr_class_id *ret_class, clr_module_id *ret_module,
                                      uint32_t *ret_token, uint32_t cap, uint32_t *ret_count,
                                      clr_class_id *args); /* 38 */
    void *unused_39[2];
    clr_hresult (*get_class_id_info2)(struct clr_info *self, clr_class_id id,
                                      clr_module_id *ret_module, uint32_t *ret_typedef,
                                      clr_class_id *ret_parent, uint32_t cap, uint32_t *ret_count,
                                      clr_class_id *args); /* 41 */
    clr_hresult (*get_code_info2)(struct clr_info *self, clr_function_id id, uint32_t cap,
                                  uint32_t *ret_count, struct clr_code_range *ranges); /* 42 */
    void *unused_43[15];
    clr_hresult (*request_profiler_detach)(struct clr_info *self, uint32_t expected_ms); /* 58 */
    void *unused_59[7];
    clr_hresult (*enum_modules)(struct clr_info *self, struct clr_enum **ret); /* 66 */
    clr_hresult (*get_runtime_information)(struct clr_info *self, uint16_t *instance,
                                           uint32_t *type, uint16_t *major, uint16_t *minor,
                                           uint16_t *build, uint16_t *qfe, uint32_t cap,
                                           uint32_t *ret_len, uint16_t *text); /* 67 */
    void *unused_68[2];
    clr_hresult (*get_module_info2)(struct clr_info *self, clr_module_id id, uint64_t *ret_base,
                                    uint32_t cap, uint32_t *ret_len, uint16_t *name,
                                    clr_assembly_id *ret_assembly, uint32_t *ret_flags); /* 70 */
    clr_hresult (*enum_threads)(struct clr_info *self, struct clr_enum **ret);           /* 71 */
    clr_hresult (*initialize_current_thread)(struct clr_info *self);                     /* 72 */
    void *unused_73[6];
    clr_hresult (*enum_jitted_functions2)(struct clr_info *self, struct clr_enum **ret); /* 79 */
    void *unused_80[2];
    clr_hresult (*set_event_mask2)(struct clr_info *self, uint32_t low, uint32_t high); /* 82 */
    void *unused_83[5];
    clr_hresult (*get_function_from_ip3)(struct clr_info *self, uint64_t ip, clr_function_id *ret,
                                         uint64_t *ret_rejit); /* 88 */
    clr_hresult (*get_dynamic_function_info)(struct clr_info *self, clr_function_id id,
                                             clr_module_id *ret_module, const uint8_t **ret_sig,
                                             uint32_t *ret_sig_len, uint32_t cap, uint32_t *ret_len,
                                             uint16_t *name); /* 89 */
    clr_hresult (*get_native_code_starts)(struct clr_info *self, clr_function_id id, uint64_t rejit,
                                          uint32_t cap, uint32_t *ret_count,
                                          uint64_t *starts); /* 90 */
    clr_hresult (*get_il_to_native_map3)(struct clr_info *self, uint64_t start, uint32_t cap,
                                         uint32_t *ret_count, struct clr_il_map *map); /* 91 */
    clr_hresult (*get_code_info4)(struct clr_info *self, uint64_t start, uint32_t cap,
                                  uint32_t *ret_count, struct clr_code_range *ranges); /* 92 */
    void *unused_93[2];
    clr_hresult (*get_loh_threshold)(struct clr_info *self, uint32_t *ret_bytes); /* 95 */
    void *unused_96[5];
    /* ICorProfilerInfo12: sessions whose events come to EventPipeEventDelivered on the thread where
     * they happen. */
    clr_hresult (*event_pipe_start_session)(struct clr_info *self, uint32_t count,
                                            const struct clr_event_provider *providers,
                                            int32_t rundown, uint64_t *ret_session); /* 101 */
    void *unused_102[1];
    clr_hresult (*event_pipe_stop_session)(struct clr_info *self, uint64_t session); /* 103 */
    void *unused_104[1];
    clr_hresult (*event_pipe_get_provider_info)(struct clr_info *self, uint64_t provider,
                                                uint32_t cap, uint32_t *ret_len,
                                                uint16_t *name); /* 105 */
    void *unused_106[2];
    /* ICorProfilerInfo13 */
    clr_hresult (*create_handle)(struct clr_info *self, uint64_t object, uint32_t type,
                                 uint64_t *ret_handle);                    /* 108 */
    clr_hresult (*destroy_handle)(struct clr_info *self, uint64_t handle); /* 109 */
    clr_hresult (*get_object_from_handle)(struct clr_info *self, uint64_t handle,
                                          uint64_t *ret_object); /* 110 */
};
struct clr_info {
    const struct clr_info_slots *slots;
};

#define CLR_SLOT(type, member, number)                                                             \
    static_assert(offsetof(struct type, member) == (number) * sizeof(void *), #member)
CLR_SLOT(clr_enum_slots, next, 7);
CLR_SLOT(clr_info_slots, is_array_class, 11);
CLR_SLOT(clr_info_slots, get_thread_info, 12);
CLR_SLOT(clr_info_slots, get_current_thread_id, 13);
CLR_SLOT(clr_info_slots, get_module_metadata, 21);
CLR_SLOT(clr_info_slots, get_il_function_body, 22);
CLR_SLOT(clr_info_slots, do_stack_snapshot, 36);
CLR_SLOT(clr_info_slots, get_function_info2, 38);
CLR_SLOT(clr_info_slots, get_class_id_info2, 41);
CLR_SLOT(clr_info_slots, get_code_info2, 42);
CLR_SLOT(clr_info_slots, request_profiler_detach, 58);
CLR_SLOT(clr_info_slots, enum_modules, 66);
CLR_SLOT(clr_info_slots, get_runtime_information, 67);
CLR_SLOT(clr_info_slots, get_module_info2, 70);
CLR_SLOT(clr_info_slots, enum_threads, 71);
CLR_SLOT(clr_info_slots, initialize_current_thread, 72);
CLR_SLOT(clr_info_slots, enum_jitted_functions2, 79);
CLR_SLOT(clr_info_slots, set_event_mask2, 82);
CLR_SLOT(clr_info_slots, get_function_from_ip3, 88);
CLR_SLOT(clr_info_slots, get_dynamic_function_info, 89);
CLR_SLOT(clr_info_slots, get_native_code_starts, 90);
CLR_SLOT(clr_info_slots, get_il_to_native_map3, 91);
CLR_SLOT(clr_info_slots, get_code_info4, 92);
CLR_SLOT(clr_info_slots, get_loh_threshold, 95);
CLR_SLOT(clr_info_slots, event_pipe_start_session, 101);
CLR_SLOT(clr_info_slots, event_pipe_stop_session, 103);
CLR_SLOT(clr_info_slots, event_pipe_get_provider_info, 105);
CLR_SLOT(clr_info_slots, create_handle, 108);
CLR_SLOT(clr_info_slots, get_object_from_handle, 110);

/* ---- metadata ------------------------------------------------------------------------------ */

/* IMetaDataImport2. A `handle` of an enumeration starts as NULL and is closed by close_enum. */
struct clr_metadata;
struct clr_metadata_slots {
    struct clr_object_slots base;
    void (*close_enum)(struct clr_metadata *self, void *handle); /* 3 */
    void *unused_4[3];
    clr_hresult (*enum_interface_impls)(struct clr_metadata *self, void **handle, uint32_t type,
                                        uint32_t *impls, uint32_t cap, uint32_t *got); /* 7 */
    void *unused_8[2];
    clr_hresult (*get_scope_props)(struct clr_metadata *self, uint16_t *name, uint32_t cap,
                                   uint32_t *ret_len, struct clr_guid *ret_mvid); /* 10 */
    void *unused_11[1];
    clr_hresult (*get_typedef_props)(struct clr_metadata *self, uint32_t type, uint16_t *name,
                                     uint32_t cap, uint32_t *ret_len, uint32_t *ret_flags,
                                     uint32_t *ret_extends); /* 12 */
    clr_hresult (*get_interface_impl_props)(struct clr_metadata *self, uint32_t impl,
                                            uint32_t *ret_class, uint32_t *ret_interface); /* 13 */
    clr_hresult (*get_typeref_props)(struct clr_metadata *self, uint32_t type, uint32_t *ret_scope,
                                     uint16_t *name, uint32_t cap, uint32_t *ret_len); /* 14 */
    void *unused_15[4];
    clr_hresult (*enum_methods_with_name)(struct clr_metadata *self, void **handle, uint32_t type,
                                          const uint16_t *name, uint32_t *methods, uint32_t cap,
                                          uint32_t *got); /* 19 */
    void *unused_20[10];
    clr_hresult (*get_method_props)(struct clr_metadata *self, uint32_t method, uint32_t *ret_type,
                                    uint16_t *name, uint32_t cap, uint32_t *ret_len,
                                    uint32_t *ret_flags, const uint8_t **ret_sig,
                                    uint32_t *ret_sig_len, uint32_t *ret_rva,
                                    uint32_t *ret_impl_flags); /* 30 */
    void *unused_31[13];
    clr_hresult (*get_typespec)(struct clr_metadata *self, uint32_t type, const uint8_t **ret_sig,
                                uint32_t *ret_sig_len); /* 44 */
    void *unused_45[17];
    clr_hresult (*get_nested_class_props)(struct clr_metadata *self, uint32_t type,
                                          uint32_t *ret_enclosing); /* 62 */
    void *unused_63[2];
    clr_hresult (*enum_generic_params)(struct clr_metadata *self, void **handle, uint32_t owner,
                                       uint32_t *params, uint32_t cap, uint32_t *got); /* 65 */
    clr_hresult (*get_generic_param_props)(struct clr_metadata *self, uint32_t param,
                                           uint32_t *ret_number, uint32_t *ret_flags,
                                           uint32_t *ret_owner, uint32_t *reserved, uint16_t *name,
                                           uint32_t cap, uint32_t *ret_len); /* 66 */
};
struct clr_metadata {
    const struct clr_metadata_slots *slots;
};
CLR_SLOT(clr_metadata_slots, close_enum, 3);
CLR_SLOT(clr_metadata_slots, enum_interface_impls, 7);
CLR_SLOT(clr_metadata_slots, get_scope_props, 10);
CLR_SLOT(clr_metadata_slots, get_typedef_props, 12);
CLR_SLOT(clr_metadata_slots, get_typeref_props, 14);
CLR_SLOT(clr_metadata_slots, enum_methods_with_name, 19);
CLR_SLOT(clr_metadata_slots, get_method_props, 30);
CLR_SLOT(clr_metadata_slots, get_typespec, 44);
CLR_SLOT(clr_metadata_slots, get_nested_class_props, 62);
CLR_SLOT(clr_metadata_slots, enum_generic_params, 65);
CLR_SLOT(clr_metadata_slots, get_generic_param_props, 66);

/* Metadata tokens: table in the top byte, row below. ECMA-335 II.22 */
#define CLR_TOKEN_TABLE(token) ((token)&0xff000000u)
enum {
    CLR_TOKEN_TYPEREF = 0x01000000,
    CLR_TOKEN_TYPEDEF = 0x02000000,
    CLR_TOKEN_METHODDEF = 0x06000000,
    CLR_TOKEN_TYPESPEC = 0x1b000000,
};
#define CLR_TYPEDEF_GLOBAL 0x02000001u                /* <Module>, the home of global methods */
#define CLR_TYPEDEF_NESTED(flags) (((flags)&7u) >= 2) /* any nested visibility, II.23.1.15 */

#undef CLR_SLOT

#endif
