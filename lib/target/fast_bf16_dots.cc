#include "lib/target/fast_bf16_dots.h"

#include "lib/target/isa.h"
#include "lib/target/processor.h"

namespace ktx {

bool has_fast_bf16_dots() {
  return has_bf16_dots() && this_processor().vendor == "AuthenticAMD";
}

}  // namespace ktx
