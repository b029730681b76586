/* Stands in for the CLR side in loop tests: bodies.h over two functions of this program, which play
 * compiled methods ("Ns.Work.Leaf" called by "Ns.Work.Root"). */
#ifndef CLP_TESTS_UNIT_MANAGED_DOUBLE_H
#define CLP_TESTS_UNIT_MANAGED_DOUBLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { MANAGED_LEAF_BODY = 1, MANAGED_ROOT_BODY = 2 };

/* What sessions of events are asked of. NULL, as it is at first: no runtime, no events. */
extern struct clr_info *managed_runtime;

/* Burns CPU in Leaf, called by Root, until *stop. */
void managed_root(_Atomic bool *stop);

#endif
