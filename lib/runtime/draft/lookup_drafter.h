// Draft tokens from the text itself: what followed the last tokens where they stood before
// (ngram_draft.h). Costs next to nothing, and is right where a text repeats itself.
#pragma once

#include <memory>

#include "lib/runtime/draft/drafter.h"

namespace ktx::runtime {

std::unique_ptr<Drafter> make_lookup_drafter();

}  // namespace ktx::runtime
