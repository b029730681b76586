#include "agent/event_labels.h"

#include "sampler/symbols/managed_name.h"

#include <stdio.h>

static size_t add_texts(const struct clp_type_info *info, const struct clp_reader_record *r,
                        char (*classes)[CLP_NAME_MAX], struct clp_profile_label *ret)
{
    size_t n = 0;
    for (size_t i = 0; i < CLP_EVENT_TEXTS; i++) {
        const char *text = r->event.texts[i];
        if (!info->texts[i] || !*text)
            continue;
        if (info->text_is_class[i]) {
            clp_managed_type_name(text, classes[i], CLP_NAME_MAX);
            text = classes[i];
        }
        ret[n++] = (struct clp_profile_label){.key = info->texts[i], .str = text};
    }
    return n;
}

static void number_text(const struct clp_type_info *info, uint64_t number, char *ret, size_t cap)
{
    const char *word = number < CLP_TYPE_NUMBER_WORDS_MAX ? info->number_words[number] : NULL;
    if (word)
        snprintf(ret, cap, "%s", word);
    else
        snprintf(ret, cap, "%llu", (unsigned long long)number);
}

size_t clp_event_labels(struct clp_definitions *defs, const struct clp_type_info *info,
                        const struct clp_reader_record *record, struct clp_event_label_texts *texts,
                        struct clp_profile_label *ret)
{
    const struct clp_rec_event *e = record->event.rec;
    uint64_t number = e->number;
    size_t n = add_texts(info, record, texts->classes, ret);
    if (info->number && info->number_as_text) {
        number_text(info, number, texts->number, sizeof(texts->number));
        ret[n++] = (struct clp_profile_label){.key = info->number, .str = texts->number};
    } else if (info->number && number && number <= INT64_MAX) {
        ret[n++] = (struct clp_profile_label){.key = info->number, .num = (int64_t)number};
    }
    *texts->owner = '\0';
    if (e->other_count)
        clp_owner_text(defs, record->event.frames + (e->rec.count - e->other_count), e->other_count,
                       texts->owner);
    if (*texts->owner)
        ret[n++] = (struct clp_profile_label){.key = "lock_owner_stack", .str = texts->owner};
    return n;
}
