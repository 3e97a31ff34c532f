// All messages of a sink as text without colours.
#pragma once

#include <string>

#include "lib/support/diag.h"

namespace ktx::testing {

inline std::string text_of(const DiagSink& diags) {
  std::string text;
  for (const Diagnostic& diag : diags.all()) text += render_diagnostic(diags, diag, false);
  return text;
}

}  // namespace ktx::testing
