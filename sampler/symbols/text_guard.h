/* The last step of every name: foreign text becomes valid UTF-8 without control characters, and
 * what was cut says so.  Internal to this folder. */
#ifndef CLP_SAMPLER_SYMBOLS_TEXT_GUARD_H
#define CLP_SAMPLER_SYMBOLS_TEXT_GUARD_H

#include "base/core/text.h"

/* Copies `work` to buf[cap], cap >= 1. A text that is cut, here or before, ends in "...".
 * Signal-safe. */
void clp_text_guard(const struct clp_text *work, char *buf, size_t cap);

#endif
