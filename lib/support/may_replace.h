// Whether a file may be written under a name: a typing error must not cost a model.
//
//   KTX_TRY(may_replace("m.gguf", "KTXPLAN"));
//   m.gguf: there is a file of this name that begins with 'GGUF', not with 'KTXPLAN'; name ...
//
// Nothing there, an empty file, and one that begins with `magic`, as the new one will, may be
// replaced. Devices and folders are left to whoever opens them.
#pragma once

#include <string>
#include <string_view>

#include "lib/support/result.h"

namespace ktx {

Status may_replace(const std::string& path, std::string_view magic);

}  // namespace ktx
