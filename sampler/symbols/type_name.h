/* Types as C# writes them: `System.Collections.Generic.List`1[System.Int32]` is `List<int>`.
 *
 * Pure, no allocation. Internal to this folder; managed_name.h has the rules. */
#ifndef CLP_SAMPLER_SYMBOLS_TYPE_NAME_H
#define CLP_SAMPLER_SYMBOLS_TYPE_NAME_H

#include "base/core/text.h"
#include "sampler/symbols/compiler_name.h"

/* Generic arguments of a type or a method, in metadata order (a nested type's follow its outer's).
 */
struct clp_generic_args {
    struct clp_name_text list; /* comma-separated; empty when not known */
    uint32_t count;            /* how many there are, known or not */
    char letter;               /* what an argument without a name is called: T, or T1, T2 ... */
};

struct clp_name_writer {
    struct clp_text *out;
    struct clp_generic_args type_args, method_args; /* of the method: what !0 and !!0 stand for */
    unsigned depth;  /* of recursion, which foreign text could drive */
    bool plain_args; /* inside what !0 stands for: another !0 in there is shown as it is */
};

/* What the end of a nesting chain leaves to the method's name. */
struct clp_type_tail {
    bool closure; /* the last type is a closure: not written */
    bool machine; /* the last type is a state machine: its method's name is written */
    struct clp_name_text ordinal; /* of either */
    const struct clp_generic_args
        *args; /* CLOSURE: some of them are its own, and so its method's: */
    uint32_t first_arg, arg_count;
};

/* Writes the declaring type of a method with its namespace and w->type_args. */
struct clp_declaring_options {
    bool async_machine; /* for clp_segment_parse */
    bool overloaded;    /* the method that a state machine was made from has overloads */
};
void clp_type_name_declaring(struct clp_name_writer *w, struct clp_name_text type,
                             struct clp_declaring_options options, struct clp_type_tail *ret);

/* Writes one type in short form. */
void clp_type_name_short(struct clp_name_writer *w, struct clp_name_text type);

/* Writes the types of a list, without the last `skip_last` of them, separated by ", ". */
void clp_type_name_list(struct clp_name_writer *w, struct clp_name_text list, unsigned skip_last);

/* Writes `<A, B>` for `count` arguments from number `first` on; nothing for none. */
void clp_type_name_args(struct clp_name_writer *w, const struct clp_generic_args *args,
                        uint32_t first, uint32_t count);

/* Arguments for a type or method of that arity. */
struct clp_generic_args clp_generic_args_of(struct clp_name_text list, uint32_t arity, char letter);

/* Sum of the arities in a nesting chain. */
uint32_t clp_type_name_arity(struct clp_name_text type);

#endif
