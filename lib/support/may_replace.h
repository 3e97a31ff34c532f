// Checks whether an output may replace the file at a path: a typing error must not destroy a
// model.
//
//   KTX_TRY(may_replace("m.gguf", "KTXPLAN"));
//   m.gguf: there is a file of this name that begins with 'GGUF', not with 'KTXPLAN'; name ...
//
// A missing file, an empty file, and a file that begins with `magic`, as the new one will, may
// be replaced. Devices and folders are left to the caller that opens them.
#pragma once

#include <string>
#include <string_view>

#include "lib/support/result.h"

namespace ktx {

Status may_replace(const std::string& path, std::string_view magic);

}  // namespace ktx
