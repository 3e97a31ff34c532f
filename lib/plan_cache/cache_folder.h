// The folder of what ktx can make or fetch again: plans of GGUFs, models of a hub.
//
//   ~/.cache/ktx/              mode 0700
//     plans/3f2a...91/         one compiled plan (plan_cache.h)
//     models/OWNER/NAME/       what ktx-pull has fetched
#pragma once

#include <string>

#include "lib/support/result.h"

namespace ktx::plan_cache {

// $KTX_CACHE, else $XDG_CACHE_HOME/ktx, else ~/.cache/ktx; not made. Fails where none of them is
// set. As the XDG specification has it, a relative XDG_CACHE_HOME counts as none.
Result<std::string> cache_folder();

// Makes the folder and those above it, for this user alone. A folder that exists must belong to
// this user, and no other user may write to it: its content decides what is run.
Status make_private_folder(const std::string& path);

// The end of a message about a cache that cannot be written, and what else can be done.
inline constexpr const char* kOtherCache =
    "name another folder (KTX_CACHE=FOLDER), or compile to a file of your own: ktx-compile "
    "MODEL.gguf -o model.ktxplan";

}  // namespace ktx::plan_cache
