/* Names of managed methods as people wrote them, made from the raw parts that the library sends
 * (struct clp_rec_method in wire/wire.h).
 *
 * The choices, each shown by tests/unit/test-managed-name.c:
 *  - `Ns.Outer<int>.Inner.Method`: the method's own type keeps its namespace; types inside angle
 * brackets and parameter lists are short (`List<Order>`), with C# keywords, `int?`, `(int,
 * string)`, `int[,]`, `ref int`, `byte*`.
 *  - Code shared by all reference types shows the type parameter: its name when metadata gave it
 *    ("System.__Canon:TKey"), else T, or T1, T2 ... by position.  `__Canon` is never shown.
 *  - Constructors stay `Ns.Type..ctor` and `Ns.Type..cctor`, as stack traces of .NET print them.
 *  - Accessors are `Type.Name.get`, `.set`, `.add`, `.remove`; an indexer is `Type.this[].get`;
 * operators are `Type.operator +`.  An explicit implementation is `Type.IList.Add` (short interface
 * name).
 *  - Compiler-made members stand where they were written: local function `Type.M.Local`, lambda
 *    `Type.M.lambda#0`, state machines `Type.M (async)`, `(iterator)`, `(async iterator)`.  When M
 * itself has overloads, the number of the method is added: `Type.M.lambda#3_0`, `Type.M (async
 * #3)`.
 *  - Top-level statements are `Program.Main`.  Types of one file only lose their file prefix.
 *  - Overloaded methods get their parameter list: `Type.M(int, string)`.
 *  - IL stubs are `[P/Invoke stub] (int, byte*)` and the like; dynamic methods show their name
 * alone.
 *  - A shape that is not known is shown as it is.
 *
 * Names are foreign bytes: any input gives a bounded, NUL-terminated, valid UTF-8 text without
 * control characters (tests/fuzz/fuzz-managed-name.c).  Pure functions, no allocation, thread-safe,
 * signal-safe. */
#ifndef CLP_SAMPLER_SYMBOLS_MANAGED_NAME_H
#define CLP_SAMPLER_SYMBOLS_MANAGED_NAME_H

#include "base/core/core.h"

#include <stdint.h>

#define CLP_NAME_MAX 1024 /* bytes of a name, NUL included; longer ones end in "..." */

/* Bytes of a text that need not end in NUL; at may be NULL when len is 0. */
struct clp_name_text {
    const char *at;
    size_t len;
};

struct clp_managed_raw {
    struct clp_name_text type, name, type_args, method_args, signature; /* as in clp_rec_method */
    uint16_t flags;                                                     /* CLP_METHOD_* */
};

/* The name for people. `cap` is the size of `buf`, at least 1; CLP_NAME_MAX holds every result. */
void clp_managed_name(const struct clp_managed_raw *raw, char *buf, size_t cap);

/* The name as metadata has it, for pprof's system_name:
 * Ns.Outer`1+Inner[System.Int32].Method[System.String](System.Int32,!0). */
void clp_managed_system_name(const struct clp_managed_raw *raw, char *buf, size_t cap);

/* A type as the runtime writes it (`System.Collections.Generic.List`1[System.String]`), for people:
 * without generic arguments as it is, nested types behind a dot, else short (`List<string>`). */
void clp_managed_type_name(const char *type, char *buf, size_t cap);

#endif
