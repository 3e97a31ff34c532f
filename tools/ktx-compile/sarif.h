// Diagnostics as SARIF 2.1.0, in the subset that GitHub's code scanning accepts.
//
// Code scanning rejects a whole file if one result has no location. So each result has a code
// and a place in a file; everything else ("no --target given", a missing rule file) is a
// notification of the tool:
//
//   error or warning at a file            result
//   error or warning without a place      result at the first rule file of the checkout,
//                                         with the whole message
//   missing file, note without a place,   notification; an error makes the run
//   message without a code                unsuccessful
#pragma once

#include <string>

#include "lib/support/diag.h"

namespace ktx::tools {

struct SarifRun {
  bool finished = false;  // the check got as far as the rules
  int exit_status = 0;
};

std::string to_sarif(const DiagSink& sink, const SarifRun& run);

}  // namespace ktx::tools
