#include "lib/support/hash.h"

#include <fmt/format.h>

namespace ktx {

std::string to_hex(const Hash128& hash) {
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

}  // namespace ktx
