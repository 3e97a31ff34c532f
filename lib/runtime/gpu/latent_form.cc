#include "lib/runtime/gpu/latent_form.h"

#include <fmt/format.h>

#include <vector>

#include "lib/support/strings.h"

namespace ktx::runtime {

Result<int64_t> expanded_from(const std::optional<std::string>& wish, int64_t usual) {
  static const std::vector<std::string> kForms = {"absorbed", "expanded"};
  if (!wish) return usual;
  if (*wish == kForms[0]) return INT64_MAX;
  if (*wish == kForms[1]) return 2;
  return Error{fmt::format(
      "KTX_CUDA_MLA: unknown form '{}'{}; known are {}, or leave it unset for the faster",
      printable(*wish), did_you_mean(*wish, kForms), join(kForms, ", "))};
}

}  // namespace ktx::runtime
